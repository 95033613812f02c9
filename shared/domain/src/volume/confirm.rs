//! A person's word for what the plugin cannot say: one that lost the volume, or does not know it
//! any more. Rules 16 and 18.
//!
//! **Promises** that it counts only after the plugin was asked and answered with an error (a
//! controller may also be not there to be asked); and never while a call may still act. A plugin
//! that is at an earlier call for the volume, maybe a publish, is asked again first: what was
//! detached when the person looked would be attached when that call ends.
//!
//! In place of the controller's answer it frees a claim that has left its node: nothing can write
//! there whatever the storage does. In place of the node's plugin it frees nothing: the next call
//! carries it to the node's agent, which sees for itself that nothing is mounted.

use super::Volume;
use super::attempt::CallKind;
use super::claim::{Claim, State};
use super::command::{Context, Step};
use super::refusal::Refusal;
use crate::AllocId;
use crate::proof::Proof;

/// Frees a claim of which a person says that the storage has detached it, or notes on it that a
/// person says that nothing of the volume is left on its node.
pub(super) fn confirm(
    volume: &Volume,
    alloc: &AllocId,
    epoch: u64,
    call: CallKind,
    word: &Proof,
    context: &Context,
) -> Result<Step, Refusal> {
    let claim = volume
        .claims
        .get(alloc)
        .filter(|claim| claim.epoch == epoch)
        .ok_or_else(|| Refusal::NoSuchClaim(alloc.clone()))?;
    let not_due = |next_try| Err(Refusal::NotDue { state: claim.state, next_try });
    let awaits = match claim.state {
        State::Unpublishing => CallKind::NodeDetach,
        State::NodeDetached => CallKind::ControllerUnpublish,
        State::Waiting | State::Publishing | State::Taken => return not_due(claim.next_try),
    };
    // A call on the record may be at work, also past its deadline; the next try will tell.
    if call != awaits || !claim.denied || claim.attempt.is_some() {
        return not_due(claim.next_try);
    }
    let busy = match call {
        CallKind::NodeDetach => volume.busy_on(&claim.node, context.now, &context.policy),
        _ => volume.busy(context.now, &context.policy),
    };
    if let Some((_, attempt)) = busy {
        return not_due(Some(attempt.ends().after(context.policy.clock_margin)));
    }
    Ok(match call {
        CallKind::NodeDetach if claim.unstaged_by.is_some() => Step::nothing(),
        CallKind::NodeDetach => {
            let word = Some(word.clone());
            Step::put(alloc, Claim { unstaged_by: word, next_try: None, ..claim.clone() }, None)
        }
        _ => Step::free(alloc),
    })
}
