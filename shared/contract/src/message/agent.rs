//! The messages of the requests that a node's agent answers (`agent.*`).
//!
//! **Owns** mount, republish, unmount and status, and how a reply shows a mount, work under way and
//! a failure. `agent.detach` is a [`Call`](super::call::Call), and the requests about plugins are
//! in [`plugin`](super::plugin).
//!
//! **Never** carries a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use berth_domain::volume::{CallFailure, MountSummary};
use berth_domain::{AllocId, Namespace, NodeId, OwnerId, PluginId, Timestamp, VolumeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::access::AccessReport;
use crate::decode::{Decode, Decoder};
use crate::decode_struct;

/// `agent.mount`: claim a volume for an alloc of this node, and mount it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The alloc's namespace.
    pub namespace: Namespace,
    /// For whom.
    pub alloc: AllocId,
    /// Which of the volumes it asked for.
    pub volume: VolumeId,
    /// Get in line rather than be refused when others hold it.
    #[serde(default)]
    pub wait: bool,
    /// Under which of the names that it asked for it by, when it asked several times (E6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Where on the node the volume is to be seen besides: an absolute path of a directory that is
    /// empty, or of a file for a block device. It must be there, below the agent's `bind_below`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}
decode_struct!(Mount { namespace, alloc, volume, wait = false, alias, path });

/// `agent.mount` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Where the workload finds it, on the node: the path that was asked for, or the agent's own.
    pub path: String,
    /// Whether it can only read.
    pub read_only: bool,
    /// Which claim of the alloc.
    pub epoch: u64,
}

/// `agent.mount-all`: claim all volumes of an alloc of this node, and mount them.
///
/// The claims are taken in the order of the volumes' ids, whatever the alloc's order: two allocs
/// that want the same volumes never wait for each other. If one is refused, what this request has
/// taken is given up again, in reverse. Volumes that were mounted before stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountAll {
    /// The alloc's namespace.
    pub namespace: Namespace,
    /// For whom.
    pub alloc: AllocId,
    /// Get in line rather than be refused when others hold a volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
    /// Where volumes are to be seen besides, by the workload's names for them: as `path` of
    /// [`Mount`]. All of them are checked before the first claim is taken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, String>,
}
decode_struct!(MountAll { namespace, alloc, wait = false, paths });

/// `agent.mount-all` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedAll {
    /// Every volume that the alloc asked for, in the order of its requests.
    pub volumes: Vec<MountedVolume>,
}

/// One of the volumes of an alloc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedVolume {
    /// The workload's name for it.
    pub name: String,
    /// The volume.
    pub volume: VolumeId,
    /// Where the workload finds it, on the node.
    pub path: String,
    /// Whether it can only read.
    pub read_only: bool,
    /// Which claim of the alloc.
    pub epoch: u64,
}

/// `agent.guard`: names what runs an alloc on this node.
///
/// While it lives, the alloc's volumes stay where they are, also after the alloc is stopped. When
/// it has ended, the agent reports the end of the alloc. The agent ends nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetGuard {
    /// The alloc's namespace.
    pub namespace: Namespace,
    /// The alloc: live, and placed on this node.
    pub alloc: AllocId,
    /// As which owner. Only the owner of an alloc guards it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// What runs it.
    pub guard: Guard,
}
decode_struct!(SetGuard { namespace, alloc, owner, guard });

/// What runs an alloc: exactly one of a process, a cgroup and a lock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guard {
    /// A process of the host, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// With `pid`: when it was started, field 22 of `/proc/PID/stat`. So another process that gets
    /// the id later is not taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// A cgroup of version 2, which lives while it has a process: the absolute path of its
    /// directory. It is how systemd units and containers are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// A file in the directory `runs` of [`AgentStatus`], which lives while a process has it locked
    /// (`flock`): its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
}

impl Decode for Guard {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let pid: Option<Option<u32>> = fields.field("pid");
        let start: Option<Option<u64>> = fields.field("start");
        let cgroup: Option<Option<String>> = fields.field("cgroup");
        let lock: Option<Option<String>> = fields.field("lock");
        fields.finish(&[]);
        let guard = Self { pid: pid?, start: start?, cgroup: cgroup?, lock: lock? };
        guard.fault().map(|fault| decoder.fault(fault)).is_none().then_some(guard)
    }
}

impl Guard {
    /// What is wrong with its form.
    fn fault(&self) -> Option<&'static str> {
        match self {
            Self { pid: Some(1..), start: Some(_), cgroup: None, lock: None } => None,
            Self { pid: None, start: None, cgroup: Some(path), lock: None } => {
                let is_plain = path.starts_with('/') && !path.split('/').any(|part| part == "..");
                (!is_plain).then_some("needs the absolute path of a cgroup's directory, without ..")
            }
            Self { pid: None, start: None, cgroup: None, lock: Some(name) } => {
                let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
                let extension = Path::new(name).extension();
                let is_run = extension.is_some_and(|one| one == "json" || one == "held");
                (!is_name || is_run).then_some(
                    "needs the name of a file, without a path, and not of an announced run",
                )
            }
            _ => Some("must name one thing: `pid` with `start`, or `cgroup`, or `lock`"),
        }
    }
}

/// For people.
impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { pid: Some(pid), .. } => write!(f, "process {pid}"),
            Self { cgroup: Some(path), .. } => write!(f, "cgroup {path}"),
            Self { lock: Some(name), .. } => write!(f, "lock {name}"),
            _ => f.write_str("nothing"),
        }
    }
}

/// `agent.guard` was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {}

/// `agent.status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentQuery {}
decode_struct!(AgentQuery {});

/// What an agent has and does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The node.
    pub node: NodeId,
    /// Which boot of the host this is, as the kernel says.
    #[serde(default)]
    pub boot_id: String,
    /// Since when this process of the agent runs.
    #[serde(default)]
    pub since: Timestamp,
    /// What its journal says is, or may be, mounted.
    pub mounts: Vec<MountStatus>,
    /// What is mounted below its directory though its journal does not know of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strays: Vec<String>,
    /// Its requests for mounts that are under way, of each alloc; none from an agent that does not
    /// tell. A volume of these may be mounted at any moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<MountRequests>>,
    /// What is under way for volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<WorkStatus>,
    /// Calls of the storage that are under way: for a volume itself, or for a snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<StorageCallStatus>,
    /// Answers of plugins that came after their callers had stopped waiting. The next call for the
    /// same name gets them; none is older than ten minutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<LateAnswer>,
    /// What did not succeed when it was tried last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureStatus>,
    /// The plugins whose controllers it serves now.
    pub controllers: Vec<PluginId>,
    /// Allocs whose end this agent notices, and what runs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<GuardStatus>,
    /// Where a command with volumes is announced that runs on this node, so that its volumes are
    /// released when its runner is killed; a directory on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    /// What its identity lacks; none if it lacks nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessReport>,
}

/// Requests for mounts of an alloc that have not been answered, or may be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRequests {
    /// The alloc's namespace.
    pub namespace: Namespace,
    /// The alloc.
    pub alloc: AllocId,
    /// The volume; absent for all of the alloc's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
    /// How many.
    pub count: usize,
}

/// What runs an alloc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardStatus {
    /// The alloc's namespace.
    pub namespace: Namespace,
    /// The alloc.
    pub alloc: AllocId,
    /// In words: `process 4711`, or `berth run`.
    pub guard: String,
    /// Whether it lives. What cannot be looked at counts as living.
    pub lives: bool,
    /// Why it cannot be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// One journalled use of a volume by an alloc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// Who uses it.
    pub alloc: AllocId,
    /// Which claim of the alloc.
    pub epoch: u64,
    /// Who mounts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// What the plugin calls the volume that is mounted; absent from an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The options that it is mounted with: the volume's and the request's. Empty from an older
    /// agent, and for what an older agent mounted.
    #[serde(flatten)]
    pub options: MountSummary,
    /// Where it is published.
    pub path: String,
    /// Whether the mount table shows it there.
    pub mounted: bool,
    /// Where it is staged; none when the plugin does not stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<String>,
    /// Whether the mount table shows it there. Many plugins mount nothing to stage a volume.
    #[serde(default)]
    pub staged: bool,
    /// How far it has got.
    #[serde(default)]
    pub state: MountState,
    /// Since when.
    #[serde(default)]
    pub since: Timestamp,
    /// Whether it was brought here before the host was booted last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier_boot: bool,
    /// How the mount is.
    #[serde(default)]
    pub health: MountHealth,
    /// What is wrong with it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// What of its options the plugin left out when it was published, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Since when it is so, as far as this process of the agent has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_since: Option<Timestamp>,
}

/// How far a use of a volume has got on its node, by the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountState {
    /// Begun: any of its plugin calls may have been made.
    Begun,
    /// Every call succeeded.
    Published,
    /// Told to go: any of the calls that take it down may have been made.
    Leaving,
    /// Something that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// How a mount is, looked at by the agent now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountHealth {
    /// It answers.
    Well,
    /// It is published, and the mount table does not show it.
    Missing,
    /// It is there, and everything that is asked of it fails.
    Dead,
    /// It is there, and does not answer.
    Hung,
    /// It was not looked at, or this version does not know the word.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Something that an agent does for a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkStatus {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// For whom.
    pub alloc: AllocId,
    /// Which claim of the alloc; none when it is for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// What, such as `agent.detach`.
    pub step: String,
    /// Since when.
    pub since: Timestamp,
    /// The plugin call that has not been answered yet, such as `NodeUnpublishVolume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpc: Option<String>,
    /// Since when that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpc_since: Option<Timestamp>,
    /// Whether it is past its deadline: its caller was told that it hangs.
    pub hung: bool,
}

/// A call of the storage that an agent makes, as an executor of volumewatchers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageCallStatus {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// The call, such as `controller.create`.
    pub step: String,
    /// When it began.
    pub since: Timestamp,
    /// Whether it is past its deadline: its caller was told that it hangs.
    pub hung: bool,
}

/// What a plugin created, and said after its caller had stopped waiting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateAnswer {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume, or the volume of the snapshot.
    pub volume: VolumeId,
    /// The call, such as `controller.create`.
    pub step: String,
    /// The plugin's name of what it created.
    pub name: String,
    /// When it answered.
    pub at: Timestamp,
}

/// Something that an agent tried for a volume, and that has not succeeded since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureStatus {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// For whom.
    pub alloc: AllocId,
    /// Which claim of the alloc; none when it is for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// What, such as `agent.detach`.
    pub step: String,
    /// How often in a row, by this process of the agent.
    pub tries: u32,
    /// When the first of them failed.
    #[serde(default)]
    pub since: Timestamp,
    /// Why the last try did not succeed.
    #[serde(flatten)]
    pub failure: CallFailure,
    /// When that was.
    pub at: Timestamp,
}

/// `agent.republish`: take a volume down for allocs of this node whose mount is dead, and bring it
/// back at the same paths. Their workloads must not hold the mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Republish {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// Only this alloc's mount. Absent means all mounts of the volume on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<AllocId>,
    /// Take mounts down that are well, too: what uses them loses them for a moment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}
decode_struct!(Republish { namespace, volume, alloc = None, force = false });

/// `agent.republish` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Republished {
    /// For whom, and where it is again.
    pub mounts: Vec<RepublishedMount>,
}

/// One mount that was brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepublishedMount {
    /// For whom.
    pub alloc: AllocId,
    /// Where it is published.
    pub path: String,
}

/// `agent.unmount`: take mounts of a volume down that no claim covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmount {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// The alloc that it was mounted for; none is every alloc without a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<AllocId>,
}
decode_struct!(Unmount { namespace, volume, alloc = None });

/// `agent.unmount` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmounted {
    /// What is not mounted any more.
    pub mounts: Vec<UnmountedMount>,
}

/// One mount that was taken down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmountedMount {
    /// The alloc that it was mounted for.
    pub alloc: AllocId,
    /// Where it was mounted.
    pub path: String,
}
