//! What volumes, snapshots and groups of snapshots are.
//!
//! Owns: the records that make them exist. Promises: values only; no secret of any request is among
//! them. Never: knows where a volume is in use; see [`super::state`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backing::{Backing, FsType};
use crate::topology::Segments;

/// What a volume is.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Meta {
    /// As CSI's calls name it; 1 to 256 bytes of any content.
    pub volume_id: String,
    /// Size in bytes; 0 where nobody said. Grows, never shrinks.
    #[serde(default)]
    pub capacity_bytes: i64,
    /// What every call about it has to bring along (CSI `Volume.volume_context`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_context: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub backing: Backing,
    /// The file system that an image was made with; `None` is a bare block device, or a directory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fs: Option<FsType>,
    /// Where it can be reached from; empty means anywhere.
    #[serde(default, skip_serializing_if = "is_default")]
    pub topology: Segments,
    /// The node that alone has it, where instances are bound to their nodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// How `CreateVolume` asked for it; `None` if it was provisioned beforehand.
    #[serde(default, skip_serializing_if = "is_default")]
    pub asked: Option<CreationRequest>,
}

/// What `CreateVolume` asked for, against which a repetition is held.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct CreationRequest {
    /// The CO's name of the volume.
    pub name: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub parameters: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// Where its first content came from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub source: Option<ContentSource>,
}

/// Where a volume's first content came from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentSource {
    /// The snapshot of this id.
    Snapshot(String),
    /// The volume of this id.
    Volume(String),
}

/// What a snapshot is. Written once, when its content is whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotMeta {
    /// As CSI's calls name it.
    pub snapshot_id: String,
    /// The CO's name of it; of a group's member, the group's.
    pub name: String,
    /// Of which volume.
    pub source_volume_id: String,
    /// The least size of a volume made from it.
    pub size_bytes: i64,
    /// When, in microseconds since 1970.
    pub created_us: u64,
    /// From when on it is ready to use, in microseconds since 1970.
    pub ready_us: u64,
    pub backing: Backing,
    /// The file system in its image.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fs: Option<FsType>,
    /// As the volume's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node: Option<String>,
    /// The group it was taken with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub group_id: Option<String>,
}

/// What a group of snapshots is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupMeta {
    /// As CSI's calls name it.
    pub group_id: String,
    /// When, in microseconds since 1970.
    pub created_us: u64,
    /// Its snapshots, by the volume each is of.
    pub members: BTreeMap<String, String>,
    /// False before the last member is there, and from before the first one goes: then it does not
    /// exist for anybody but the call that goes on with it.
    pub whole: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
