//! Records the claims of a gone node's mounts that no claim covers.
//!
//! **Why.** The storage has such a volume attached to the node, and only a claim makes a controller
//! detach it. The agent cannot record the claim any more.
//!
//! **Promises** that each of these claims is recorded, in release, and that its mount then leaves
//! the node's record. If a claim cannot be recorded, its mount stays on the record, and declaring
//! the node gone again retries it.
//!
//! **Never** does so before the node counts as gone. The agent of a node that came back would be
//! asked to unmount what a workload uses.

use std::collections::BTreeSet;

use berth_bus::Call;
use berth_contract::key;
use berth_contract::message::claim::Recover;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::NodeId;
use berth_domain::plugin::{Node, UnaccountedMount};
use berth_service::record_table::{StoreError, retry_lost_races};

use crate::caller::Caller;
use crate::store::node_records::Write;
use crate::store::state::State;

/// Has claims recorded for the gone node's mounts that have none.
pub async fn recover(state: &State, node: &NodeId, caller: &Caller) -> Result<(), Problem> {
    let record = state.nodes.read(&key::node(node)).await;
    let (_, record) = record?;
    let mut recovered = BTreeSet::new();
    for mount in record.filter(is_gone).into_iter().flat_map(|record| record.unaccounted) {
        let Some(lost) = lost_claim(&mount, node) else { continue };
        let call = Call::within(caller.trace, caller.left());
        let call = call.sent_again_early(true);
        let reply = state.bus.ask_service::<verb::ClaimRecover>(&mount.namespace, &lost, &call);
        match reply.await {
            Ok(_) => {
                recovered.insert(mount);
            }
            Err(error) => {
                let problem = error.into_problem(verb::ClaimRecover::STEP);
                let trace = caller.trace.trace_id();
                tracing::warn!(
                    %node, %mount, trace, %problem,
                    "the storage may keep the volume attached to the gone node"
                );
            }
        }
    }
    if recovered.is_empty() {
        return Ok(());
    }
    let forget = || forget_mounts(state, node, &recovered, caller.trace);
    retry_lost_races(forget).await
}

/// Removes the mounts from the node's record, because their claims are recorded now.
async fn forget_mounts(
    state: &State,
    node: &NodeId,
    recovered: &BTreeSet<UnaccountedMount>,
    trace: TraceContext,
) -> Result<(), StoreError> {
    let snapshot = state.read_node_records(node, BTreeSet::new()).await?;
    // If the node has come back, its agent reports its mounts.
    let Some(mut record) = snapshot.records.node.clone().filter(is_gone) else { return Ok(()) };
    record.unaccounted.retain(|mount| !recovered.contains(mount));
    state.store(node, &snapshot, &Write::Node(record), trace).await
}

fn is_gone(record: &Node) -> bool {
    record.gone.is_some()
}

/// The claim to record; none if an agent of an earlier version reported the mount, without the
/// facts of its claim.
fn lost_claim(mount: &UnaccountedMount, node: &NodeId) -> Option<Recover> {
    let (used, handle) = (mount.used?, mount.handle()?);
    Some(Recover {
        alloc: mount.alloc.clone(),
        volume: mount.volume.clone(),
        node: node.clone(),
        plugin: handle.plugin,
        external_id: handle.external_id,
        mode: used.mode,
        access: used.access,
        attachment: used.attachment,
    })
}
