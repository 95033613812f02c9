//! The value of a lease: its holder.
//!
//! That the key is there says that the lease is held; the value says by whom, for people, and for
//! an agent that finds its node's lease held and must know whether by itself.

use berth_domain::{NodeId, OwnerId, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

/// The agent that holds its node's lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The node.
    pub node: NodeId,
    /// Which agent: the id of its state directory.
    pub agent: String,
    /// The host's name.
    #[serde(default)]
    pub hostname: String,
    /// The boot of the host: of a state directory that was copied, two agents bear the id.
    #[serde(default)]
    pub boot_id: String,
    /// The process.
    pub pid: u32,
    /// Since when it runs.
    pub since: Timestamp,
}

/// The value of a node's lease: its holder, and which of the holder's requests wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLeaseRecord {
    /// The agent.
    #[serde(flatten)]
    pub holder: Holder,
    /// The number of the request among those of its process. A request with a lower number is late:
    /// written over this one, it would shorten the lease. Absent from an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<u64>,
}

/// The one replica of a service that acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Which one: service, host and process.
    pub holder: WorkerId,
    /// Since when it asked for the lease.
    pub since: Timestamp,
}

/// The process that holds the lease of an owner of allocs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerHolder {
    /// The owner.
    pub owner: OwnerId,
    /// Who asked for it: a kind and a name, `user.anna`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Which process, as it calls itself.
    pub holder: String,
    /// Since when it holds the lease.
    pub since: Timestamp,
}
