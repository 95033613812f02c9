//! `node.leave`: deletes the records of a node that is decommissioned, and of its instances (D3).
//!
//! **Never** deletes the record of a node that was declared gone. The node's claims are released
//! without an answer of its agent. If the node comes back after all, its agent must be told to undo
//! what it has mounted (rule 12).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::registry::{Leave, Left};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Timestamp;
use berth_service::deadline;
use berth_service::record_table::{StoreError, retry_lost_races};
use tokio::time::Instant;

use crate::decide::{InstanceKey, Write};
use crate::events;
use crate::state::State;

const STEP: &str = verb::NodeLeave::STEP;

/// Deletes the node's records. The operator stops the agent first, or it reports the node again.
pub async fn leave(
    state: &State,
    request: Leave,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Left, Problem> {
    // Counts what all attempts deleted, also those that lost a race half-way.
    let left = Mutex::new(Left { known: false, instances: 0, gone: false });
    let attempt = || delete_records(state, &request, at, trace, deadline, &left);
    retry_lost_races(STEP, attempt).await.map_err(|problem| problem.node(&request.node))?;
    Ok(left.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Deletes the instances first: while one is left, the node is still on record and can be told to
/// leave again.
async fn delete_records(
    state: &State,
    Leave { node, revision }: &Leave,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
    left: &Mutex<Left>,
) -> Result<(), StoreError> {
    state.catch_up(STEP, deadline).await?;
    let instances: BTreeSet<InstanceKey> =
        state.mirrored_records(node).instances.into_keys().collect();
    let snapshot = state.read_node_records(node, instances).await?;
    let known = snapshot.records.node.as_ref();
    let node_revision = snapshot.revision(&key::node(node));
    if let Some(expected) = *revision {
        let present = known.map_or(0, |_| node_revision);
        if present != expected {
            let message = format!("the node's record is at revision {present}, not {expected}");
            return Err(Problem::new(Code::Changed, message).into());
        }
        // The agent may hold its lease again before the node's record says so.
        let lease = state.leases.get(&key::node_lease(node)).await?;
        if lease.is_some_and(|lease| lease.value.is_some()) {
            return Err(Problem::new(Code::NodeReady, "its agent holds its lease").into());
        }
    }
    deadline::check(deadline)?;
    let left = || left.lock().unwrap_or_else(PoisonError::into_inner);
    // The node half first, as in a report.
    for instance in snapshot.records.instances.keys().rev() {
        state.store(node, &snapshot, &Write::Delete(instance.clone()), trace).await?;
        let event = events::instance_left(node, instance, at, trace);
        events::publish(&state.events, &event, trace);
        left().instances += 1;
    }
    let Some(known) = known else { return Ok(()) };
    let is_gone = known.gone.is_some();
    left().known = true;
    left().gone = is_gone;
    if !is_gone {
        state.nodes.delete(&key::node(node), node_revision, trace).await?;
        events::publish(&state.events, &events::node_left(node, at, trace), trace);
    }
    Ok(())
}
