//! A grant that is given again, to whoever asks again for a claim that stands.
//!
//! Nothing is written by it, so the guard does not stop one that is given on old knowledge.
//!
//! **Promises** that it is given only after a look at the leader: of a claim that stands, to an
//! alloc that has not ended, on a node that has not counted as gone since the claim was made. Else
//! a claim that is being released by a proof could be mounted anew meanwhile (rule 12); or one that
//! was released, by a replica that is behind, at an agent that has lost its journal (rule 10).

use berth_contract::code::Code;
use berth_contract::message::claim::Take;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::VolumeKey;
use berth_domain::volume::State as ClaimState;

use crate::state::State;
use crate::{alloc, proof};

const STEP: &str = verb::ClaimTake::STEP;

/// Why the claim is not granted again; nothing when it is.
pub async fn may_grant(
    state: &State,
    volume: &VolumeKey,
    request: &Take,
    epoch: u64,
    trace: TraceContext,
) -> Result<(), Problem> {
    alloc_lives(state, volume, request, trace).await?;
    // What was released before this was asked is seen by then; what is released later, is so at an
    // agent that writes it down.
    let caught_up = state.catch_up(volume).await;
    caught_up.map_err(|error| state.problem(error, STEP, volume))?;
    let since = state.volume_mirror.read(|volumes| {
        let claim = volumes.get(volume)?.volume.claims.get(&request.alloc)?;
        (claim.state == ClaimState::Taken && claim.epoch == epoch).then_some(claim.since)
    });
    let Some(since) = since else {
        return Err(Problem::new(Code::GrantVoid, "the claim is gone by now").retryable());
    };
    let node = proof::node(state, &request.node, STEP).await?;
    if node.is_some_and(|node| node.may_be_proven(since, state.policy.clock_margin)) {
        let said = format!(
            "the claim of alloc {} was made before node {} counted as gone, and may be released \
             by that at any moment; stop the alloc and register another",
            request.alloc, request.node
        );
        return Err(Problem::new(Code::GrantVoid, said));
    }
    Ok(())
}

/// Why the alloc gets no grant, as the leader has it; nothing when it lives.
pub async fn alloc_lives(
    state: &State,
    volume: &VolumeKey,
    request: &Take,
    trace: TraceContext,
) -> Result<(), Problem> {
    let alloc = state.read_alloc_surely(&volume.namespace, &request.alloc, STEP, trace).await?;
    let alloc = alloc.ok_or_else(|| alloc::none(&request.alloc))?;
    if alloc.state.is_terminal() {
        let said = format!("alloc {} is {} since {}", request.alloc, alloc.state, alloc.since);
        return Err(Problem::new(Code::AllocTerminal, said));
    }
    Ok(())
}
