//! `node.leave`: a node goes for good, and takes its instances with it (D3).
//!
//! **Never** forgets that a node counts as gone: its claims were, or will be, released without its
//! word, and if it comes back after all it must be told to undo what it has mounted (rule 12).

use std::collections::BTreeSet;

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::registry::{Leave, Left};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{NodeId, Timestamp};
use berth_service::deadline;
use tokio::time::Instant;

use crate::decide::{InstanceKey, Write};
use crate::events;
use crate::state::State;
use crate::store::{LostRaces, StoreError};

const STEP: &str = verb::NodeLeave::STEP;

/// Forgets the node. An agent that is still there will report it again: stop it first.
pub async fn leave(
    state: &State,
    request: Leave,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Left, Problem> {
    let Leave { node, revision } = request;
    let mut left = Left { known: false, instances: 0, gone: false };
    let mut races = LostRaces::default();
    let forgotten = loop {
        let attempt = forget(state, &node, revision, at, trace, deadline, &mut left).await;
        if let Some(outcome) = races.outcome(STEP, attempt) {
            break outcome;
        }
    };
    forgotten.map_err(|problem| problem.node(&node))?;
    Ok(left)
}

/// The instances first: while any is left, the node is still there to be told to leave again.
async fn forget(
    state: &State,
    node: &NodeId,
    revision: Option<u64>,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
    left: &mut Left,
) -> Result<(), StoreError> {
    state.catch_up(STEP, deadline).await?;
    let places: BTreeSet<InstanceKey> = state.standing(node).instances.into_keys().collect();
    let seen = state.look(node, places).await?;
    if let Some(wanted) = revision {
        let known = seen.standing.node.is_some();
        let stands = if known { seen.revision(&key::node(node)) } else { 0 };
        if stands != wanted {
            let said = format!("the node's record is at revision {stands}, not {wanted}");
            return Err(Problem::new(Code::Changed, said).into());
        }
        // An agent may hold its lease again before its node's record says so.
        let lease = state.leases.get(&key::node_lease(node)).await?;
        if lease.is_some_and(|lease| lease.value.is_some()) {
            return Err(Problem::new(Code::NodeReady, "its agent holds its lease").into());
        }
    }
    deadline::check(deadline)?;
    for place in seen.standing.instances.keys() {
        state.store(node, &seen, &Write::Delete(place.clone()), trace).await?;
        events::tell(&state.events, &events::instance_left(node, place, at, trace), trace);
        left.instances += 1;
    }
    if let Some(known) = &seen.standing.node {
        left.known = true;
        left.gone = known.gone.is_some();
        if left.gone {
            return Ok(());
        }
        state.delete_node(node, &seen, trace).await?;
        events::tell(&state.events, &events::node_left(node, at, trace), trace);
        left.known = true;
    }
    Ok(())
}
