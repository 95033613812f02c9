//! A volume and its claims: the heart of the product.
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

mod answer;
mod attempt;
mod begin;
mod claim;
mod claims;
mod command;
mod confirm;
pub mod deadlock;
mod due;
mod external;
mod failure;
mod handle;
mod handle_use;
pub mod invariant;
mod leave;
mod mounted;
mod node_mount;
mod owner;
mod progress;
mod recover;
mod refusal;
mod register;
mod release;
mod secrets_due;
mod spec;
mod step;
pub mod storage;
mod summary;
mod take;

pub use attempt::{Attempt, CallKind};
pub use claim::{Claim, State};
pub use claims::{Claims, Iter};
pub use command::{
    Begin, Command, Context, CreatedVolume, CutSnapshot, LostClaim, NoRoute, Outcome, Policy,
    Route, Step, StorageAnswer, Take, Write,
};
pub use due::{Due, DueCall, DueFacts};
pub use failure::{CallFailure, ErrorCode, FailureFacts, HoldingProcess};
pub use handle::{Handle, HandleOwner};
pub use handle_use::{HandleUse, OtherClaim, name_in};
pub use mounted::{DoubtReason, MountDoubt, MountUse, UnaccountedMount};
pub use node_mount::{NodeMount, NodeMountState};
pub use owner::CallOwner;
pub use progress::Progress;
pub use refusal::{Holder, Holders, Refusal};
pub use secrets_due::SecretCall;
pub use spec::{Closing, MountOptions, VolumeSpec};
pub use step::step;

use crate::access::Capability;
use crate::{AllocId, NodeId, SnapshotId, Timestamp};
use claims::Calls;
use std::collections::BTreeMap;
use storage::{Expansion, Snapshot, Work};

/// A volume as its subtree holds it: a spec, and a claim for each alloc that has one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Volume {
    /// None if the volume is not registered.
    pub spec: Option<VolumeSpec>,
    /// The claims, by alloc.
    pub claims: Claims,
    /// The snapshots. They may be there without a spec: they outlive the volume.
    pub snapshots: BTreeMap<SnapshotId, Box<Snapshot>>,
}

impl Volume {
    /// Claims that hold the volume, or may: all but the waiting ones.
    pub fn holders(&self) -> impl Iterator<Item = (&AllocId, &Claim)> {
        self.claims.iter().filter(|(_, claim)| claim.is_held())
    }

    /// The refusal to use the volume's name while claims of another volume stand below it, whose
    /// registration was lost.
    fn other_volumes_claims(&self, context: &Context) -> Refusal {
        let own = context.handle.own.as_ref();
        let of_others = self.holders().filter(|(_, claim)| claim.is_of_other_than(own));
        Refusal::OtherVolumesClaims { holders: of_others.collect() }
    }

    /// The capability in use, fixed by the first claim until the last is gone.
    pub fn in_use(&self) -> Option<Capability> {
        self.claims.in_use()
    }

    /// Rule 3 for controller calls: a call of the volume that may still act.
    fn busy(&self, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let of_claim = self.live(Calls::All, now, policy);
        of_claim.or_else(|| self.busy_at_storage(now, policy))
    }

    /// The call of the volume's operation or of a snapshot, if it may still act.
    pub fn busy_at_storage(&self, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let calls = self.storage_progress();
        let busy =
            calls.filter_map(|(owner, calls)| BusyCall::find_live(owner, calls, now, policy));
        busy.max_by_key(|busy| busy.until)
    }

    /// The calls of the volume's operation, and of each snapshot that needs one.
    fn storage_progress(&self) -> impl Iterator<Item = (CallOwner, &Progress)> {
        let operation = self.spec.as_ref().and_then(VolumeSpec::operation);
        let operation = operation.map(|operation| (CallOwner::Volume, &operation.progress.calls));
        let snapshots = self.snapshots.iter().filter(|(_, snapshot)| snapshot.call().is_some());
        operation
            .into_iter()
            .chain(snapshots.map(|(id, it)| (CallOwner::Snapshot(id.clone()), &it.progress.calls)))
    }

    /// The controller's call of an expansion that must not be beside a claim, if it may still act.
    fn expands_offline(&self, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let operation = self.spec.as_ref().and_then(VolumeSpec::operation)?;
        let Work::Expand(Expansion { offline: true, at_nodes: false, .. }) = &operation.work else {
            return None;
        };
        self.busy_operation(now, policy)
    }

    /// The call of the volume's operation, if it may still act.
    fn busy_operation(&self, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let operation = self.spec.as_ref().and_then(VolumeSpec::operation)?;
        BusyCall::find_live(CallOwner::Volume, &operation.progress.calls, now, policy)
    }

    /// Whether a controller call of the volume's operation or of a snapshot, other than the one of
    /// `calling`, did not succeed. Its executor may still work on it, after every deadline.
    pub fn is_storage_unsettled(&self, calling: &CallOwner) -> bool {
        self.storage_progress()
            .any(|(owner, calls)| calls.tries > 0 || (calls.attempt.is_some() && owner != *calling))
    }

    /// Rule 3 for node calls: a controller call anywhere, or a node call on this node.
    fn busy_on(&self, node: &NodeId, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let expands_here = |busy: &BusyCall| {
            let operation = self.spec.as_ref().and_then(VolumeSpec::operation);
            let work = operation.map(|operation| &operation.work);
            busy.call.is_controller()
                || matches!(work, Some(Work::Expand(expansion))
                    if expansion.node.as_ref() == Some(node))
        };
        let controller = self.live(Calls::Controller, now, policy);
        controller
            .or_else(|| self.live(Calls::Node(node), now, policy))
            .or_else(|| self.busy_at_storage(now, policy).filter(expands_here))
    }

    /// The nodes of claims whose last controller call did not succeed. The executor of that call
    /// may still work on it, after every deadline.
    pub fn unsettled(&self, calling: &CallOwner) -> impl Iterator<Item = &NodeId> {
        let unsettled = self.claims.moving().filter(move |(alloc, claim)| {
            let unheard =
                claim.progress.attempt.as_ref().is_some_and(|last| last.call.is_controller());
            let own = matches!(calling, CallOwner::Claim(calling) if calling == *alloc);
            claim.controller
                && matches!(claim.state, State::Publishing | State::NodeDetached)
                && (claim.progress.tries > 0 || (unheard && !own))
        });
        unsettled.map(|(_, claim)| &claim.node)
    }

    /// The call with the latest deadline, if it may still act. If it may not, none of them may.
    fn live(&self, of: Calls<'_>, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let (alloc, claim) = self.claims.get_key_value(self.claims.last_call(of)?)?;
        BusyCall::find_live(CallOwner::Claim(alloc.clone()), &claim.progress, now, policy)
    }
}

/// A call that may still act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyCall {
    /// Whose call it is.
    pub owner: CallOwner,
    /// The call.
    pub call: CallKind,
    /// When it can no longer act.
    pub until: Timestamp,
}

impl BusyCall {
    /// The last of these calls, if it may still act.
    fn find_live(
        owner: CallOwner,
        calls: &Progress,
        now: Timestamp,
        policy: &Policy,
    ) -> Option<Self> {
        let attempt = calls.attempt.as_ref()?;
        let until = attempt.free_at(policy.clock_margin);
        let acts = attempt.may_still_act(now, policy.clock_margin);
        acts.then_some(Self { owner, call: attempt.call, until })
    }

    /// The refusal of a call that would be beside this one.
    fn refusal(self, failure: Option<Box<CallFailure>>) -> Refusal {
        Refusal::Busy { owner: self.owner, call: self.call, until: self.until, failure }
    }
}
