//! Allocs: registering, stopping, looking.

use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::volume::MountOptions;
use berth_domain::{AllocId, Namespace, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use super::claim::ClaimStatus;
use crate::{decode_leaf, decode_struct};

/// `alloc.register`: a workload is placed on a node; again with the same content is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The alloc.
    pub id: AllocId,
    /// Where it is placed.
    pub node: NodeId,
    /// The volumes it asks for.
    #[serde(default)]
    pub volumes: Vec<VolumeRequest>,
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
decode_struct!(Register { id, node, volumes, note });
decode_struct!(VolumeRequest {
    source,
    read_only = false,
    access,
    attachment,
    mount = MountOptions::default(),
});

/// `alloc.stop`: its workload has ended; from here on its claims are released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The alloc.
    pub id: AllocId,
    /// How it ended.
    #[serde(default = "stopped")]
    pub state: AllocState,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
decode_leaf!(AllocState);
decode_struct!(Stop { id, state = AllocState::Stopped, note });

fn stopped() -> AllocState {
    AllocState::Stopped
}

/// `alloc.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The alloc.
    pub id: AllocId,
}
decode_struct!(Status { id });

/// `alloc.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct List {
    /// Only allocs placed on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
}
decode_struct!(List { node });

/// An alloc with its claims: the answer to register, stop and status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocStatus {
    /// The alloc.
    pub id: AllocId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Where its run has got to.
    pub state: AllocState,
    /// Where it is placed.
    pub node: NodeId,
    /// Since when.
    pub since: Timestamp,
    /// What it is, or why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The volumes it asks for.
    #[serde(default)]
    pub volumes: Vec<VolumeRequest>,
    /// Its claims, as far as they are there.
    #[serde(default)]
    pub claims: Vec<ClaimStatus>,
}

/// `alloc.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocs {
    /// The allocs, by namespace and id.
    pub allocs: Vec<AllocStatus>,
}
