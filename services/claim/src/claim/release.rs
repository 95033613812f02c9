//! `claim.release`: a claim is no longer wanted. The volumewatcher releases it in recorded steps
//! ([`work`](crate::work)).

use berth_contract::message::claim::{Release, Released};
use berth_contract::problem::Problem;
use berth_domain::volume::{Command, Refusal, Volume};
use berth_domain::{Namespace, NodeId, VolumeKey};

use crate::caller::Caller;
use crate::store::state::State;
use crate::store::transact::TransactError;

/// The epoch of no claim.
const NO_EPOCH: Option<u64> = Some(0);

/// Records that a claim is no longer wanted. After the answer, the release is certain to happen.
pub async fn release(
    state: &State,
    namespace: &Namespace,
    request: Release,
    caller: &Caller,
) -> Result<Released, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let sender = caller.own_node();
    let volume = VolumeKey::new(namespace.clone(), request.volume);
    let reason = match request.reason.as_str() {
        "" => "released",
        reason => reason,
    };
    let command = |now: &Volume| {
        let (alloc, reason) = (request.alloc.clone(), reason.to_owned());
        let is_own_claim =
            |node: &NodeId| now.claims.get(&alloc).is_none_or(|claim| claim.node == *node);
        // An agent may only give up claims for allocs of its own node. For a claim on another node
        // the answer is that the claim is gone (G1).
        let epoch = if sender.as_ref().is_none_or(is_own_claim) { request.epoch } else { NO_EPOCH };
        Ok(Command::Release { alloc, epoch, reason })
    };
    let current_state = || {
        state
            .volumes
            .mirror
            .read(|volumes| Some(volumes.get(&volume)?.volume.claims.get(&request.alloc)?.state))
    };
    match state.transact_until(&volume, trace, deadline, command).await {
        Ok(_) => Ok(Released { state: current_state() }),
        // A missing claim is released already, so the request may be repeated.
        Err(TransactError::Refused(Refusal::NoSuchClaim(_))) => Ok(Released { state: None }),
        Err(error) => Err(state.problem(error, &volume)),
    }
}
