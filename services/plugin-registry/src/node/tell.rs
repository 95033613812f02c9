//! `node.tell`: stores events of agents in the stream of events, on behalf of the agents.
//!
//! **Promises** that a node tells only of itself ([`witness`](super::witness)), and that events
//! beyond the node's [share](crate::store::event_shares) are dropped, counted and logged.

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::message::node::{StoredEvents, TellEvents, ToldEvent};
use berth_contract::problem::Problem;
use berth_telemetry::metric::EVENTS_REFUSED;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::store::state::State;

/// Queues the events for publication.
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
    let foreign =
        request.events.iter().find(|told_event| told_event.event.node.as_ref() != Some(node));
    if let Some(told_event) = foreign {
        let claimed_node = told_event
            .event
            .node
            .as_ref()
            .map_or_else(|| "no node".to_owned(), ToString::to_string);
        let message = format!(
            "node {node} may not tell the event {} of {claimed_node}",
            told_event.event.event
        );
        return Err(Problem::new(Code::NotAllowed, message).node(node));
    }
    let (count, actor, now) = (request.events.len(), Actor::Node(node.clone()), Instant::now());
    let mut accepted = request.events;
    accepted.retain(|told_event| state.event_shares.take_event(node, &told_event.event, now));
    let stored = accepted.len();
    for ToldEvent { event, traceparent } in state.witness(node, accepted).await? {
        state.events.publish_for(&actor, &event.subject(), &event, traceparent);
    }
    let refused = count - stored;
    if refused > 0 {
        EVENTS_REFUSED.add(refused as u64, []);
        tracing::warn!(%node, refused, "the node tells more events than its share; they are lost");
    }
    Ok(StoredEvents { stored })
}
