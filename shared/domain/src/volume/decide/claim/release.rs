//! Releasing a claim. The volumewatcher finds the released claim in the bucket and drives it from
//! there (rule 14).

use crate::AllocId;
use crate::volume::{Claim, Context, Progress, Refusal, State, Step, Volume};

/// Marks a claim as no longer wanted. Idempotent.
pub(in crate::volume) fn release(
    volume: &Volume,
    alloc: &AllocId,
    epoch: Option<u64>,
    reason: &str,
    context: &Context,
) -> Result<Step, Refusal> {
    let claim = volume
        .claims
        .get(alloc)
        // Another epoch is a later claim of the alloc: the claim that was meant is gone.
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

/// Undoes a reservation. Nothing was granted, so nothing is mounted, and the node is not asked.
///
/// - The attempt stays: the publish may still be under way. The unpublish waits for it (rule 3),
///   and other claims do not rely on this claim's unpublish (rule 9).
/// - That a try failed stays, as one try: the failed call may still act after its deadline (safety
///   rule 4). The backoff starts again.
pub(super) fn undo(claim: &Claim, reason: &str, context: &Context) -> Claim {
    let tries = claim.progress.tries.min(1);
    Claim {
        progress: Progress { tries, next_try: None, ..claim.progress.clone() },
        reason: Some(reason.to_owned()),
        ..claim.clone().enter(State::NodeDetached, context.now)
    }
}
