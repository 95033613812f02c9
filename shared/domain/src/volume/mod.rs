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
//!                                                         or a person's word (`confirm`)
//!                                                 (key deleted)
//! ```
//!
//! **Promises** one guarded write per step, then at most one call; that every prefix of a flow is a
//! valid state; that nothing is freed but by a call that succeeded, or in its place by a proof that
//! the node is gone, or a person's word for a controller that cannot answer.
//!
//! **Why two writers cannot happen.** A workload writes through a mount; its agent mounts on a
//! grant only, and a grant is given for a claim that is taken (rule 10). So it is enough that:
//!
//! 1. *Whoever holds the volume is in the way*: a claim is admitted only beside those it may share
//!    with, and holding are all but those in line, also while they leave (`take::is_admitted`).
//! 2. *Nobody stops holding it by saying so, or by a timer*: a granted claim gets to node-detached
//!    by its node's own word (`answer`), or by a proof that the node is gone (`leave::by_proof`).
//!    From there it is freed by an unpublish that succeeded, or without one where the controller
//!    did not attach it, or another claim under the node's external id is sure to make that call
//!    (`leave::controller`), or a person answers for it (`confirm`): nothing on the node has it
//!    mounted by then. `Step::free` names all places.
//! 3. *Nothing of the past acts later*: no call begins while another may still act
//!    (`Volume::busy`, `Volume::busy_on`), executors refuse what is past its deadline, and an
//!    answer counts for the attempt on the record only (`answer`).
//! 4. *Each of these is decided on the volume as it is*, or not written: the guard.
//!
//! [`invariant`] says what that adds up to on the record; `tests/model` takes these away one by one
//! and shows the damage.
//!
//! **Never** stores what can be derived: who holds the volume, where it is attached and in which
//! mode are folds over the claims. [`Claims`] keeps them current while claims come and go, so that
//! the ten-thousandth is decided as quickly as the first.

mod answer;
mod attempt;
mod begin;
mod claim;
mod claims;
mod command;
mod confirm;
mod external;
mod handle;
pub mod invariant;
mod leave;
mod node_mount;
mod refusal;
mod register;
mod release;
mod spec;
mod step;
mod summary;
mod take;

pub use attempt::{Attempt, CallKind};
pub use claim::{Claim, State};
pub use claims::{Claims, Iter};
pub use command::{Command, Context, NoRoute, Outcome, Policy, Route, Step, Take, Write};
pub use handle::{Handle, HandleOwner, HandleUse, OtherClaim, name_in};
pub use node_mount::{NodeMount, NodeMountState};
pub use refusal::{Holder, Holders, Refusal};
pub use spec::{Closing, MountOptions, VolumeSpec};
pub use step::step;

use crate::access::Capability;
use crate::{AllocId, NodeId, Timestamp};
use claims::Calls;

/// A volume as its subtree holds it: a spec, and a claim for each alloc that has one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Volume {
    /// None when it was never registered, or deregistered.
    pub spec: Option<VolumeSpec>,
    /// The claims, by alloc.
    pub claims: Claims,
}

impl Volume {
    /// Claims that hold the volume or may: all but those in line.
    pub fn holders(&self) -> impl Iterator<Item = (&AllocId, &Claim)> {
        self.claims.iter().filter(|(_, claim)| claim.is_held())
    }

    /// The capability in use, fixed by the first claim until the last is gone.
    pub fn in_use(&self) -> Option<Capability> {
        self.claims.in_use()
    }

    /// Rule 3 for controller calls: the claim whose call may still act, if any does.
    fn busy(&self, now: Timestamp, policy: &Policy) -> Option<(&AllocId, &Attempt)> {
        self.live(Calls::All, now, policy)
    }

    /// Rule 3 for node calls: a controller call anywhere, or a node call on this node.
    fn busy_on(
        &self,
        node: &NodeId,
        now: Timestamp,
        policy: &Policy,
    ) -> Option<(&AllocId, &Attempt)> {
        let controller = self.live(Calls::Controller, now, policy);
        controller.or_else(|| self.live(Calls::Node(node), now, policy))
    }

    /// The nodes of claims whose last controller call did not succeed: whoever made it then may be
    /// at it still, past every deadline. A claim's first call is not known to have ended badly.
    pub fn unsettled(&self, calling: &AllocId) -> impl Iterator<Item = &NodeId> {
        let unsettled = self.claims.moving().filter(move |(alloc, claim)| {
            let unheard = claim.attempt.as_ref().is_some_and(|last| last.call.is_controller());
            claim.controller
                && matches!(claim.state, State::Publishing | State::NodeDetached)
                && (claim.tries > 0 || (unheard && *alloc != calling))
        });
        unsettled.map(|(_, claim)| &claim.node)
    }

    /// The last of these calls that may still act: none may when the one with the latest deadline
    /// may not.
    fn live(&self, of: Calls<'_>, now: Timestamp, policy: &Policy) -> Option<(&AllocId, &Attempt)> {
        let (alloc, claim) = self.claims.get_key_value(self.claims.last_call(of)?)?;
        let attempt = claim.attempt.as_ref()?;
        attempt.may_still_act(now, policy.clock_margin).then_some((alloc, attempt))
    }
}
