//! An operator's confirmation in place of a plugin that cannot answer, because it lost the volume.
//! Rules 16 and 18.
//!
//! **Promises** that a confirmation counts only
//! - after the plugin answered with an error, or no controller was there to ask, and
//! - while no call may still act. A call that is still at work may be a publish: it could attach
//!   the volume after the operator looked.
//!
//! Instead of the controller's answer, a confirmation frees a claim that has left its node: nothing
//! can write there, whatever the storage does. Instead of the node plugin's answer, it frees
//! nothing: the next call carries it to the node's agent, which checks that nothing is mounted.

use crate::AllocId;
use crate::proof::Proof;
use crate::volume::{CallKind, Claim, Context, Refusal, State, Step, Volume};

/// Frees a claim that an operator confirms as detached at the storage; or records on the claim that
/// an operator confirms that nothing of the volume is left on the node.
pub(in crate::volume) fn confirm(
    volume: &Volume,
    alloc: &AllocId,
    epoch: u64,
    call: CallKind,
    confirmation: &Proof,
    context: &Context,
) -> Result<Step, Refusal> {
    let claim = volume
        .claims
        .get(alloc)
        .filter(|claim| claim.epoch == epoch)
        .ok_or_else(|| Refusal::NoSuchClaim(alloc.clone()))?;
    let not_due = |next_try| Err(Refusal::NotDue { next_try });
    let awaits = match claim.state {
        State::Unpublishing => CallKind::NodeDetach,
        State::NodeDetached => CallKind::ControllerUnpublish,
        State::Waiting | State::Publishing | State::Taken => {
            return not_due(claim.progress.next_try);
        }
    };
    // A call on the record may be at work, even after its deadline. The next try will show.
    if call != awaits || !claim.denied || claim.progress.attempt.is_some() {
        return not_due(claim.progress.next_try);
    }
    let busy = match call {
        CallKind::NodeDetach => volume.busy_on(&claim.node, context.now, &context.policy),
        _ => volume.busy(context.now, &context.policy),
    };
    if let Some(busy) = busy {
        return not_due(Some(busy.until));
    }
    Ok(match call {
        CallKind::NodeDetach if claim.unstaged_by.is_some() => Step::nothing(),
        CallKind::NodeDetach => {
            let mut claim = Claim { unstaged_by: Some(confirmation.clone()), ..claim.clone() };
            claim.progress.next_try = None;
            Step::put(alloc, claim, None)
        }
        _ => Step::free(alloc),
    })
}
