//! The outcome of a call is applied to its claim: rules 5, 6 and 9, safety rule 7.

use super::leave;
use super::release::undo;
use crate::volume::{CallKind, Claim, Context, Outcome, Refusal, State, Step, Volume};
use crate::{AllocId, AttemptId, WorkerId};

/// Applies an outcome to the claim, if the claim still has the attempt. Otherwise it is refused.
pub(in crate::volume) fn answer_claim(
    volume: &Volume,
    alloc: &AllocId,
    attempt: &AttemptId,
    outcome: &Outcome,
    worker: Option<&WorkerId>,
    context: &Context,
) -> Result<Step, Refusal> {
    use CallKind::{ControllerPublish, ControllerUnpublish, NodeDetach};
    let claim = volume.claims.get(alloc).ok_or(Refusal::StaleAttempt)?;
    let Some(current) = claim.progress.attempt.as_ref().filter(|current| current.id == *attempt)
    else {
        return Err(Refusal::StaleAttempt);
    };
    let mut answered = claim.clone();
    answered.progress.attempt = None;
    match (claim.state, current.call, outcome) {
        // An attempt starts without a next try. If there is one, this outcome was recorded before.
        (_, _, Outcome::Unanswered(_)) if claim.progress.ahead(context.now).is_some() => {
            Ok(Step::nothing())
        }
        // A timeout is no answer: the attempt stays, and may act until its deadline.
        (_, _, Outcome::Unanswered(failure)) => {
            let mut claim = Claim { denied: false, ..claim.clone() };
            claim.progress.fail(failure.clone(), context);
            Ok(Step::put(alloc, claim, None))
        }

        (State::Publishing, ControllerPublish, Outcome::Done { publish_context }) => {
            let taken = Claim {
                publish_context: publish_context.clone(),
                ..answered.enter(State::Taken, context.now)
            };
            Ok(Step::put(alloc, taken, None))
        }
        // A refused publish is undone by an unpublish, too (rule 6).
        (State::Publishing, ControllerPublish, Outcome::Refused(failure)) => {
            answered.progress.failure = Some(Box::new(failure.clone()));
            Ok(Step::put(alloc, undo(&answered, "the plugin refused it", context), None))
        }

        (State::Unpublishing, NodeDetach, Outcome::Done { .. }) => {
            let detached = answered.enter(State::NodeDetached, context.now);
            Ok(leave::controller(volume, alloc, detached, worker, context))
        }

        (State::NodeDetached, ControllerUnpublish, Outcome::Done { .. }) => Ok(Step::free(alloc)),
        // The publish of an abandoned reservation: with any outcome it is no longer under way, and
        // the unpublish may follow. If this publish was not made, an earlier one of a claim that is
        // gone may still act (safety rule 4).
        (State::NodeDetached, ControllerPublish, _) => {
            let unasked = u32::from(matches!(outcome, Outcome::Unasked(_)));
            answered.progress.tries = answered.progress.tries.saturating_add(unasked);
            Ok(leave::controller(volume, alloc, answered, worker, context))
        }

        (
            State::Publishing | State::Unpublishing | State::NodeDetached,
            ControllerPublish | NodeDetach | ControllerUnpublish,
            Outcome::Failed(failure)
            | Outcome::NotDone(failure)
            | Outcome::Refused(failure)
            | Outcome::Exhausted(failure)
            | Outcome::Unasked(failure),
        ) => {
            let exhausted =
                claim.state == State::Publishing && matches!(outcome, Outcome::Exhausted(_));
            let denied =
                claim.state != State::Publishing && !matches!(outcome, Outcome::Unasked(_));
            // An operator's confirmation counts for one call of the node (rule 18).
            let unstaged_by =
                answered.unstaged_by.clone().filter(|_| claim.state != State::Unpublishing);
            let mut claim = Claim { exhausted, denied, unstaged_by, ..answered };
            claim.progress.fail(failure.clone(), context);
            Ok(Step::put(alloc, claim, None))
        }

        // No claim in this state has such an attempt (see `invariant`).
        _ => Err(Refusal::StaleAttempt),
    }
}
