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
//!                                                       ▼ or another claim on the node will do it
//!                                                 (key deleted)
//! ```
//!
//! **Promises** one guarded write per step, then at most one call; that every prefix of a flow is a
//! valid state; that nothing is freed but by a call that succeeded, or in its place by a proof that
//! the node is gone.
//!
//! Why two writers cannot happen, in four places: a claim that conflicts with one in *any* state
//! but waiting is not admitted (`take`); a claim that was granted gets to node-detached by its
//! node's own word or by a proof only, and from there is deleted by a successful unpublish only, or
//! beside a claim that is sure to make one (`answer`, `leave`); no call begins while another may
//! still act (`Volume::busy`); and each of these is decided on the volume as it is, or not written
//! (the guard). [`invariant`] says what that adds up to.
//!
//! **Never** stores what can be derived: who holds the volume, where it is attached and in which
//! mode are folds over the claims.

mod answer;
mod attempt;
mod begin;
mod claim;
mod command;
pub mod invariant;
mod leave;
mod refusal;
mod register;
mod release;
mod spec;
mod step;
mod take;

use std::collections::BTreeMap;

pub use attempt::{Attempt, CallKind};
pub use claim::{Claim, State};
pub use command::{Command, Context, NoRoute, Outcome, Policy, Route, Step, Take, Write};
pub use refusal::{Holder, Refusal};
pub use spec::{Closing, MountOptions, VolumeSpec};
pub use step::step;

use crate::access::Capability;
use crate::{AllocId, NodeId, Timestamp};

/// A volume as its subtree holds it: a spec, and a claim for each alloc that has one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Volume {
    /// None when it was never registered, or deregistered.
    pub spec: Option<VolumeSpec>,
    /// The claims, by alloc.
    pub claims: BTreeMap<AllocId, Claim>,
}

impl Volume {
    /// Claims that hold the volume or may: all but those in line.
    pub fn holders(&self) -> impl Iterator<Item = (&AllocId, &Claim)> {
        self.claims.iter().filter(|(_, claim)| claim.state != State::Waiting)
    }

    /// The capability in use, fixed by the first claim until the last is gone.
    pub fn in_use(&self) -> Option<Capability> {
        self.holders().next().map(|(_, claim)| claim.capability())
    }

    /// All other claims on the node.
    fn others_on<'a>(
        &'a self,
        node: &'a NodeId,
        alloc: &'a AllocId,
    ) -> impl Iterator<Item = &'a Claim> {
        self.claims
            .iter()
            .filter(move |(other, claim)| *other != alloc && claim.node == *node)
            .map(|(_, claim)| claim)
    }

    /// Rule 3 for controller calls: the claim whose call may still act, if any does.
    fn busy(&self, now: Timestamp, policy: &Policy) -> Option<(&AllocId, &Attempt)> {
        self.live_attempts(now, policy).map(|(alloc, _, attempt)| (alloc, attempt)).next()
    }

    /// Rule 3 for node calls: a controller call anywhere, or a node call on this node.
    fn busy_on(
        &self,
        node: &NodeId,
        now: Timestamp,
        policy: &Policy,
    ) -> Option<(&AllocId, &Attempt)> {
        self.live_attempts(now, policy)
            .find(|(_, claim, attempt)| attempt.call.is_controller() || claim.node == *node)
            .map(|(alloc, _, attempt)| (alloc, attempt))
    }

    fn live_attempts(
        &self,
        now: Timestamp,
        policy: &Policy,
    ) -> impl Iterator<Item = (&AllocId, &Claim, &Attempt)> {
        let margin = policy.clock_margin;
        self.claims.iter().filter_map(move |(alloc, claim)| {
            let attempt = claim.attempt.as_ref()?;
            attempt.may_still_act(now, margin).then_some((alloc, claim, attempt))
        })
    }
}
