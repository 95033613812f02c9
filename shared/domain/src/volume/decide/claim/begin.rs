//! The next call of a claim's release, if it is [due](crate::volume::Due): rules 6, 12 and 14. The
//! calls are in [`leave`](super::leave).

use super::leave;
use super::release;
use crate::AllocId;
use crate::proof::Proven;
use crate::volume::decide::due::{Due, DueFacts};
use crate::volume::{Begin, Claim, Context, Refusal, State, Step, Volume, Write};

/// Starts the next call of a claim's release, if the claim is to be released and the call may start
/// now.
pub(in crate::volume) fn begin_release(
    volume: &Volume,
    alloc: &AllocId,
    begin: &Begin,
    context: &Context,
) -> Result<Step, Refusal> {
    let claim = volume.claims.get(alloc).ok_or_else(|| Refusal::NoSuchClaim(alloc.clone()))?;
    let not_due = |next_try| Err(Refusal::NotDue { next_try });
    let worker = &begin.worker;
    let proven = begin.proven.as_ref().filter(|proven| is_of(proven, claim));
    let facts = DueFacts { gone: proven.is_some(), ..begin.facts(context) };
    match volume.due(&begin.owner, &facts) {
        Due::Now(_) => {}
        Due::At(at) => return not_due(Some(at)),
        Due::Rest => return not_due(None),
    }
    let reason = match proven {
        _ if !begin.wanted => Some(ALLOC_ENDED.to_owned()),
        Some(proven) => Some(format!("node {} is gone", proven.node)),
        None => None,
    };
    match (claim.state, proven) {
        (State::Waiting, _) => Ok(Step::free(alloc)),
        // Nothing was granted, so the node is not asked, and no proof is needed.
        (State::Publishing, _) => {
            let reason = reason.as_deref().unwrap_or("nobody came back for it");
            let undone = release::undo(claim, reason, context);
            Ok(leave::controller(volume, alloc, undone, Some(worker), context))
        }
        (State::Taken, _) => {
            let claim = Claim { reason, ..claim.clone().enter(State::Unpublishing, context.now) };
            // The state changes even if the call has to wait, so that the release is visible.
            Ok(match proven {
                Some(proven) => leave::by_proof(volume, alloc, claim, proven, worker, context),
                None => leave::node(volume, alloc, claim, worker, context),
            })
        }
        (State::Unpublishing, Some(proven)) => {
            Ok(leave::by_proof(volume, alloc, claim.clone(), proven, worker, context))
        }
        (State::Unpublishing, None) => {
            Ok(leave::node(volume, alloc, claim.clone(), worker, context))
        }
        (State::NodeDetached, _) => {
            let step = leave::controller(volume, alloc, claim.clone(), Some(worker), context);
            if step.call.is_some() || matches!(step.write, Some(Write::DeleteClaim(_))) {
                return Ok(step);
            }
            // A claim under another name is in the way, and no change of this volume will say when
            // it has left.
            not_due(Some(context.next_try(1)))
        }
    }
}

/// The reason of most releases.
const ALLOC_ENDED: &str = "the alloc has ended";

/// A proof counts only for the claim that the worker saw before it read the proof.
fn is_of(proven: &Proven, claim: &Claim) -> bool {
    proven.node == claim.node && proven.epoch == claim.epoch
}
