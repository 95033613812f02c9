//! An alloc that claims again in another mode: rule 25.
//!
//! **Promises** that a claim never changes in place. It is released by the steps of any release,
//! and the alloc takes a new one. So what an earlier grant allows has ended before the new claim is
//! granted, and the controller attaches the volume anew.
//!
//! **Never** gives a claim up that a new one would not replace now, or under a mount.

use super::release::release;
use super::take::take_new;
use crate::volume::{Claim, Context, Refusal, State, Step, Take, Volume};

const REASON: &str = "the alloc claims it again in another mode";

/// Releases a claim that differs from what its alloc asks for now. `is_unmounted` says that the
/// node's agent has nothing of the volume for the alloc.
pub(in crate::volume) fn change(
    volume: &Volume,
    take: &Take,
    is_unmounted: bool,
    context: &Context,
) -> Result<Step, Refusal> {
    let differing = |own: &&Claim| own.is_wanted() && take.differs_from(own);
    let Some(own) = volume.claims.get(&take.alloc).filter(differing) else {
        return Ok(Step::nothing());
    };
    let is_used = own.state == State::Taken && !is_unmounted;
    if is_used || own.node != take.node {
        return Err(Refusal::claim_differs(own));
    }
    let spec = volume.spec.as_ref().ok_or(Refusal::NoSuchVolume)?;
    let mut others = volume.clone();
    others.claims.remove(&take.alloc);
    // What holds the volume is not given up for a place in line.
    let asked = Take { wait: take.wait && own.state == State::Waiting, ..take.clone() };
    take_new(&others, spec, &asked, None, context)?;
    release(volume, &take.alloc, Some(own.epoch), REASON, context)
}
