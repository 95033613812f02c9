//! How a claim leaves, one call at a time: first its node, then its node's attachment. Rules 2, 3,
//! 9 and 12; safety rules 3 and 4.
//!
//! **Promises** that the controller is asked to detach only for a claim that has left its node, by
//! the node's own word or by a proof, and that nobody else there relies on the attachment. *There*
//! is where the storage has it attached: the plugin's id of the node, which two nodes may share.

use super::Volume;
use super::attempt::{Attempt, CallKind};
use super::claim::{Claim, State};
use super::command::{Context, Step};
use crate::proof::Proven;
use crate::{AllocId, WorkerId};

/// Unpublishing: the node's agent is called, if no call that may still act forbids it (rule 3).
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

/// Rule 12: a proof stands in for the node's answer. Whatever call of the node's is on the record,
/// nothing acts there any more; and when the node is back, its agent undoes what it has before it
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

/// Node-detached: freed when no controller call is needed or another claim is sure to make it;
/// else the controller is called, if somebody is there to call it and rule 3 allows it now.
pub(super) fn controller(
    volume: &Volume,
    alloc: &AllocId,
    claim: Claim,
    worker: Option<&WorkerId>,
    context: &Context,
) -> Step {
    let margin = context.policy.clock_margin;
    // A publish that was given up, or an unpublish without an answer: what it may still do comes
    // first, also where another would detach for this claim.
    let own = claim.attempt.as_ref();
    if own.is_some_and(|attempt| attempt.may_still_act(context.now, margin)) {
        return Step::put(alloc, claim, None);
    }
    if !claim.controller || volume.claims.others_will_unpublish(alloc, &claim) {
        return Step::free(alloc);
    }
    // Somebody uses the attachment and will not end it: so says no record that `take` admits, but
    // one of an older version may.
    if volume.claims.others_use_attachment(alloc, &claim) {
        return Step::put(alloc, claim, None);
    }
    // Rule 3, for the claim as it is to be, not as it was: its own answered attempt, which is still
    // on the volume that was loaded, is no obstacle. Of the others the latest deadline comes first.
    let mut others = volume.claims.calling().filter(|(other, _)| *other != alloc);
    let last = others.next().and_then(|(_, other)| other.attempt.as_ref());
    let busy_elsewhere = last.is_some_and(|last| last.may_still_act(context.now, margin));
    // The same storage volume under another name: this call would take it from under that claim.
    let stands_elsewhere = context.handle.standing_on(&claim).is_some();
    match worker {
        Some(worker) if !busy_elsewhere && !stands_elsewhere => {
            let attempt = Attempt::new(CallKind::ControllerUnpublish, worker, context);
            Step::put(alloc, claim.attempting(&attempt), Some(attempt))
        }
        _ => Step::put(alloc, claim, None),
    }
}
