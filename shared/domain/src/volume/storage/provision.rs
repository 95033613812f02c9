//! How a volume is created: what the plugin is asked for, and what becomes of it afterwards.

use std::collections::BTreeMap;
use std::slice;

use serde::{Deserialize, Serialize};

use crate::topology::reaches;
use crate::volume::call::is_zero;
use crate::{AllocId, ClassId, NodeId, SnapshotId, Timestamp, VolumeId};

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
    /// The node where it is to be used, if its place is what is `requisite`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The place of the last claim that had it created, and what came of that (`first_use`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_claim: Option<Box<FirstClaim>>,
    /// Of a copy: what the plugin may leave to be expanded, and can expand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<CopyGrowth>,
    /// What it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The alloc for whose run it exists: afterwards it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_alloc: Option<AllocId>,
}

/// Places that may be refused one after the other without a wait. A plugin that refuses everywhere
/// is asked with backoff, however many claims are in as many places.
const PLACES_AT_ONCE: u32 = 8;

/// Where a claim had a volume created at its first use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstClaim {
    /// Where the claim's node is.
    pub at: Topology,
    /// Where another claim may have it created, if the plugin refuses here; anywhere if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<Topology>,
    /// How often the plugin refused in a row, here and elsewhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// Before then the plugin is not asked for this place again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
}

/// How a copy gets the size that it was requested with, where its plugin leaves that to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyGrowth {
    /// The size of the source, in bytes; 0 if it is not known.
    pub from_bytes: u64,
    /// Whether the plugin's controller expands volumes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_controller: bool,
    /// Whether the plugin expands volumes on nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_nodes: bool,
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
    /// Whether a volume that is accessible from these places is so from one where it was requested.
    /// A plugin may add others (CSI, `TopologyRequirement.requisite`). Either side may have
    /// segments that the other leaves out.
    pub fn is_met_by(&self, places: &[Topology]) -> bool {
        let agree = |asked: &Topology, place: &Topology| {
            reaches(slice::from_ref(place), asked) || reaches(slice::from_ref(asked), place)
        };
        let is_met = |asked| places.iter().any(|place| agree(asked, place));
        self.requisite.is_empty() || places.is_empty() || self.requisite.iter().any(is_met)
    }

    /// A claim is the first at this place: the plugin is asked for it.
    pub(in crate::volume) fn place(&mut self, at: &Topology) {
        let tries = self.first_claim.take().map_or(0, |before| before.tries);
        let asked = Some(at.clone()).filter(|at| !at.is_empty());
        let within = std::mem::replace(&mut self.requisite, asked.into_iter().collect());
        let first = FirstClaim { at: at.clone(), within, tries, next_try: None };
        self.first_claim = Some(Box::new(first));
    }

    /// The plugin refused the place of the first claim: the next claim says where.
    pub(in crate::volume) fn unplace(&mut self, next_try: impl FnOnce(u32) -> Timestamp) {
        let Some(first) = &mut self.first_claim else { return };
        self.requisite.clone_from(&first.within);
        first.tries = first.tries.saturating_add(1);
        first.next_try = Some(next_try(first.tries));
    }

    /// Until when the plugin is not asked for this place, because it refused this one, or one after
    /// the other.
    pub fn refused_until(&self, at: &Topology) -> Option<Timestamp> {
        let first = self.first_claim.as_ref()?;
        (first.at == *at || first.tries >= PLACES_AT_ONCE).then_some(first.next_try)?
    }

    /// The fields in which another request for the same volume differs, by name. The name for the
    /// plugin is new in each request. The topology of a first use is found later, and that of a
    /// node is not the request's.
    pub fn differing_fields(&self, other: &Self) -> Vec<&'static str> {
        let has_own_places = !self.first_use && self.node.is_none() && other.node.is_none();
        [
            ("size", self.required_bytes != other.required_bytes),
            ("limit", self.limit_bytes != other.limit_bytes),
            ("class", self.class != other.class),
            ("reclaim", self.reclaim != other.reclaim),
            ("topology_policy", self.first_use != other.first_use),
            ("topology", has_own_places && self.requisite != other.requisite),
            ("source", self.origin != other.origin),
            ("for_alloc", self.for_alloc != other.for_alloc),
        ]
        .into_iter()
        .filter_map(|(field, differs)| differs.then_some(field))
        .collect()
    }
}
