//! The steps of a release, one call at a time: first the node unmounts, then the controller
//! detaches. Rules 2, 3, 9 and 12; safety rules 3 and 4.
//!
//! **Promises** that the controller detaches only
//! - for a claim that has left its node, by the node's answer or by a proof, and
//! - if no other claim relies on the attachment. An attachment belongs to the plugin's id of the
//!   node, which two nodes may share.

use crate::proof::Proven;
use crate::volume::{Attempt, CallKind, Claim, Context, Policy, State, Step, Volume};
use crate::{AllocId, Timestamp, WorkerId};

/// `unpublishing`: calls the node's agent, unless an earlier call may still act (rule 3).
pub(super) fn node(
    volume: &Volume,
    alloc: &AllocId,
    claim: Claim,
    worker: &WorkerId,
    context: &Context,
) -> Step {
    if volume.busy_on(&claim.node, context.now, &context.policy).is_some() {
        return Step::put(alloc, claim, None);
    }
    let attempt = context.new_attempt(CallKind::NodeDetach, worker);
    Step::put(alloc, claim.attempting(&attempt), Some(attempt))
}

/// Rule 12: a proof replaces the node's answer. It proves that nothing on the node can write, so a
/// node call on the record cannot act either. A node that comes back undoes its mounts before it
/// does anything else.
pub(super) fn by_proof(
    volume: &Volume,
    alloc: &AllocId,
    claim: Claim,
    proven: &Proven,
    worker: &WorkerId,
    context: &Context,
) -> Step {
    let proof = Some(proven.proof.clone());
    let claim = Claim { unstaged_by: None, ..claim };
    let detached = Claim { proof, ..claim.enter(State::NodeDetached, context.now) };
    controller(volume, alloc, detached, Some(worker), context)
}

/// `node-detached`: frees the claim if it needs no controller call, or if another claim is sure to
/// make that call later. Otherwise calls the controller, if there is a worker and rule 3 allows it.
pub(super) fn controller(
    volume: &Volume,
    alloc: &AllocId,
    claim: Claim,
    worker: Option<&WorkerId>,
    context: &Context,
) -> Step {
    // The same storage volume under another name.
    let other_name = || context.handle.in_the_way(&claim, context.now, context.policy.clock_margin);
    match (detachment(volume, alloc, &claim, context.now, &context.policy), worker) {
        (Detachment::Free, _) => Step::free(alloc),
        (Detachment::Call, Some(worker)) if other_name().is_none() => {
            let attempt = context.new_attempt(CallKind::ControllerUnpublish, worker);
            Step::put(alloc, claim.attempting(&attempt), Some(attempt))
        }
        _ => Step::put(alloc, claim, None),
    }
}

/// What a claim that has left its node needs before it is freed.
pub(in crate::volume) enum Detachment {
    /// Nothing: no call of the controller, or another claim is sure to make it later.
    Free,
    /// The call.
    Call,
    /// The call, once none may act that it must not be beside.
    Busy(Timestamp),
    /// Another claim uses the attachment and will not unpublish. `take` admits no such claim, but
    /// an older version may have written one.
    InUse,
}

/// What a claim that has left its node needs. `volume` may still have the claim as it was before
/// its own call was answered.
pub(in crate::volume) fn detachment(
    volume: &Volume,
    alloc: &AllocId,
    claim: &Claim,
    now: Timestamp,
    policy: &Policy,
) -> Detachment {
    let margin = policy.clock_margin;
    let until = |attempt: Option<&Attempt>| {
        attempt.filter(|it| it.may_still_act(now, margin)).map(|it| it.free_at(margin))
    };
    // An abandoned publish or an unanswered unpublish may still act: wait for it, even if another
    // claim would detach for this one.
    if let Some(own) = until(claim.progress.attempt.as_ref()) {
        return Detachment::Busy(own);
    }
    if !claim.controller || volume.claims.others_will_unpublish(alloc, claim) {
        return Detachment::Free;
    }
    if volume.claims.others_use_attachment(alloc, claim) {
        return Detachment::InUse;
    }
    // Rule 3. `calling` returns the latest deadline first.
    let mut others = volume.claims.calling().filter(|(other, _)| *other != alloc);
    let last = until(others.next().and_then(|(_, other)| other.progress.attempt.as_ref()));
    let at_storage = volume.busy_at_storage(now, policy).map(|busy| busy.until);
    last.max(at_storage).map_or(Detachment::Call, Detachment::Busy)
}
