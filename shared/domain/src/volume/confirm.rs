//! A person's word in place of the controller's answer, for a plugin that cannot give it: one that
//! lost the volume, or does not know it any more. Rule 16.
//!
//! **Promises** that it counts only after the claim has left its node, so that nothing can write
//! there whatever the storage does; only after the plugin was asked and answered with an error, or
//! is not there to be asked; and never while a call may still act. One that is at an earlier call
//! for the volume, maybe a publish, is asked again first: what was detached when the person looked
//! would be attached when that call ends.

use super::Volume;
use super::claim::State;
use super::command::{Context, Step};
use super::refusal::Refusal;
use crate::AllocId;

/// Frees a claim of which a person says that the storage has detached it.
pub(super) fn confirm(
    volume: &Volume,
    alloc: &AllocId,
    epoch: u64,
    context: &Context,
) -> Result<Step, Refusal> {
    let claim = volume
        .claims
        .get(alloc)
        .filter(|claim| claim.epoch == epoch)
        .ok_or_else(|| Refusal::NoSuchClaim(alloc.clone()))?;
    let not_due = |next_try| Err(Refusal::NotDue { state: claim.state, next_try });
    // A call on the record may be at work, also past its deadline; the next try will tell.
    if claim.state != State::NodeDetached || !claim.denied || claim.attempt.is_some() {
        return not_due(claim.next_try);
    }
    match volume.busy(context.now, &context.policy) {
        Some((_, attempt)) => not_due(Some(attempt.ends().after(context.policy.clock_margin))),
        None => Ok(Step::free(alloc)),
    }
}
