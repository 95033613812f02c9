//! Proofs that stand in for a node that is gone (rule 12).
//!
//! **Promises** that a proof is used for the claim that was seen before the proof was read, and for
//! no later one: the node may be back meanwhile and have the volume mounted anew. What a mirror
//! says is only a reason to ask the leader. And that the claim's alloc has ended by then: whoever
//! looks at it later, when the node is back, must not count it as running without its volume.

use berth_contract::code::Code;
use berth_contract::message::alloc::Stop;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{key, record};
use berth_domain::alloc::AllocState;
use berth_domain::plugin::Node;
use berth_domain::proof::Proven;
use berth_domain::{AllocId, Namespace, NodeId, VolumeKey};
use tokio::time::Instant;

use crate::alloc;
use crate::state::State;

const STEP: &str = verb::ClaimCheckpoint::STEP;

/// What stands in for the answer of the claim's node; none when the node can answer, or nobody has
/// said that it cannot.
pub async fn of_claim(
    state: &State,
    volume: &VolumeKey,
    alloc: &AllocId,
) -> Result<Option<Proven>, Problem> {
    // The claim first, then the proof.
    let claim = state.volume_mirror.read(|volumes| {
        let claim = volumes.get(volume)?.volume.claims.get(alloc)?;
        Some((claim.node.clone(), claim.epoch))
    });
    let Some((node, epoch)) = claim else { return Ok(None) };
    let said = |known: Option<&Node>| known.and_then(|known| known.gone.clone());
    if state.nodes.read(|nodes| said(nodes.get(&node))).is_none() {
        return Ok(None);
    }
    let known = self::node(state, &node, STEP).await?;
    Ok(said(known.as_ref()).map(|proof| Proven { node, epoch, proof }))
}

/// The node's record as the leader has it.
pub async fn node(state: &State, node: &NodeId, step: &str) -> Result<Option<Node>, Problem> {
    let key = key::node(node);
    let entry = state.node_records.get(&key).await;
    let entry = entry.map_err(|error| error.into_problem(step))?;
    let Some(value) = entry.and_then(|entry| entry.value) else { return Ok(None) };
    let known = record::read::<Node>(&value)
        .map_err(|error| error.at(&key).problem().at(step).node(node))?;
    Ok(Some(known.body))
}

/// Ends the alloc of a claim that goes by a proof, before it goes: a crash in between leaves an
/// ended alloc with a claim, which is work like any other, and not an alloc that seems to live.
pub async fn end(
    state: &State,
    namespace: &Namespace,
    id: &AllocId,
    proven: &Proven,
    trace: TraceContext,
    deadline: Instant,
) -> Result<(), Problem> {
    let note = Some(format!("its node is gone: {}", proven.proof));
    let stop = Stop { id: id.clone(), state: AllocState::Failed, note };
    match alloc::stop(state, namespace.clone(), stop, trace, deadline).await {
        Ok(_) => Ok(()),
        Err(problem) if problem.code == Code::NoSuchAlloc => Ok(()),
        Err(problem) => Err(problem),
    }
}
