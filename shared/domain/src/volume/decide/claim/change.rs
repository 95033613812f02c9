//! An alloc that claims again in another mode: rule 25.
//!
//! **Promises** that a claim never changes in place. It is released by the steps of any release,
//! and the alloc takes a new one. So what an earlier grant allows has ended before the new claim is
//! granted, and the controller attaches the volume again.
//!
//! **Never** gives a claim up that a new one would not replace now, or under a mount.

use super::release::release;
use super::take::take_new;
use crate::volume::{Claim, Context, Refusal, State, Step, Take, Volume};

const REASON: &str = "the alloc claims it again in another mode";

/// Releases a claim that differs from what its alloc asks for now. `unmounted` is the epoch of the
/// claim of which the node's agent has nothing.
pub(in crate::volume) fn change(
    volume: &Volume,
    take: &Take,
    unmounted: Option<u64>,
    context: &Context,
) -> Result<Step, Refusal> {
    let differing = |own: &&Claim| own.is_wanted() && take.differs_from(own);
    let Some(own) = volume.claims.get(&take.alloc).filter(differing) else {
        return Ok(Step::nothing());
    };
    // It may have been granted, or be another one, since the agent was asked.
    let is_used = own.state == State::Taken && unmounted != Some(own.epoch);
    if is_used || own.node != take.node {
        return Err(Refusal::claim_differs(own));
    }
    // The service that reserved the claim may still wait for that call.
    let call = volume.busy(context.now, &context.policy).filter(|_| own.state == State::Publishing);
    if let Some(busy) = call {
        return Err(busy.refusal(own.progress.failure.clone()));
    }
    let spec = volume.spec.as_ref().ok_or(Refusal::NoSuchVolume)?;
    let mut others = volume.clone();
    others.claims.remove(&take.alloc);
    // What holds the volume is not given up for a place in line.
    let asked = Take { wait: take.wait && own.state == State::Waiting, ..take.clone() };
    take_new(&others, spec, &asked, None, context)?;
    release(volume, &take.alloc, Some(own.epoch), REASON, context)
}
