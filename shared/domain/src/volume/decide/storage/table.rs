//! The life of a volume and of a snapshot at the storage, as two tables: what a call was for, what
//! came of it, and what the record is by that (rules 19, 20, 22 and 23).
//!
//! **Promises** that what may be at the storage stays on a record: a refusal ends nothing that an
//! earlier call may have done (`uncertain`).
//!
//! **Never** changes a record: `operation_calls` and `snapshot_calls` do.

use crate::volume::storage::{Snapshot, SnapshotState, StorageProgress, Work};
use crate::volume::{CallFailure, CreatedVolume, CutSnapshot, Outcome, StorageAnswer};

/// What the outcome of its call makes of a volume's operation.
pub(super) enum VolumeStage<'a> {
    /// The call was one of what the operation replaced: it says nothing of the operation.
    AsBefore,
    /// The volume is at the storage.
    Created(&'a CreatedVolume),
    /// Nothing is left at the storage: the record goes.
    Gone,
    /// The controller made it larger, and nodes may have to follow.
    Grown { bytes: u64, at_nodes: bool },
    /// A node that has it staged made it larger.
    GrownAtNode,
    /// A node refused to make it larger: another one is next.
    RefusedByNode(&'a CallFailure),
    /// It has the new parameters.
    Modified,
    /// Nothing is at the storage, and the next claim says where it is created.
    Unplaced(&'a CallFailure),
    /// The operation ends, and what it replaced goes on.
    Refused(&'a CallFailure),
    /// The call is tried again.
    Again,
}

/// What comes next in a volume's life at its storage.
/// `is_placed` says whether a first claim chose where it is created.
pub(super) fn next_of_volume<'a>(
    work: &Work,
    is_placed: bool,
    progress: &StorageProgress,
    outcome: &'a Outcome,
) -> VolumeStage<'a> {
    use Outcome::{Done, Exhausted, NotDone, Refused, Stored};
    use StorageAnswer::{Capacity, Volume};
    use VolumeStage as Next;
    use Work::{Create, Delete, Expand, Modify};
    let is_sure = !progress.uncertain;
    let at_nodes = matches!(work, Expand(expansion) if expansion.is_at_nodes());
    match (work, outcome) {
        _ if progress.inherited => Next::AsBefore,

        (Create { .. }, Stored(Volume(made))) => Next::Created(made),
        (Create { doomed: true }, Refused(_) | NotDone(_) | Exhausted(_)) if is_sure => Next::Gone,
        (Create { .. }, Refused(failure) | Exhausted(failure)) if is_sure && is_placed => {
            Next::Unplaced(failure)
        }
        (Create { .. }, Refused(failure)) if is_sure => Next::Refused(failure),

        (Delete { .. }, Done { .. } | Stored(_)) => Next::Gone,
        (Delete { .. }, Refused(failure)) if is_sure => Next::Refused(failure),

        (Expand(_), Done { .. } | Stored(_)) if at_nodes => Next::GrownAtNode,
        // Nothing of it was done, and no staging changes that.
        (Expand(expansion), Refused(failure))
            if expansion.is_impossible_for_nodes(failure.facts.grpc) =>
        {
            Next::Refused(failure)
        }
        (Expand(_), Refused(failure)) if at_nodes => Next::RefusedByNode(failure),
        (Expand(_), Stored(Capacity { bytes, node_expansion_required })) => {
            Next::Grown { bytes: *bytes, at_nodes: *node_expansion_required }
        }
        // A size or parameters that an earlier call may have set are no volume that is lost.
        (Expand(_) | Modify { .. }, Refused(failure)) => Next::Refused(failure),
        (Modify { .. }, Done { .. } | Stored(_)) => Next::Modified,

        _ => Next::Again,
    }
}

/// What the outcome of its call makes of a snapshot.
pub(super) enum SnapshotStage<'a> {
    /// The call was one of before its deletion: it says nothing of the deletion.
    AsBefore,
    /// It is at the storage, as the plugin says.
    Cut(CutSnapshot, &'a StorageAnswer),
    /// The plugin cut another one by the same name.
    CutAgain(CutSnapshot),
    /// The plugin answered with something else than was to be cut.
    Other,
    /// Nothing of it is at the storage: the record goes.
    Gone,
    /// The first of two that the plugin cut is deleted.
    FirstGone,
    /// It was not cut.
    Failed(&'a CallFailure),
    /// It is not deleted, and is what it was before.
    Kept(&'a CallFailure),
    /// The call is tried again.
    Again,
}

/// What comes next in a snapshot's life at its storage. `made` is what an answer says of it.
pub(super) fn next_of_snapshot<'a>(
    snapshot: &Snapshot,
    made: Option<CutSnapshot>,
    outcome: &'a Outcome,
) -> SnapshotStage<'a> {
    use Outcome::{Done, Exhausted, NotDone, Refused, Stored};
    use SnapshotStage as Next;
    use SnapshotState::{Creating, Cut, Deleting};
    let is_sure = !snapshot.progress.uncertain;
    let is_another = made.as_ref().is_some_and(|made| snapshot.is_another(made));
    match (snapshot.state, outcome, made) {
        // Also the answer to a poll that came before the deletion.
        (Cut | Deleting, _, Some(made)) if is_another => Next::CutAgain(made),
        _ if snapshot.progress.inherited => Next::AsBefore,

        (Creating | Cut, Stored(answer), Some(made)) => Next::Cut(made, answer),
        (Creating | Cut, Stored(_), None) => Next::Other,
        (Creating, Refused(_) | NotDone(_) | Exhausted(_), _) if snapshot.doomed && is_sure => {
            Next::Gone
        }
        (Creating, Refused(failure), _) if is_sure => Next::Failed(failure),

        (Deleting, Done { .. }, _) if snapshot.second_id.is_some() => Next::FirstGone,
        (Deleting, Done { .. }, _) => Next::Gone,
        (Deleting, Refused(failure), _) if is_sure => Next::Kept(failure),

        _ => Next::Again,
    }
}
