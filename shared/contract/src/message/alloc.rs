//! Allocs: registering, stopping, looking.

use berth_domain::alloc::{AllocState, VolumeRequest, VolumeType};
use berth_domain::volume::MountOptions;
use berth_domain::{AllocId, Namespace, NodeId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claim::ClaimStatus;
use crate::decode::{Decode, Decoder};
use crate::{decode_leaf, decode_struct};

/// `alloc.register`: a workload is placed on a node; again with the same content is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The alloc.
    pub id: AllocId,
    /// Where it is placed.
    pub node: NodeId,
    /// Which of several alike it is, from 0; needed by volumes that are `per_alloc` (A13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The volumes it asks for.
    #[serde(default)]
    pub volumes: Vec<VolumeRequest>,
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
decode_struct!(Register { id, node, index, volumes, note });

impl Decode for VolumeRequest {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let alias = decoder.field(&mut object, "alias");
        let kind: Option<Option<VolumeType>> = decoder.field(&mut object, "type");
        let source = decoder.field(&mut object, "source");
        let per_alloc: Option<Option<bool>> = decoder.field(&mut object, "per_alloc");
        let read_only: Option<Option<bool>> = decoder.field(&mut object, "read_only");
        let access = decoder.field(&mut object, "access");
        let attachment = decoder.field(&mut object, "attachment");
        let mount: Option<Option<MountOptions>> = decoder.field(&mut object, "mount");
        decoder.finish(&object, &REQUEST_FIELDS);
        Some(Self {
            alias: alias?,
            kind: kind?.unwrap_or_default(),
            source: source?,
            per_alloc: per_alloc?.unwrap_or_default(),
            read_only: read_only?.unwrap_or_default(),
            access: access?,
            attachment: attachment?,
            mount: mount?.unwrap_or_default(),
        })
    }
}

const REQUEST_FIELDS: [&str; 8] =
    ["alias", "type", "source", "per_alloc", "read_only", "access", "attachment", "mount"];

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
decode_leaf!(AllocState, VolumeType);
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
    /// Which of several alike it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
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
