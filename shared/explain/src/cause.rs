//! The kinds of causes, and who must act.

use std::fmt;

use berth_domain::{PluginId, Timestamp};
use serde::Serialize;

/// The kind of a cause, in order. While an earlier cause holds, no remedy for a later one helps, so
/// the earlier one hides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// nats-server cannot be reached, or has no leader.
    BusAway,
    /// A service of Berth does not answer.
    ServiceAway,
    /// The identity of a service lacks a right that the step needs, or the caller's one to read.
    RightMissing,
    /// A record cannot be read.
    RecordUnreadable,
    /// The server stores no writes.
    StoreFault,
    /// A clock is too far off for deadlines.
    ClockWrong,
    /// The same volume of the plugin is registered under another name.
    RegisteredTwice,
    /// Claims stand of a volume that is registered under this name no more.
    RegistrationLost,
    /// A mount that no claim covers.
    MountUnaccounted,
    /// An operator declared the node gone.
    NodeGone,
    /// The node's lease has ended.
    NodeDown,
    /// The node holds its lease, and its agent does not answer.
    AgentAway,
    /// No node of this id is on record.
    NodeUnknown,
    /// The agent cannot write its journal.
    JournalFault,
    /// The agent cannot see whether an alloc's guard or command lives.
    RunUnknown,
    /// Operations on the host do not return.
    HostHangs,
    /// The plugin gives two nodes one id.
    SharedNodeId,
    /// A file that names a plugin has faults.
    PluginFile,
    /// The plugin has no healthy instance where one is needed.
    PluginDown,
    /// The plugin took a call and does not answer.
    PluginHangs,
    /// Processes on the node use the volume.
    HeldByProcess,
    /// Something else is mounted where the volume was.
    ForeignMount,
    /// The volume is still mounted after the plugin's call, and no process is seen that uses it.
    MountLeft,
    /// An agent refused the request as older than another one (rule 4). The plugin was not called.
    RequestOutdated,
    /// The plugin answers with a permanent error.
    PluginRefuses,
    /// The plugin answers with an error that it calls temporary.
    PluginRetries,
    /// The plugin has no room for the volume.
    NoRoom,
    /// The plugin refuses to create a volume that an earlier call may have made.
    CreationInDoubt,
    /// The storage refused a change of the volume, or a snapshot, for good.
    ChangeRefused,
    /// Other claims hold the volume, or come first in the queue.
    HeldByOthers,
    /// No node may host the volume now.
    PlacementRefuses,
    /// The node could not mount the volume.
    MountFails,
    /// The mount does not answer.
    MountHangs,
    /// The mount exists and is useless: it fails, or shows another disk or a deleted directory.
    MountDead,
    /// The mount is gone.
    MountMissing,
    /// The volume is mounted, and its plugin says that it is not well.
    VolumeUnwell,
    /// No volumewatcher makes the calls of the release.
    NobodyWorks,
    /// The last claim could not be granted.
    Refused,
    /// A fact could not be read.
    NotAskedFor,
    /// A step is running, or due within moments.
    UnderWay,
    /// Nothing is wrong.
    Nothing,
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
