//! What the record says of a volume and its snapshots at the storage.
//!
//! **Owns** what is asked of the storage, what it answered, and how far that has come.
//! `docs/claims.md` states the rules (19 to 24).
//!
//! **Never** decides: what comes next at the storage is decided in [`step`](super::step()).

mod answer;
mod life;
mod operation;
mod progress;
mod provision;
mod snapshot;

pub use answer::{CreatedVolume, CutSnapshot, StorageAnswer};
pub use life::{Stage, StorageFailure, StorageLife};
pub use operation::{Expansion, Operation, OperationKind, Work};
pub use progress::StorageProgress;
pub use provision::{CopyGrowth, FirstClaim, Origin, OriginKind, Provision, Reclaim, Topology};
pub use snapshot::{Snapshot, SnapshotGroup, SnapshotState, SnapshotWish};
