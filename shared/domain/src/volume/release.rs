//! Giving a claim up: from here on it is work, found by looking (rule 14).

use super::Volume;
use super::claim::{Claim, State};
use super::command::{Context, Step};
use super::refusal::Refusal;
use crate::AllocId;

/// Marks a claim as no longer wanted. Doing it again is harmless.
pub(super) fn release(
    volume: &Volume,
    alloc: &AllocId,
    epoch: Option<u64>,
    reason: &str,
    context: &Context,
) -> Result<Step, Refusal> {
    let claim = volume
        .claims
        .get(alloc)
        // Another epoch is another claim: the one that was meant is gone already.
        .filter(|claim| epoch.is_none_or(|epoch| epoch == claim.epoch))
        .ok_or_else(|| Refusal::NoSuchClaim(alloc.clone()))?;
    match claim.state {
        State::Waiting => Ok(Step::free(alloc)),
        State::Publishing => Ok(Step::put(alloc, undo(claim, reason, context), None)),
        State::Taken => {
            let claim = Claim {
                reason: Some(reason.to_owned()),
                ..claim.clone().enter(State::Unpublishing, context.now)
            };
            Ok(Step::put(alloc, claim, None))
        }
        State::Unpublishing | State::NodeDetached => Ok(Step::nothing()),
    }
}

/// A reservation that is undone. Nothing was granted, so nothing can be mounted by it, and the node
/// is not asked. Its publish may still be under way: the attempt stays, and keeps the unpublish
/// waiting (rule 3) and others from relying on this claim (rule 9). That it failed before stays,
/// too: the call that did may be at work past every deadline (safety rule 4). How often does not:
/// the waits between tries begin anew.
pub(super) fn undo(claim: &Claim, reason: &str, context: &Context) -> Claim {
    Claim {
        attempt: claim.attempt.clone(),
        tries: claim.tries.min(1),
        error: claim.error.clone(),
        reason: Some(reason.to_owned()),
        ..claim.clone().enter(State::NodeDetached, context.now)
    }
}
