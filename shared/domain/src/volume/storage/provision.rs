//! How a volume is created: what the plugin is asked for, and what becomes of it afterwards.

use std::collections::BTreeMap;
use std::slice;

use serde::{Deserialize, Serialize};

use crate::topology::reaches;
use crate::{AllocId, ClassId, SnapshotId, Timestamp, VolumeId};

/// One topology: segments by key.
pub type Topology = BTreeMap<String, String>;

/// What Berth asked the plugin for, stored before the call (rule 19).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provision {
    /// The name for the plugin: CSI's key of idempotency. It is new for each volume, so that a
    /// volume that is created again does not get the data of its predecessor.
    pub name: String,
    /// When it was requested.
    pub requested: Timestamp,
    /// Who requested it, as the [actor](crate::owner) of the request: `docker.n1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The smallest size, in bytes; 0 if the plugin may choose.
    #[serde(default)]
    pub required_bytes: u64,
    /// The largest size, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// The class that it was made from. Changing the class does not change the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassId>,
    /// What becomes of the storage when the volume is no longer used.
    #[serde(default)]
    pub reclaim: Reclaim,
    /// Whether it is created when the first claim says where.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_use: bool,
    /// Where it may be created; anywhere if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requisite: Vec<Topology>,
    /// What it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The alloc for whose run it exists: afterwards it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_alloc: Option<AllocId>,
}

/// What becomes of a created volume that is no longer used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reclaim {
    /// It is deleted at the storage.
    #[default]
    Delete,
    /// It stays at the storage.
    Retain,
}

/// What a new volume is a copy of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The volume, or the volume of the snapshot.
    pub volume: VolumeId,
    /// The snapshot; none for a copy of the volume itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// The plugin's id of the volume or snapshot.
    pub external_id: String,
}

impl Origin {
    /// Whether it is a volume or a snapshot.
    pub const fn kind(&self) -> OriginKind {
        match self.snapshot {
            Some(_) => OriginKind::Snapshot,
            None => OriginKind::Volume,
        }
    }
}

/// Whether a copy is made of a volume or of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginKind {
    /// `VolumeContentSource.volume`.
    Volume,
    /// `VolumeContentSource.snapshot`.
    Snapshot,
}

impl Provision {
    /// Whether the volume was requested at this place. Either side may have segments that the other
    /// leaves out.
    pub fn is_requested_at(&self, place: &Topology) -> bool {
        let agrees = |asked: &Topology| {
            reaches(slice::from_ref(place), asked) || reaches(slice::from_ref(asked), place)
        };
        self.requisite.is_empty() || self.requisite.iter().any(agrees)
    }

    /// The fields in which another request for the same volume differs, by name. The name for the
    /// plugin is new in each request, and the topology of a first use is found later.
    pub fn differing_fields(&self, other: &Self) -> Vec<&'static str> {
        [
            ("size", self.required_bytes != other.required_bytes),
            ("limit", self.limit_bytes != other.limit_bytes),
            ("class", self.class != other.class),
            ("reclaim", self.reclaim != other.reclaim),
            ("topology_policy", self.first_use != other.first_use),
            ("topology", !self.first_use && self.requisite != other.requisite),
            ("source", self.origin != other.origin),
            ("for_alloc", self.for_alloc != other.for_alloc),
        ]
        .into_iter()
        .filter_map(|(field, differs)| differs.then_some(field))
        .collect()
    }
}
