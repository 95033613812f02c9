//! The kinds of causes, and who must act.

use std::fmt;

use berth_domain::{PluginId, Timestamp};
use serde::Serialize;

/// Declares the causes, in order, each with its meaning and the section of the documentation.
macro_rules! causes {
    ($($cause:ident: $meaning:literal, $section:literal;)*) => {
        /// The kind of a cause, in order. While an earlier cause holds, no remedy for a later one
        /// helps, so the earlier one hides it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Cause {
            $(#[doc = $meaning] $cause,)*
        }

        impl Cause {
            /// All causes, the one that hides all others first.
            pub const ALL: &[Self] = &[$(Self::$cause,)*];

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$cause => $meaning,)* }
            }

            /// The page of `docs/` about it, with the anchor.
            pub const fn section(self) -> &'static str {
                match self { $(Self::$cause => $section,)* }
            }
        }
    };
}

causes! {
    BusAway: "nats-server cannot be reached, or has no leader.", "inspect.md#the-bus";
    ServiceAway: "A service of Berth does not answer.", "inspect.md#the-bus";
    RightMissing:
        "The identity of a service lacks a right that the step needs, or yours lacks one to read.",
        "access.md#does-an-identity-have-every-right";
    RecordUnreadable: "A record cannot be read.", "errors.md";
    StoreFault: "nats-server stores no writes.", "inspect.md#the-disk-of-nats-server-is-full";
    ClockWrong: "A clock is too far off for deadlines.", "inspect.md#a-clock-is-wrong";
    RegisteredTwice: "The same volume of the plugin is registered under another name.",
        "claims.md#rule-17-a-plugins-volume-is-registered-once";
    RegistrationLost: "A volume has claims, and is registered under its name no more.", "backup.md";
    MountUnaccounted: "A mount on a node is covered by no claim.",
        "node.md#a-mount-without-a-claim";
    NodeGone: "An operator declared the node gone.", "failover.md#4-when-the-host-comes-back";
    NodeDown: "The node's lease has ended.", "inspect.md#the-node-is-gone";
    AgentAway: "The node holds its lease, and its agent does not answer.",
        "inspect.md#the-node-is-gone";
    NodeUnknown: "No node of this id is on record.", "inspect.md#the-node-is-gone";
    JournalFault: "The agent cannot write its journal.", "node.md";
    RunUnknown: "The agent cannot see whether the guard or the command of an alloc lives.",
        "node.md#what-runs-cannot-be-seen";
    HostHangs: "Operations on the host do not return.", "node.md#an-unmount-hangs";
    SharedNodeId: "The plugin gives two nodes one id.",
        "plugins.md#node-ids-volume-ids-and-topology";
    PluginFile: "A file that names a plugin has faults.", "plugins.md#a-file";
    PluginCrashes: "The plugin's process ends each time it works on a call.",
        "inspect.md#the-plugin-ends-at-a-call";
    PluginDown: "The plugin has no healthy instance where one is needed.",
        "inspect.md#the-plugin-is-down";
    PluginHangs: "The plugin took a call and does not answer.", "inspect.md#the-plugin-hangs";
    StorageUnreachable: "The plugin says that a node does not reach its storage.",
        "inspect.md#the-storage-is-not-well";
    HeldByProcess: "Processes on the node use the volume.", "node.md#a-release-waits-for-a-process";
    ForeignMount: "Something else is mounted where the volume was.",
        "node.md#the-plugin-never-takes-the-volume-down";
    MountLeft:
        "The volume is still mounted after the plugin's call, and no process is seen that uses it.",
        "node.md#the-plugin-never-takes-the-volume-down";
    RequestOutdated:
        "An agent refused the request as older than another one. The plugin was not called.",
        "claims.md#rule-4-executors-refuse-late-and-outdated-calls";
    PluginRefuses: "The plugin answers with a permanent error.", "inspect.md#the-storage-refuses";
    CallFails: "Berth fails to make a call, and no plugin answered it.", "errors.md";
    PluginRetries: "The plugin answers with an error that it calls temporary.",
        "inspect.md#the-storage-refuses";
    NoRoom: "The plugin has no room for the volume.", "inspect.md#no-room";
    CreationInDoubt:
        "The plugin refuses to create a volume or snapshot that an earlier call may have made.",
        "volumes.md#when-it-fails";
    ChangeRefused: "The storage refused a change of the volume, or a snapshot, for good.",
        "volumes.md#the-storage-refused";
    HeldByOthers: "Other claims hold the volume, or come first in the queue.", "inspect.md#in-line";
    PlacementRefuses: "No node may host the volume now.",
        "plugins.md#node-ids-volume-ids-and-topology";
    MountFails: "The node could not mount the volume.", "inspect.md#the-mount-hangs-or-fails";
    MountHangs: "The mount does not answer.", "inspect.md#the-mount-hangs-or-fails";
    MountDead:
        "The mount exists and is useless: it fails, or shows another disk or a deleted directory.",
        "node.md#a-mount-is-missing-or-dead";
    MountMissing: "The mount is gone.", "node.md#a-mount-is-missing-or-dead";
    StorageDegraded: "The plugin says that its storage is degraded, seen from a node.",
        "inspect.md#the-storage-is-not-well";
    VolumeUnwell: "The volume is mounted, and its plugin says that it is not well.", "node.md";
    NobodyWorks: "No volumewatcher makes the calls of the release.", "inspect.md#no-worker";
    Refused: "The last claim could not be granted.", "inspect.md#a-run-was-refused";
    NotAskedFor: "No program asks the node of the alloc to mount the volume.", "node.md#ask";
    UnderWay: "A step is running, or due within moments.", "inspect.md";
    Nothing: "Nothing is wrong.", "inspect.md";
}

/// The actor: who must act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// No action is needed: it continues by itself, by this time if one is known.
    Nobody {
        /// The next try, or the deadline of the present one.
        by: Option<Timestamp>,
    },
    /// The operator of the plugin and its storage.
    PluginOperator(PluginId),
    /// The operator of Berth.
    You,
}

impl Actor {
    /// No action is needed, and no time is known.
    pub const NOBODY: Self = Self::Nobody { by: None };
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody { by: None } => f.write_str("nobody: it goes on by itself"),
            Self::Nobody { by: Some(by) } => {
                write!(f, "nobody: it goes on by itself, at the latest at {by}")
            }
            Self::PluginOperator(plugin) => write!(f, "the operator of plugin {plugin}"),
            Self::You => f.write_str("you"),
        }
    }
}
