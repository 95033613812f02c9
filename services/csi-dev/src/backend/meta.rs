//! What volumes, snapshots and groups of snapshots are.
//!
//! Owns: the records of volumes, snapshots and groups. Promises: has no logic; no secret of a
//! request is in them. Never: has the use of a volume; see [`super::state`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backing::{Backing, FsType};
use crate::topology::Segments;

/// What a volume is.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct VolumeMeta {
    /// The id in CSI calls: 1 to 256 bytes of any content.
    pub volume_id: String,
    /// In bytes; 0 if unknown. Never shrinks.
    #[serde(default)]
    pub capacity_bytes: i64,
    /// Every call must have this context (CSI `Volume.volume_context`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_context: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub backing: Backing,
    /// The file system of an image; `None` for a directory or a bare block device.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fs: Option<FsType>,
    /// The mutable parameters in effect.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// The segments of nodes that can use it; empty means any node.
    #[serde(default, skip_serializing_if = "is_default")]
    pub topology: Segments,
    /// With `--bound`, the only node that has it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node: Option<String>,
    /// The arguments of `CreateVolume`; `None` if the volume was provisioned.
    #[serde(default, skip_serializing_if = "is_default")]
    pub asked: Option<CreationRequest>,
}

/// The arguments of `CreateVolume`. A repeated call must have the same.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct CreationRequest {
    pub name: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub parameters: BTreeMap<String, String>,
    /// As requested; the volume may have been modified since.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mutable_parameters: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub source: Option<ContentSource>,
}

/// The source of a volume's first content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentSource {
    /// The id of a snapshot.
    Snapshot(String),
    /// The id of a volume.
    Volume(String),
}

/// A snapshot. Written once, when its content is complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotMeta {
    /// The id in CSI calls.
    pub snapshot_id: String,
    /// The name in the request; for a member of a group the name of the group.
    pub name: String,
    pub source_volume_id: String,
    /// The smallest size of a volume made from it, in bytes.
    pub size_bytes: i64,
    /// When it was taken, in microseconds since 1970.
    pub created_us: u64,
    /// When it becomes ready to use, in microseconds since 1970.
    pub ready_us: u64,
    pub backing: Backing,
    /// The file system in its image.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fs: Option<FsType>,
    /// The node of its volume.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node: Option<String>,
    /// The group that it was taken with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub group_id: Option<String>,
}

/// A group of snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupMeta {
    /// The id in CSI calls.
    pub group_id: String,
    /// When it was taken, in microseconds since 1970.
    pub created_us: u64,
    /// Snapshot ids by the id of the volume.
    pub members: BTreeMap<String, String>,
    /// Whether all members exist. While it is false, only the call that creates or deletes the
    /// group sees it.
    pub whole: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
