//! Claims that an older version wrote without a node: their node is that of their alloc.
//!
//! Such a claim is read as a claim on an unknown node ([`record::NODE_UNKNOWN`]), for which no
//! agent answers. So it could not be released unless that node was declared gone, and the agent of
//! its node would report its mount as one that no claim covers.
//!
//! **Promises** that the node is taken from the alloc's record at the leader, and written under the
//! volume's guard: within [`REPAIR_INTERVAL`], and before any call for the claim is made.
//!
//! **Never** guesses: a claim whose alloc is gone or unreadable keeps its unknown node.

use std::time::Duration;

use berth_contract::problem::Problem;
use berth_contract::record;
use berth_contract::trace::TraceContext;
use berth_domain::volume::{Claim, Write};
use berth_domain::{AllocId, VolumeKey};
use berth_service::clock;

use crate::store::state::State;
use crate::store::transact::TransactError;

/// How often claims without a node are looked for.
const REPAIR_INTERVAL: Duration = Duration::from_secs(30);
/// Time from the start until the first look.
const REPAIR_FIRST: Duration = Duration::from_secs(1);

/// Stores the nodes of all such claims, at intervals: an older backup may be restored. Several
/// replicas may do so at once, because each write is guarded.
pub async fn store_missing_nodes(state: State) {
    let mut wait = REPAIR_FIRST;
    loop {
        tokio::time::sleep(clock::jittered(wait)).await;
        wait = REPAIR_INTERVAL;
        let due: Vec<(VolumeKey, AllocId)> =
            state.volumes.mirror.read(|volumes| volumes.claims_without_node().cloned().collect());
        for (volume, alloc) in due {
            // A volume with an unreadable record is read-only here.
            if state.check_readable(&volume).is_err() {
                continue;
            }
            let trace = clock::begin_trace();
            if let Err(problem) = store_missing_node(&state, &volume, &alloc, trace).await {
                tracing::warn!(%volume, %alloc, %problem, "the node of a claim is stored later");
            }
        }
    }
}

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
