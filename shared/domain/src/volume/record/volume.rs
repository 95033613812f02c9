//! A volume and all that belongs to it.

use std::collections::BTreeMap;

use super::claim::Claim;
use super::claims::Claims;
use super::spec::VolumeSpec;
use crate::access::Capability;
use crate::volume::storage::Snapshot;
use crate::{AllocId, Interned, SnapshotId};

/// A volume as its subtree holds it: a spec, and a claim for each alloc that has one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Volume {
    /// None if the volume is not registered.
    pub spec: Option<VolumeSpec>,
    /// The claims, by alloc.
    pub claims: Claims,
    /// The snapshots. They may be there without a spec: they outlive the volume.
    pub snapshots: Interned<BTreeMap<SnapshotId, Box<Snapshot>>>,
}

impl Volume {
    /// Claims that hold the volume, or may: all but the waiting ones.
    pub fn holders(&self) -> impl Iterator<Item = (&AllocId, &Claim)> {
        self.claims.iter().filter(|(_, claim)| claim.is_held())
    }

    /// The capability in use, fixed by the first claim until the last is gone.
    pub fn in_use(&self) -> Option<Capability> {
        self.claims.in_use()
    }
}
