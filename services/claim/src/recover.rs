//! `claim.recover`: an agent is about to unmount, for an operator, what no claim covers; or the
//! node that has such a mount counts as gone. The lost claim is recorded in release, and released
//! by the same steps as any other.

use berth_contract::message::claim::{Recover, Recovered};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::access::Capability;
use berth_domain::volume::{Command, Handle, LostClaim, State as ClaimState};
use berth_domain::{Namespace, VolumeKey};
use tokio::time::Instant;

use crate::state::State;

const STEP: &str = verb::ClaimRecover::STEP;

pub async fn recover(
    state: &State,
    namespace: Namespace,
    request: Recover,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Recovered, Problem> {
    let volume = VolumeKey::new(namespace, request.volume);
    let Recover { alloc, node, plugin, external_id, mode, access, attachment, .. } = request;
    let lost = |_: &_| {
        let route = state.attachment(&plugin, &node);
        let handle = Handle { plugin: plugin.clone(), external_id: external_id.clone() };
        let capability = Capability { access, attachment };
        let (alloc, node) = (alloc.clone(), node.clone());
        Ok(Command::Recover(LostClaim { alloc, node, mode, capability, handle, route }))
    };
    let stored = state.transact_until(&volume, trace, deadline, lost).await;
    stored.map_err(|error| state.problem(error, STEP, &volume).node(&node))?;
    let recorded = state.volumes.mirror.read(|volumes| {
        let claim = volumes.get(&volume)?.volume.claims.get(&alloc)?;
        Some(claim.state)
    });
    Ok(Recovered { state: recorded.unwrap_or(ClaimState::Unpublishing) })
}
