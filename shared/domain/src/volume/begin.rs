//! Whether the next call of a claim's release may start now: rules 6, 12 and 14. The calls are in
//! [`leave`](super::leave).

use super::claim::{Claim, State};
use super::command::{Begin, Context, Step, Write};
use super::refusal::Refusal;
use super::{Volume, leave, release};
use crate::proof::Proven;
use crate::{AllocId, Timestamp};

/// Starts the next call of a claim's release, if the claim is to be released and the call may start
/// now.
pub(super) fn begin_release(
    volume: &Volume,
    alloc: &AllocId,
    begin: &Begin,
    context: &Context,
) -> Result<Step, Refusal> {
    let claim = volume.claims.get(alloc).ok_or_else(|| Refusal::NoSuchClaim(alloc.clone()))?;
    let not_due = |next_try| Refusal::NotDue { state: claim.state, next_try };
    let worker = &begin.worker;
    let proven = begin.proven.as_ref().filter(|proven| is_of(proven, claim));
    let reason = match proven {
        _ if !begin.wanted => Some(ALLOC_ENDED.to_owned()),
        Some(proven) => Some(format!("node {} is gone", proven.node)),
        None => None,
    };
    match (claim.state, reason) {
        // A record without `place_until` keeps its place in line.
        (State::Waiting, None) if claim.place_until.is_none_or(|until| context.now <= until) => {
            Err(not_due(claim.place_until))
        }
        (State::Waiting, _) => Ok(Step::free(alloc)),
        (State::Publishing, None) if context.now <= abandoned_at(claim, context) => {
            Err(not_due(Some(abandoned_at(claim, context))))
        }
        // Nothing was granted, so the node is not asked, and no proof is needed.
        (State::Publishing, reason) => {
            let reason = reason.as_deref().unwrap_or("nobody came back for it");
            let undone = release::undo(claim, reason, context);
            Ok(leave::controller(volume, alloc, undone, Some(worker), context))
        }
        (State::Taken, None) => Err(not_due(None)),
        (State::Taken, Some(reason)) => {
            let claim = Claim {
                reason: Some(reason),
                ..claim.clone().enter(State::Unpublishing, context.now)
            };
            // The state changes even if the call has to wait, so that the release is visible.
            Ok(match proven {
                Some(proven) => leave::by_proof(volume, alloc, claim, proven, worker, context),
                None => leave::node(volume, alloc, claim, worker, context),
            })
        }
        (State::Unpublishing | State::NodeDetached, _) => {
            go_on(volume, alloc, claim, begin, proven, context)
        }
    }
}

/// The next call of a release that is under way.
fn go_on(
    volume: &Volume,
    alloc: &AllocId,
    claim: &Claim,
    begin: &Begin,
    proven: Option<&Proven>,
    context: &Context,
) -> Result<Step, Refusal> {
    let worker = &begin.worker;
    let not_due = |next_try| Err(Refusal::NotDue { state: claim.state, next_try });
    if let (State::Unpublishing, Some(proven)) = (claim.state, proven) {
        return Ok(leave::by_proof(volume, alloc, claim.clone(), proven, worker, context));
    }
    if let Some(next_try) = claim.next_try
        && next_try > context.now
        && !begin.early
    {
        return not_due(Some(next_try));
    }
    let (step, in_the_way) = if claim.state == State::Unpublishing {
        let busy = volume.busy_on(&claim.node, context.now, &context.policy);
        (leave::node(volume, alloc, claim.clone(), worker, context), busy)
    } else {
        let busy = volume.busy(context.now, &context.policy);
        (leave::controller(volume, alloc, claim.clone(), Some(worker), context), busy)
    };
    if step.call.is_some() || matches!(step.write, Some(Write::DeleteClaim(_))) {
        return Ok(step);
    }
    let other_name = || context.handle.in_the_way(claim, context.now, context.policy.clock_margin);
    if claim.state == State::NodeDetached && other_name().is_some() {
        // No change of this volume will say when that claim has left.
        return not_due(Some(context.now.after(context.policy.retry.wait(1, context.jitter))));
    }
    // Nothing may start yet: an attempt of this or of another claim may still act.
    not_due(in_the_way.map(|busy| busy.until))
}

/// The reason of most releases.
const ALLOC_ENDED: &str = "the alloc has ended";

/// A proof counts only for the claim that the worker saw before it read the proof.
fn is_of(proven: &Proven, claim: &Claim) -> bool {
    proven.node == claim.node && proven.epoch == claim.epoch
}

/// When a reservation counts as abandoned: by then its caller would have sent the request again.
fn abandoned_at(claim: &Claim, context: &Context) -> Timestamp {
    let last_sign = claim.last_sign(context.now);
    last_sign.after(context.policy.clock_margin).after(context.policy.abandoned_after)
}
