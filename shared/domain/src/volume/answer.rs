//! What came of a call: rules 5, 6 and 9, safety rule 7.

use super::attempt::CallKind;
use super::claim::{Claim, State};
use super::command::{Context, Outcome, Step};
use super::refusal::Refusal;
use super::release::undo;
use super::{Volume, leave};
use crate::{AllocId, AttemptId, Timestamp, WorkerId};

/// Applies an answer to the claim whose attempt it is of; to any other it means nothing.
pub(super) fn answer(
    volume: &Volume,
    alloc: &AllocId,
    attempt: &AttemptId,
    outcome: &Outcome,
    worker: Option<&WorkerId>,
    context: &Context,
) -> Result<Step, Refusal> {
    use CallKind::{ControllerPublish, ControllerUnpublish, NodeDetach};
    let claim = volume.claims.get(alloc).ok_or(Refusal::StaleAttempt)?;
    let Some(current) = claim.attempt.as_ref().filter(|current| current.id == *attempt) else {
        return Err(Refusal::StaleAttempt);
    };
    let answered = Claim { attempt: None, ..claim.clone() };
    match (claim.state, current.call, outcome) {
        // An attempt begins without a next try, so one that is still ahead says that this was said
        // before.
        (_, _, Outcome::Unanswered(_)) if is_ahead(claim.next_try, context) => Ok(Step::nothing()),
        // A timeout is no answer: the attempt stays, and may still act until its deadline.
        (_, _, Outcome::Unanswered(error)) => {
            let claim = Claim { denied: false, ..claim.clone() };
            Ok(Step::put(alloc, failed(claim, error, context), None))
        }

        (State::Publishing, ControllerPublish, Outcome::Done { publish_context }) => {
            let taken = Claim {
                publish_context: publish_context.clone(),
                ..answered.enter(State::Taken, context.now)
            };
            Ok(Step::put(alloc, taken, None))
        }
        // Also a refused publish is undone by an unpublish that succeeds (rule 6).
        (State::Publishing, ControllerPublish, Outcome::Refused(error)) => {
            let refused = Claim { error: Some(error.clone()), ..answered };
            Ok(Step::put(alloc, undo(&refused, "the plugin refused it", context), None))
        }

        (State::Unpublishing, NodeDetach, Outcome::Done { .. }) => {
            let detached = answered.enter(State::NodeDetached, context.now);
            Ok(leave::controller(volume, alloc, detached, worker, context))
        }

        (State::NodeDetached, ControllerUnpublish, Outcome::Done { .. }) => Ok(Step::free(alloc)),
        // The publish of a reservation that was given up meanwhile: whatever came of it, it is no
        // longer under way, and the unpublish may follow. Where it was not even made, an earlier
        // one may be (safety rule 4), of a claim that is gone by now.
        (State::NodeDetached, ControllerPublish, _) => {
            let unasked = u32::from(matches!(outcome, Outcome::Unasked(_)));
            let answered = Claim { tries: answered.tries.saturating_add(unasked), ..answered };
            Ok(leave::controller(volume, alloc, answered, worker, context))
        }

        (
            State::Publishing | State::Unpublishing | State::NodeDetached,
            ControllerPublish | NodeDetach | ControllerUnpublish,
            Outcome::Failed(error)
            | Outcome::Refused(error)
            | Outcome::Exhausted(error)
            | Outcome::Unasked(error),
        ) => {
            let exhausted =
                claim.state == State::Publishing && matches!(outcome, Outcome::Exhausted(_));
            let denied =
                claim.state != State::Publishing && !matches!(outcome, Outcome::Unasked(_));
            // A person's word counts for one call of the node (rule 18).
            let unstaged_by =
                answered.unstaged_by.clone().filter(|_| claim.state != State::Unpublishing);
            let failed = failed(answered, error, context);
            let claim = Claim { exhausted, denied, unstaged_by, ..failed };
            Ok(Step::put(alloc, claim, None))
        }

        // No such attempt can be on such a claim (see `invariant`); an answer to it means nothing.
        (State::Waiting | State::Taken, ..)
        | (State::Publishing, NodeDetach | ControllerUnpublish, Outcome::Done { .. })
        | (State::Unpublishing, ControllerPublish | ControllerUnpublish, Outcome::Done { .. })
        | (State::NodeDetached, NodeDetach, Outcome::Done { .. }) => Err(Refusal::StaleAttempt),
    }
}

fn is_ahead(next_try: Option<Timestamp>, context: &Context) -> bool {
    next_try.is_some_and(|next_try| next_try > context.now)
}

/// The claim stays where it is; what went wrong and when it is tried again is on it.
fn failed(claim: Claim, error: &str, context: &Context) -> Claim {
    let tries = claim.tries.saturating_add(1);
    let wait = context.policy.retry.wait(tries, context.jitter);
    Claim { tries, error: Some(error.to_owned()), next_try: Some(context.now.after(wait)), ..claim }
}
