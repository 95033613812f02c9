//! `node.leave`: a node goes for good, and takes its instances with it (D3).

use std::collections::BTreeSet;

use berth_contract::message::registry::{Leave, Left};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::{NodeId, Timestamp};
use tokio::time::Instant;

use crate::decide::{Place, Write};
use crate::events;
use crate::state::State;
use crate::store::{RACES_MAX, StoreError};

const STEP: &str = "node.leave";

/// Forgets the node. An agent that is still there will report it again: stop it first.
pub async fn leave(
    state: &State,
    request: Leave,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Left, Problem> {
    let node = request.node;
    let mut left = Left { known: false, instances: 0 };
    for _ in 0..RACES_MAX {
        state.catch_up(STEP, deadline).await?;
        match forget(state, &node, at, trace, &mut left).await {
            Ok(()) => return Ok(left),
            Err(error) if error.is_lost_race() => {}
            Err(error) => return Err(error.into_problem(STEP, &node)),
        }
    }
    Err(StoreError::Contended { node: node.clone() }.into_problem(STEP, &node))
}

/// The instances first: while any is left, the node is still there to be told to leave again.
async fn forget(
    state: &State,
    node: &NodeId,
    at: Timestamp,
    trace: TraceContext,
    left: &mut Left,
) -> Result<(), StoreError> {
    let places: BTreeSet<Place> = state.standing(node).instances.into_keys().collect();
    let seen = state.look(node, places).await?;
    for place in seen.standing.instances.keys() {
        state.store(node, &seen, &Write::Delete(place.clone()), trace).await?;
        events::tell(&state.events, &events::instance_left(node, place, at, trace), trace);
        left.instances += 1;
    }
    if seen.standing.node.is_some() {
        state.delete_node(node, &seen, trace).await?;
        events::tell(&state.events, &events::node_left(node, at, trace), trace);
        left.known = true;
    }
    Ok(())
}
