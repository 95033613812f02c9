//! Claims that an older version wrote without a node: their node is that of their alloc.
//!
//! Such a claim is read as a claim on an unknown node ([`record::NODE_UNKNOWN`]), for which no
//! agent answers. So it could not be released unless that node was declared gone.
//!
//! **Promises** that the node is taken from the alloc's record at the leader, and written under the
//! volume's guard before any call for the claim is made.
//!
//! **Never** guesses: a claim whose alloc is gone or unreadable keeps its unknown node.

use berth_contract::problem::Problem;
use berth_contract::record;
use berth_contract::trace::TraceContext;
use berth_domain::volume::{Claim, Write};
use berth_domain::{AllocId, VolumeKey};

use crate::store::state::State;
use crate::store::transact::TransactError;

/// Stores the node of the claim, if its record names none and its alloc names one.
pub async fn store_missing_node(
    state: &State,
    volume: &VolumeKey,
    alloc: &AllocId,
    trace: TraceContext,
) -> Result<(), Problem> {
    let unlocated = state.volumes.mirror.read(|volumes| {
        let subtree = volumes.get(volume)?;
        let claim = subtree.volume.claims.get(alloc)?;
        let unlocated = record::is_node_unknown(&claim.node);
        unlocated.then(|| (subtree.head, claim.clone(), subtree.trail(alloc)))
    });
    let Some((head, claim, trail)) = unlocated else { return Ok(()) };
    let (_, alloc_record) = state.read_alloc(&volume.namespace, alloc).await?;
    let Some(alloc_record) = alloc_record else { return Ok(()) };
    let node = alloc_record.node;
    let trace_id = trace.trace_id();
    tracing::info!(%volume, %alloc, %node, trace = trace_id, "a claim without a node has one now");
    let write = Write::PutClaim(alloc.clone(), Claim { node, ..claim });
    let stored = state.store(volume, &write, trail, head, trace).await;
    // A lost race means that the volume has changed. Nothing is retried: the next request decides
    // again.
    stored.map(drop).map_err(|error: TransactError| state.problem(error, volume))
}

/// The claims on the volume that name no node.
pub fn claims_without_node(state: &State, volume: &VolumeKey) -> Vec<AllocId> {
    state.volumes.mirror.read(|volumes| {
        let claims =
            volumes.get(volume).into_iter().flat_map(|subtree| subtree.volume.claims.iter());
        let unlocated = claims.filter(|(_, claim)| record::is_node_unknown(&claim.node));
        unlocated.map(|(alloc, _)| alloc.clone()).collect()
    })
}
