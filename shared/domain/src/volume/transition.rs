//! What a decision changes: one guarded write, then at most one call.

use super::call::Attempt;
use super::record::{Claim, VolumeSpec};
use super::storage::Snapshot;
use crate::{AllocId, SnapshotId};

/// One transition: a guarded write, then at most one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// The write. None if the record already has this content.
    pub write: Option<Write>,
    /// The call to make once the write is stored: the attempt that the write names.
    pub call: Option<Attempt>,
}

/// A write of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Stores the spec.
    PutSpec(VolumeSpec),
    /// Deletes the spec, and with it the volume.
    DeleteSpec,
    /// Stores a claim.
    PutClaim(AllocId, Claim),
    /// Deletes a claim: it is freed.
    DeleteClaim(AllocId),
    /// Stores a snapshot.
    PutSnapshot(SnapshotId, Snapshot),
    /// Deletes a snapshot.
    DeleteSnapshot(SnapshotId),
}

impl Step {
    /// Nothing to write, nothing to call.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Stores the spec.
    pub(super) fn put_spec(spec: VolumeSpec) -> Self {
        Self { write: Some(Write::PutSpec(spec)), call: None }
    }

    /// Deletes the spec, and with it the volume.
    pub(super) fn delete_spec() -> Self {
        Self { write: Some(Write::DeleteSpec), call: None }
    }

    /// Stores the snapshot.
    pub(super) fn put_snapshot(id: &SnapshotId, snapshot: Snapshot) -> Self {
        Self { write: Some(Write::PutSnapshot(id.clone(), snapshot)), call: None }
    }

    /// Deletes the snapshot's record: nothing of it is at the storage.
    pub(super) fn drop_snapshot(id: &SnapshotId) -> Self {
        Self { write: Some(Write::DeleteSnapshot(id.clone())), call: None }
    }

    /// Stores the claim. With `call`, that call is made after the write.
    pub(super) fn put(alloc: &AllocId, claim: Claim, call: Option<Attempt>) -> Self {
        Self { write: Some(Write::PutClaim(alloc.clone(), claim)), call }
    }

    /// Frees the claim: it no longer conflicts with others. There are five places, each with its
    /// reason:
    ///
    /// - `release` and `begin`: the claim was waiting and held nothing.
    /// - `answer`: the controller unpublish succeeded.
    /// - `leave::controller`: the claim has left its node, and either the controller did not attach
    ///   it, or another claim there is sure to unpublish later.
    /// - `confirm`: the claim has left its node, and an operator confirms that it is detached.
    pub(super) fn free(alloc: &AllocId) -> Self {
        Self { write: Some(Write::DeleteClaim(alloc.clone())), call: None }
    }
}
