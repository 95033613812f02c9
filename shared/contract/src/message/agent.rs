//! What a node's agent is asked; `agent.detach` is a [`Call`](super::call::Call).

use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId};
use serde::{Deserialize, Serialize};

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

/// `agent.status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {}
decode_struct!(Status {});

/// What an agent has and does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The node.
    pub node: NodeId,
    /// What its journal says is, or may be, mounted.
    pub mounts: Vec<MountStatus>,
    /// The plugins whose controllers it serves now.
    pub controllers: Vec<PluginId>,
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
    /// Where it is published.
    pub path: String,
    /// Whether the mount table shows it there.
    pub mounted: bool,
}
