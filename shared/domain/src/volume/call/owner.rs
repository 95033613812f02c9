//! Whose call an attempt makes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AllocId, SnapshotId};

/// The part of a volume that has an attempt on its record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallOwner {
    /// The claim of an alloc.
    Claim(AllocId),
    /// The volume itself: it is created, deleted, expanded or modified.
    Volume,
    /// A snapshot of the volume.
    Snapshot(SnapshotId),
}

impl CallOwner {
    /// The snapshot, or the volume itself.
    pub fn of_storage(snapshot: Option<SnapshotId>) -> Self {
        snapshot.map_or(Self::Volume, Self::Snapshot)
    }

    /// Whether its calls change the storage itself.
    pub const fn is_of_storage(&self) -> bool {
        !matches!(self, Self::Claim(_))
    }
}

impl fmt::Display for CallOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(alloc) => write!(f, "alloc {alloc}"),
            Self::Volume => f.write_str("the volume itself"),
            Self::Snapshot(snapshot) => write!(f, "snapshot {snapshot}"),
        }
    }
}
