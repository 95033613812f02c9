//! The life of a volume at its storage: creation, growth, snapshots, deletion.
//!
//! **Owns** the calls that change the storage itself, with the volume or a snapshot as their owner.
//! `docs/claims.md` states the rules (19 to 24).
//!
//! ```text
//!             create                             delete (no claims)
//!   (none) ─────────▶ creating ── done ──▶ ready ───────▶ deleting ── done ──▶ (key deleted)
//!                       │   ▲               │ ▲
//!    refused for certain│   │unknown: retry │ └── expanding, modifying (claims may stand)
//!                       ▼
//!                     failed ── delete ──▶ (key deleted)
//! ```
//!
//! **Promises**
//! - that a call is recorded before it is made, and that one controller call of a volume is in
//!   flight, of the volume, a claim or a snapshot (rules 2 and 3);
//! - that what may exist at the storage stays on a record: a creation whose answer was lost is
//!   repeated until it is answered, also if the volume is to be deleted;
//! - that nothing is deleted which a claim, an unfinished snapshot or an unfinished copy uses.
//!
//! **Never** takes silence or a later refusal as proof that an earlier call did nothing.

mod life;
mod operation;
mod operation_calls;
mod progress;
mod provision;
mod request;
mod snapshot;
mod snapshot_calls;

pub use operation::{Expansion, Operation, OperationKind, Work};
pub use operation_calls::NextStorageCall;
pub use progress::StorageProgress;
pub use provision::{Origin, OriginKind, Provision, Reclaim, Topology};
pub use snapshot::{Snapshot, SnapshotGroup, SnapshotState, SnapshotWish};

pub(super) use operation_calls::{answer_operation, begin_operation};
pub(super) use request::{ExpansionWish, create, delete, expand, modify};
pub(super) use snapshot_calls::{
    adopt_snapshot, answer_snapshot, begin_snapshot, cut, delete_snapshot,
};

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::command::Context;
use super::failure::CallFailure;
use super::spec::VolumeSpec;
use crate::{NodeId, Timestamp};

/// What Berth did to the volume at its storage, and is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StorageLife {
    /// The change under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// The size that the last expansion required, in bytes. The plugin may have made it larger: the
    /// same request again changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expanded_for: Option<u64>,
    /// The last change that was refused, until another succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<StorageFailure>,
    /// What the plugin did otherwise than CSI wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Whether the volume is at the storage, and cannot be used: only its deletion is left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unusable: bool,
    /// How Berth created the volume. None for a volume that was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<Provision>,
    /// The mutable parameters in effect (`ControllerModifyVolume`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable: BTreeMap<String, String>,
    /// The node whose controller created the volume, if no other was to be called; of a volume that
    /// was registered, the node whose controller alone knew it. While its agent reports that
    /// controller, no other one is called: what nodes report later of where they are changes
    /// nothing of who knows the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<NodeId>,
}

/// A change of the storage that was refused for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFailure {
    /// What was refused.
    pub operation: OperationKind,
    /// When.
    pub at: Timestamp,
    /// Why.
    #[serde(flatten)]
    pub failure: CallFailure,
}

/// How far a volume's life at its storage has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is created when the first claim says where (`first-use`).
    Unused,
    /// It is being created.
    Creating,
    /// It was not created: the plugin refused, and nothing is at the storage. Or the plugin says
    /// that it created it, with an answer that Berth cannot use: the volume is to be deleted, or
    /// its id is not known.
    Failed,
    /// It can be claimed.
    Ready,
    /// It is being deleted.
    Deleting,
}

impl Stage {
    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unused => "unused",
            Self::Creating => "creating",
            Self::Failed => "failed",
            Self::Ready => "ready",
            Self::Deleting => "deleting",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl VolumeSpec {
    /// The change of the volume at its storage that is under way.
    pub fn operation(&self) -> Option<&Operation> {
        self.storage.as_ref()?.operation.as_ref()
    }

    /// How Berth created the volume.
    pub fn provision(&self) -> Option<&Provision> {
        self.storage.as_ref()?.provision.as_ref()
    }

    /// What the plugin did otherwise than CSI wants. A failed volume without an id that has one may
    /// be left at the storage.
    pub fn faults(&self) -> &[String] {
        self.storage.as_ref().map_or(&[], |storage| &storage.faults)
    }

    /// The last change of the storage that was refused.
    pub fn failure(&self) -> Option<&StorageFailure> {
        self.storage.as_ref()?.failure.as_ref()
    }

    /// Where it can be reached, or will be: everywhere if empty. A plugin that names a place where
    /// the volume was not requested is asked where it was: no controller may be at the other place.
    pub fn reach(&self) -> &[Topology] {
        let Some(provision) = self.provision() else { return &self.topologies };
        let is_elsewhere = self.topologies.iter().any(|made| !provision.is_requested_at(made));
        if self.external_id.is_none() || is_elsewhere {
            &provision.requisite
        } else {
            &self.topologies
        }
    }

    /// How far its life at the storage has come.
    pub fn stage(&self) -> Stage {
        let Some(storage) = &self.storage else { return Stage::Ready };
        match storage.operation.as_ref().map(|operation| &operation.work) {
            Some(Work::Create { .. }) => return Stage::Creating,
            Some(Work::Delete { .. }) => return Stage::Deleting,
            Some(Work::Expand(_) | Work::Modify { .. }) | None => {}
        }
        match &storage.provision {
            Some(_) if storage.unusable => Stage::Failed,
            Some(_) if self.external_id.is_none() => match &storage.failure {
                Some(_) => Stage::Failed,
                None => Stage::Unused,
            },
            _ => Stage::Ready,
        }
    }

    /// This spec with another life at the storage. A life that says nothing is not stored, so that
    /// older versions can read the record.
    #[must_use]
    pub(super) fn living(&self, storage: StorageLife) -> Self {
        let says_something = storage != StorageLife::default();
        Self { storage: says_something.then(|| Box::new(storage)), ..self.clone() }
    }

    /// This spec with the creation that its first claim asks for, where that claim is.
    #[must_use]
    pub(super) fn created_at(&self, topology: &Topology, context: &Context) -> Self {
        let mut storage = self.life();
        if let Some(provision) = &mut storage.provision {
            provision.requisite =
                Some(topology.clone()).filter(|it| !it.is_empty()).into_iter().collect();
        }
        let work = Work::Create { doomed: false };
        storage.operation = Some(Operation::new(work, context.now));
        self.living(storage)
    }

    /// This spec with another home.
    #[must_use]
    pub fn at_home(&self, home: Option<NodeId>) -> Self {
        if self.home() == home.as_ref() {
            return self.clone();
        }
        self.living(StorageLife { home, ..self.life() })
    }

    /// The node whose controller alone knows the volume, as far as its creation or registration
    /// showed.
    pub fn home(&self) -> Option<&NodeId> {
        self.storage.as_ref()?.home.as_ref()
    }

    /// A copy of its life at the storage, to be changed.
    pub(super) fn life(&self) -> StorageLife {
        self.storage.as_deref().cloned().unwrap_or_default()
    }
}
