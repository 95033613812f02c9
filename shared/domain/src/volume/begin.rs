//! The next call of a release: rules 2, 3, 6, 9 and 14.

use super::attempt::{Attempt, CallKind};
use super::claim::{Claim, State};
use super::command::{Context, Step};
use super::refusal::Refusal;
use super::{Volume, release};
use crate::proof::Proven;
use crate::{AllocId, Timestamp, WorkerId};

/// What makes a call due, or not yet.
pub(super) struct Due<'a> {
    pub wanted: bool,
    pub early: bool,
    pub proven: Option<&'a Proven>,
}

/// Starts the next call for a claim that is to go, if it may start now.
pub(super) fn begin(
    volume: &Volume,
    alloc: &AllocId,
    worker: &WorkerId,
    due: &Due<'_>,
    context: &Context,
) -> Result<Step, Refusal> {
    let claim = volume.claims.get(alloc).ok_or_else(|| Refusal::NoSuchClaim(alloc.clone()))?;
    let not_due = |next_try| Refusal::NotDue { state: claim.state, next_try };
    let proven = due.proven.filter(|proven| is_of(proven, claim));
    let wanted = due.wanted && proven.is_none();
    if let (State::Taken | State::Unpublishing, Some(proven)) = (claim.state, proven) {
        return Ok(leave_node(volume, alloc, claim, proven, worker, context));
    }
    match claim.state {
        State::Waiting if wanted && context.now <= place_until(claim, context) => {
            Err(not_due(Some(place_until(claim, context))))
        }
        State::Waiting => Ok(Step::free(alloc)),
        State::Taken if wanted => Err(not_due(None)),
        State::Publishing => {
            let abandoned = abandoned_at(claim, context);
            if wanted && context.now <= abandoned {
                return Err(not_due(Some(abandoned)));
            }
            let reason = if wanted { "nobody came back for it" } else { ALLOC_ENDED };
            let undone = release::undo(claim, reason, context);
            Ok(leave_controller(volume, alloc, undone, Some(worker), context))
        }
        State::Taken => {
            let claim = Claim {
                reason: Some(ALLOC_ENDED.to_owned()),
                ..claim.clone().enter(State::Unpublishing, context.now)
            };
            // Also when the call has to wait: that it is being released is to be seen.
            Ok(detach(volume, alloc, claim, worker, context))
        }
        State::Unpublishing | State::NodeDetached => {
            if let Some(next_try) = claim.next_try
                && next_try > context.now
                && !due.early
            {
                return Err(not_due(Some(next_try)));
            }
            let step = if claim.state == State::Unpublishing {
                detach(volume, alloc, claim.clone(), worker, context)
            } else {
                leave_controller(volume, alloc, claim.clone(), Some(worker), context)
            };
            if step.write == Step::put(alloc, claim.clone(), None).write {
                // Nothing may start yet: an attempt of this claim or of another may still act.
                let until = volume
                    .busy(context.now, &context.policy)
                    .map(|(_, attempt)| attempt.deadline.after(context.policy.clock_margin));
                return Err(not_due(until));
            }
            Ok(step)
        }
    }
}

/// Why most claims go.
const ALLOC_ENDED: &str = "the alloc has ended";

/// When a reservation counts as given up by its caller, who would have asked again by then.
fn abandoned_at(claim: &Claim, context: &Context) -> Timestamp {
    let deadline = claim.attempt.as_ref().map(|attempt| attempt.deadline);
    let last_sign = [deadline, claim.next_try].into_iter().flatten().fold(claim.since, Ord::max);
    last_sign.after(context.policy.clock_margin).after(context.policy.abandoned_after)
}

/// Until when a place in line is kept.
pub(super) fn place_until(claim: &Claim, context: &Context) -> Timestamp {
    claim.place_until.unwrap_or_else(|| claim.since.after(context.policy.place_kept))
}

/// A proof counts for the claim that was seen before it was read, and no other.
fn is_of(proven: &Proven, claim: &Claim) -> bool {
    proven.node == claim.node && proven.epoch == claim.epoch
}

/// Rule 12: a proof stands in for the node's answer. Whatever call of the node's is on the record,
/// nothing acts there any more.
fn leave_node(
    volume: &Volume,
    alloc: &AllocId,
    claim: &Claim,
    proven: &Proven,
    worker: &WorkerId,
    context: &Context,
) -> Step {
    let reason = claim.reason.clone().unwrap_or_else(|| format!("node {} is gone", proven.node));
    let detached = Claim {
        reason: Some(reason),
        proof: Some(proven.proof.clone()),
        ..claim.clone().enter(State::NodeDetached, context.now)
    };
    leave_controller(volume, alloc, detached, Some(worker), context)
}

/// Unpublishing: the node's agent is called, if no call that may still act forbids it (rule 3).
fn detach(
    volume: &Volume,
    alloc: &AllocId,
    claim: Claim,
    worker: &WorkerId,
    context: &Context,
) -> Step {
    if volume.busy_on(&claim.node, context.now, &context.policy).is_some() {
        return Step::put(alloc, claim, None);
    }
    let attempt = new_attempt(CallKind::NodeDetach, worker, context);
    let claim = Claim { attempt: Some(attempt.clone()), ..claim };
    Step::put(alloc, claim, Some(attempt))
}

/// Node-detached: freed when no controller call is needed or another claim is sure to make it;
/// else the controller is called, if somebody is there to call it and rule 3 allows it now.
pub(super) fn leave_controller(
    volume: &Volume,
    alloc: &AllocId,
    claim: Claim,
    worker: Option<&WorkerId>,
    context: &Context,
) -> Step {
    let own_may_act = claim
        .attempt
        .as_ref()
        .is_some_and(|attempt| attempt.may_still_act(context.now, context.policy.clock_margin));
    if own_may_act {
        return Step::put(alloc, claim, None);
    }
    if !claim.controller || volume.others_on(&claim.node, alloc).any(will_unpublish) {
        return Step::free(alloc);
    }
    let busy_elsewhere = volume
        .live_attempts(context.now, &context.policy)
        // The claim as it is to be, not as it was: its own answered attempt is no obstacle.
        .any(|(other, _, _)| other != alloc);
    match worker {
        Some(worker) if !busy_elsewhere => {
            let attempt = new_attempt(CallKind::ControllerUnpublish, worker, context);
            let claim = Claim { attempt: Some(attempt.clone()), ..claim };
            Step::put(alloc, claim, Some(attempt))
        }
        _ => Step::put(alloc, claim, None),
    }
}

/// Rule 9: whether a claim on the same node is sure to make a *fresh* controller unpublish later.
/// One whose own unpublish is under way or uncertain is not: between its call and its late answer,
/// a third claim may have attached the node again.
fn will_unpublish(other: &Claim) -> bool {
    other.controller
        && match other.state {
            State::Waiting => false,
            State::Publishing | State::Taken | State::Unpublishing => true,
            State::NodeDetached => other.attempt.is_none(),
        }
}

pub(super) fn new_attempt(call: CallKind, worker: &WorkerId, context: &Context) -> Attempt {
    Attempt {
        id: context.attempt.clone(),
        call,
        worker: worker.clone(),
        deadline: context.now.after(context.policy.call_timeout),
    }
}
