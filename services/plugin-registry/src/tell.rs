//! `node.tell`: events of agents, put into the stream for them.
//!
//! **Promises** that a node tells of itself only ([`witness`](crate::witness)), and that
//! what exceeds its [share](crate::event_shares) is dropped, counted and logged.

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::message::node::{StoredEvents, Tell, ToldEvent};
use berth_contract::problem::Problem;
use berth_domain::NodeId;
use berth_telemetry::metric::EVENTS_REFUSED;
use tokio::time::Instant;

use crate::state::State;

/// Queues the events. `node` is the sender's.
pub async fn queue_events(
    state: &State,
    node: &NodeId,
    request: Tell,
) -> Result<StoredEvents, Problem> {
    let faults = request.faults();
    if !faults.is_empty() {
        return Err(Problem::bad_input(faults).node(node));
    }
    let foreign = request.events.iter().find(|told| told.event.node.as_ref() != Some(node));
    if let Some(told) = foreign {
        let of = told.event.node.as_ref().map_or_else(|| "no node".to_owned(), ToString::to_string);
        let message = format!("node {node} may not tell the event {} of {of}", told.event.event);
        return Err(Problem::new(Code::NotAllowed, message).node(node));
    }
    let (count, actor, now) = (request.events.len(), Actor::Node(node.clone()), Instant::now());
    let mut taken = request.events;
    taken.retain(|told| state.event_shares.take_event(node, &told.event, now));
    let stored = taken.len();
    for ToldEvent { event, traceparent } in state.witness(node, taken).await? {
        state.events.publish_for(&actor, &event.subject(), &event, traceparent);
    }
    let refused = count - stored;
    if refused > 0 {
        EVENTS_REFUSED.add(refused as u64, []);
        tracing::warn!(%node, refused, "the node tells more events than its share; they are lost");
    }
    Ok(StoredEvents { stored })
}
