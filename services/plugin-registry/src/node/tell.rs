//! `node.tell`: events of agents, put into the stream for them.
//!
//! **Promises** that a node tells of itself only ([`witness`](super::witness)), and that
//! what exceeds its [share](crate::store::event_shares) is dropped, counted and logged.

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::message::node::{StoredEvents, TellEvents, ToldEvent};
use berth_contract::problem::Problem;
use berth_telemetry::metric::EVENTS_REFUSED;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::store::state::State;

/// Queues the events.
pub async fn queue_events(
    state: &State,
    request: TellEvents,
    caller: &Caller,
) -> Result<StoredEvents, Problem> {
    let node = caller.sending_node()?;
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
