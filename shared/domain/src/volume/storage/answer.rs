//! What the storage answered to a call that succeeded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::provision::Topology;
use crate::Timestamp;

/// What the storage answered to a call that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageAnswer {
    /// The volume that was created.
    Volume(CreatedVolume),
    /// The size of the volume after an expansion.
    Capacity {
        /// The size, in bytes; 0 if the plugin does not say.
        bytes: u64,
        /// Whether each node that uses the volume has to expand it, too.
        node_expansion_required: bool,
    },
    /// The snapshot that was cut.
    Snapshot(CutSnapshot),
    /// The group of snapshots that was cut.
    Group {
        /// The plugin's id of the group.
        external_id: String,
        /// Whether volumes can be made of all of them.
        #[serde(default)]
        ready: bool,
        /// The snapshots.
        snapshots: Vec<CutSnapshot>,
    },
}

/// A volume as the plugin returned it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CreatedVolume {
    /// The plugin's id of it.
    pub external_id: String,
    /// Its size, in bytes; 0 if the plugin does not say.
    #[serde(default)]
    pub capacity_bytes: u64,
    /// The plugin's `volume_context`.
    #[serde(default)]
    pub context: BTreeMap<String, String>,
    /// Where it can be reached; everywhere if empty.
    #[serde(default)]
    pub topologies: Vec<Topology>,
    /// Whether the plugin says that it is a copy (`content_source`).
    #[serde(default)]
    pub is_copy: bool,
    /// What of the answer goes beyond the bounds of a record and was left out. Without it the
    /// volume cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
}

/// A snapshot as the plugin returned it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CutSnapshot {
    /// The plugin's id of it.
    pub external_id: String,
    /// The plugin's id of its volume.
    pub source: String,
    /// What a volume that is made of it needs, in bytes; 0 if the plugin does not say.
    #[serde(default)]
    pub size_bytes: u64,
    /// When it was cut.
    #[serde(default)]
    pub cut_at: Option<Timestamp>,
    /// Whether a volume can be made of it (`ready_to_use`).
    #[serde(default)]
    pub ready: bool,
    /// Where a volume that is made of it can be reached (`accessible_topology`). Empty if the
    /// plugin does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usable_from: Vec<Topology>,
}
