//! The steps of a release, one call at a time: first the node unmounts, then the controller
//! detaches. Rules 2, 3, 9 and 12; safety rules 3 and 4.
//!
//! **Promises** that the controller detaches only
//! - for a claim that has left its node, by the node's answer or by a proof, and
//! - if no other claim relies on the attachment. An attachment belongs to the plugin's id of the
//!   node, which two nodes may share.

use super::Volume;
use super::attempt::{Attempt, CallKind};
use super::claim::{Claim, State};
use super::command::{Context, Step};
use crate::proof::Proven;
use crate::{AllocId, WorkerId};

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
    let attempt = Attempt::new(CallKind::NodeDetach, worker, context);
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
    let margin = context.policy.clock_margin;
    // An abandoned publish or an unanswered unpublish may still act: wait for it, even if another
    // claim would detach for this one.
    let own = claim.attempt.as_ref();
    if own.is_some_and(|attempt| attempt.may_still_act(context.now, margin)) {
        return Step::put(alloc, claim, None);
    }
    if !claim.controller || volume.claims.others_will_unpublish(alloc, &claim) {
        return Step::free(alloc);
    }
    // Another claim uses the attachment and will not unpublish. `take` admits no such claim, but an
    // older version may have written one.
    if volume.claims.others_use_attachment(alloc, &claim) {
        return Step::put(alloc, claim, None);
    }
    // Rule 3. `volume` still has this claim's own attempt, although it is answered: it does not
    // count. `calling` returns the latest deadline first.
    let mut others = volume.claims.calling().filter(|(other, _)| *other != alloc);
    let last = others.next().and_then(|(_, other)| other.attempt.as_ref());
    let busy_elsewhere = last.is_some_and(|last| last.may_still_act(context.now, margin))
        || volume.busy_at_storage(context.now, &context.policy).is_some();
    // The same storage volume under another name.
    let other_name = context.handle.in_the_way(&claim, context.now, margin);
    match worker {
        Some(worker) if !busy_elsewhere && other_name.is_none() => {
            let attempt = Attempt::new(CallKind::ControllerUnpublish, worker, context);
            Step::put(alloc, claim.attempting(&attempt), Some(attempt))
        }
        _ => Step::put(alloc, claim, None),
    }
}
