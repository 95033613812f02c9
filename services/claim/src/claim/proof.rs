//! Proofs that stand in for a node that is gone (rule 12).
//!
//! **Promises**
//!
//! - A proof is used only for a claim that was read before the proof: otherwise the node may have
//!   come back between the reads, and may have mounted the volume for a later claim.
//! - The proof is read at the leader. A proof in a mirror is only a reason to ask the leader.
//! - The claim's alloc ends before the proof frees the claim. Otherwise the alloc would seem to run
//!   without its volume once the node is back.

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::message::alloc::StopAlloc;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::alloc::AllocState;
use berth_domain::plugin::Node;
use berth_domain::proof::Proven;
use berth_domain::{AllocId, Namespace, VolumeKey};
use tokio::time::Instant;

use crate::alloc;
use crate::caller::Caller;
use crate::store::state::State;

/// The proof that replaces the answer of the claim's node. `None` for a node that was not
/// declared gone.
pub async fn proof_for_claim(
    state: &State,
    volume: &VolumeKey,
    alloc: &AllocId,
) -> Result<Option<Proven>, Problem> {
    // The claim first, then the proof.
    let claim = state.volumes.mirror.read(|volumes| {
        let claim = volumes.get(volume)?.volume.claims.get(alloc)?;
        Some((claim.node.clone(), claim.epoch))
    });
    let Some((node, epoch)) = claim else { return Ok(None) };
    let proof_of = |node: &Node| node.gone.clone();
    if state.nodes.mirror.read(|nodes| nodes.get(&node).and_then(proof_of)).is_none() {
        return Ok(None);
    }
    let record = state.read_node(&node).await?;
    let proof = record.as_ref().and_then(proof_of);
    Ok(proof.map(|proof| Proven { node, epoch, proof }))
}

/// Ends the alloc of a claim before a proof frees the claim. A crash in between leaves an ended
/// alloc with a claim, which the volumewatcher releases, not a live alloc without its claim.
pub async fn end_alloc_by_proof(
    state: &State,
    namespace: &Namespace,
    id: &AllocId,
    proven: &Proven,
    trace: TraceContext,
    deadline: Instant,
) -> Result<(), Problem> {
    let note = Some(format!("its node is gone: {}", proven.proof));
    let stop = StopAlloc::new(id.clone(), AllocState::Failed, note);
    // In the name of the node's agent, which is gone.
    let actor = Some(Actor::Node(proven.node.clone()));
    let caller = Caller { actor, trace, deadline };
    match alloc::stop(state, namespace, stop, &caller).await {
        Ok(_) => Ok(()),
        Err(problem) if problem.code == Code::NoSuchAlloc => Ok(()),
        Err(problem) => Err(problem),
    }
}
