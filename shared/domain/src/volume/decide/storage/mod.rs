//! What comes next at the storage: creation, growth, snapshots, deletion.
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

mod next;
mod operation_calls;
mod request;
mod size_answer;
mod snapshot_calls;
mod table;

pub use next::NextStorageCall;

pub(super) use operation_calls::{answer_operation, begin_operation};
pub(super) use request::{ExpansionWish, create, delete, expand, modify};
pub(super) use snapshot_calls::{
    adopt_snapshot, answer_snapshot, begin_snapshot, cut, delete_snapshot,
};
