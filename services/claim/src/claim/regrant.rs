//! A grant that is given again for a claim that an earlier request took.
//!
//! Such a grant writes nothing, so no guard stops a grant that rests on an outdated mirror.
//!
//! **Promises** that it is given only after the leader was asked, and only
//!
//! - for a claim that still exists;
//! - to an alloc that has not ended;
//! - on a node that was not declared gone since the claim was created;
//! - while no other node has a mount of the volume that no claim covers, or may have one after a
//!   restore.
//!
//! Otherwise a claim could be mounted again while a proof releases it (rule 12). Or a lagging
//! replica could grant a released claim to an agent that has lost its journal (rule 10).

use berth_contract::code::Code;
use berth_contract::message::claim::Take;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::VolumeKey;
use berth_domain::volume::State as ClaimState;

use crate::store::state::State;

/// Refuses to grant the claim again, unless the leader confirms that this is allowed.
pub async fn check_regrant(
    state: &State,
    volume: &VolumeKey,
    request: &Take,
    epoch: u64,
    trace: TraceContext,
) -> Result<(), Problem> {
    state.check_alloc_lives(&volume.namespace, &request.alloc, trace).await?;
    state.check_mounts_elsewhere(volume, &request.node)?;
    // The catch-up shows each release before this request. The agent journals a later release.
    let caught_up = state.catch_up(volume).await;
    caught_up.map_err(|error| state.problem(error, volume))?;
    let since = state.volumes.mirror.read(|volumes| {
        let claim = volumes.get(volume)?.volume.claims.get(&request.alloc)?;
        (claim.state == ClaimState::Taken && claim.epoch == epoch).then_some(claim.since)
    });
    let Some(since) = since else {
        return Err(Problem::new(Code::GrantVoid, "the claim is gone by now").retryable());
    };
    let node = state.read_node(&request.node).await?;
    if node.is_some_and(|node| node.may_be_proven(since, state.policy.clock_margin)) {
        let message = format!(
            "the claim of alloc {} was made before node {} counted as gone, and may be released \
             by that at any moment; stop the alloc and register another",
            request.alloc, request.node
        );
        return Err(Problem::new(Code::GrantVoid, message));
    }
    Ok(())
}
