//! A volume and its claims: the heart of the product.
//!
//! A decision takes a [`Volume`], a [`Command`] and a [`Context`], and gives a [`Step`] or a
//! [`Refusal`]. `decide` uses these, `record` uses `storage`, and both use `call`: never the other
//! way.
//!
//! **Owns** the states of a claim, the commands that change a volume, and [`step()`], the one
//! function that decides them. `docs/claims.md` states the protocol rule by rule; rules are cited
//! by number.
//!
//! ```text
//!  ask ─┬─ rules not met, caller waits ──▶ waiting ─┐ no conflict ahead of it any more;
//!       ├────────────────◀──────────────────────────┘ or nobody asks again: (key deleted)
//!       ├─ no controller step ─────────────────────▶ taken
//!       └─ controller step ──▶ publishing ── done ──▶ taken
//!                                 │                     │ alloc ended, or released
//!                                 │ undone              ▼
//!                                 │                unpublishing    (retries stay here)
//!                                 │                     │ agent.detach done, or a proof
//!                                 └─────────────▶ node-detached    (retries stay here)
//!                                                       │ controller.unpublish done; none needed;
//!                                                       ▼ or another claim on the node will do it;
//!                                                         or an operator confirms (`confirm`)
//!                                                 (key deleted)
//! ```
//!
//! **Promises**
//! - one guarded write per step, then at most one call;
//! - that every prefix of a flow is a valid state;
//! - that a claim is freed only after a successful call, or a proof that the node is gone, or an
//!   operator's confirmation for a controller that cannot answer.
//!
//! **Why two writers cannot happen.** A workload writes through a mount; its agent mounts on a
//! grant only, and a grant is given for a claim that is taken (rule 10). So it is enough that:
//!
//! 1. *Claims that hold the volume conflict*: a claim is admitted only beside claims that it may
//!    share with. All claims hold the volume except waiting ones, even while they are released
//!    (`take::is_admitted`).
//! 2. *A claim stops holding the volume neither by a request nor by a timer.* A granted claim
//!    reaches `node-detached` by its node's answer (`answer`), or by a proof that the node is gone
//!    (`leave::by_proof`). Then nothing on the node has it mounted. `Step::free` lists the ways in
//!    which it is freed from there.
//! 3. *No earlier call acts later*: no call starts while another may still act (`Volume::busy`,
//!    `Volume::busy_on`), executors refuse calls after their deadline, and an outcome counts only
//!    for the attempt on the record (`answer`).
//! 4. *Each decision is made on the current volume*, or it is not written: the guard.
//!
//! [`invariant`] states the result for a record. `tests/model` removes these rules one by one and
//! shows the damage.
//!
//! **Never** stores what can be derived from the claims: who holds the volume, where it is
//! attached, and in which mode. [`Claims`] updates these with each claim, so that the
//! ten-thousandth is decided as quickly as the first.

mod call;
mod command;
mod context;
pub mod deadlock;
mod decide;
mod handle;
mod handle_use;
pub mod invariant;
mod mounted;
mod outcome;
mod record;
mod refusal;
pub mod storage;
mod transition;

pub use call::{
    Attempt, CallFailure, CallKind, CallOwner, ErrorCode, FailureFacts, HoldingProcess, Progress,
};
pub use command::{Begin, Command, LostClaim, NoRoute, Route, Take};
pub use context::{Context, Policy};
pub use decide::{BusyCall, Due, DueCall, DueFacts, NextStorageCall, SecretCall, step};
pub use handle::{Handle, HandleOwner};
pub use handle_use::{HandleUse, OtherClaim, name_in};
pub use mounted::{DoubtReason, MountDoubt, MountUse, UnaccountedMount};
pub use outcome::Outcome;
pub use record::{
    Claim, Claims, Closing, Iter, MountOptions, MountSummary, NodeMount, NodeMountState, State,
    Volume, VolumeSpec,
};
pub use refusal::{Holder, Holders, Refusal};
pub use storage::{CreatedVolume, CutSnapshot, StorageAnswer};
pub use transition::{Step, Write};
