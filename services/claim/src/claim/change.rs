//! An alloc claims again in another mode (B12): its claim is given up first, if nothing of it is
//! mounted.
//!
//! **Promises** that the node's agent is asked before a granted claim is given up: where it does
//! not answer, or has anything of the volume for the alloc, the claim stays.

use std::time::Duration;

use berth_bus::Call;
use berth_contract::message::agent::AgentQuery;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, NodeAndNamespace};
use berth_domain::VolumeKey;
use berth_domain::volume::{Command, State as ClaimState, Take};
use tokio::time::Instant;

use crate::store::state::State;

/// How long an agent may take to say what it has mounted.
const AGENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Gives up the claim that the alloc has, so that `take` can be taken, or says why it stays.
pub async fn give_up_for(
    state: &State,
    volume: &VolumeKey,
    take: &Take,
    (trace, deadline): (TraceContext, Instant),
) -> Result<(), Problem> {
    let is_granted = state.volumes.mirror.read(|volumes| {
        let own = volumes.get(volume)?.volume.claims.get(&take.alloc)?;
        (own.state == ClaimState::Taken).then_some(())
    });
    let is_unmounted =
        is_granted.is_none() || is_unmounted(state, volume, take, trace, deadline).await;
    let command = Command::Change { take: take.clone(), is_unmounted };
    let done = state.transact_until(volume, trace, deadline, |_| Ok(command.clone())).await;
    done.map(drop).map_err(|error| state.problem(error, volume))
}

/// Whether the agent of the claim's node says that its journal has nothing of the volume for the
/// alloc.
async fn is_unmounted(
    state: &State,
    volume: &VolumeKey,
    take: &Take,
    trace: TraceContext,
    deadline: Instant,
) -> bool {
    let until = deadline.min(Instant::now() + AGENT_TIMEOUT);
    let agent = NodeAndNamespace::any_of(take.node.clone());
    let call = Call::until(trace, until);
    let status = state.bus.ask_service::<verb::AgentStatus>(&agent, &AgentQuery {}, &call).await;
    status.is_ok_and(|status| {
        status.mounts.iter().all(|mount| {
            mount.alloc != take.alloc
                || mount.namespace != volume.namespace
                || mount.volume != volume.volume
        })
    })
}
