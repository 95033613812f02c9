//! `node.tell`: events of agents, put into the stream for them.
//!
//! **Owns** each node's share of the stream: a burst, and then so much each second.
//!
//! **Promises** that a node tells of itself only ([`witness`](crate::witness)), and that no node
//! alone can push the events of others out of the stream within an hour. What exceeds its share is
//! dropped, counted and logged.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::message::node::{StoredEvents, Tell, ToldEvent};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::NodeId;
use berth_service::rate::TokenBucket;
use berth_telemetry::metric::EVENTS_REFUSED;
use tokio::time::Instant;

use crate::state::State;

const STEP: &str = verb::NodeTell::STEP;
/// Bytes of a node's events at once, after a quiet time: some ten thousand events.
const BURST_BYTES: f64 = 8.0 * 1024.0 * 1024.0;
/// Bytes of a node's events each second, while they keep coming: some hundred events. The stream
/// holds an hour of it.
const BYTES_PER_SECOND: f64 = 64.0 * 1024.0;
/// Nodes whose share is remembered. Those with a full share are forgotten first.
const NODES_MAX: usize = 10_000;

/// What each node may still tell.
#[derive(Debug, Default)]
pub struct EventShares(Mutex<HashMap<NodeId, TokenBucket>>);

impl EventShares {
    /// Takes so many bytes from the node's share, if they are left.
    fn take(&self, node: &NodeId, bytes: usize, now: Instant) -> bool {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shares.len() >= NODES_MAX && !shares.contains_key(node) {
            shares.retain(|_, share| !share.is_full(now));
        }
        let full = || TokenBucket::new(BURST_BYTES, BYTES_PER_SECOND, now);
        let bytes = u32::try_from(bytes).map_or(f64::MAX, f64::from);
        shares.entry(node.clone()).or_insert_with(full).take(bytes, now)
    }
}

/// Queues the events. `node` is the sender's.
pub async fn queue_events(
    state: &State,
    node: &NodeId,
    request: Tell,
) -> Result<StoredEvents, Problem> {
    let faults = request.faults();
    if !faults.is_empty() {
        return Err(Problem::bad_input(STEP, faults).node(node));
    }
    let foreign = request.events.iter().find(|told| told.event.node.as_ref() != Some(node));
    if let Some(told) = foreign {
        let of = told.event.node.as_ref().map_or_else(|| "no node".to_owned(), ToString::to_string);
        let message = format!("node {node} may not tell the event {} of {of}", told.event.event);
        return Err(Problem::new(Code::NotAllowed, message).node(node));
    }
    let (count, actor, now) = (request.events.len(), Actor::Node(node.clone()), Instant::now());
    let mut taken = request.events;
    taken.retain(|told| {
        let bytes = serde_json::to_vec(&told.event).map_or(usize::MAX, |body| body.len());
        state.event_shares.take(node, bytes, now)
    });
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_nodes_flood_takes_nothing_from_another_node() {
        let (shares, now) = (EventShares::default(), Instant::now());
        let node = |id: &str| NodeId::new(id).unwrap();
        let told = |id: &str, at| (0..30_000).filter(|_| shares.take(&node(id), 1024, at)).count();
        assert_eq!(told("rogue", now), 8 * 1024);
        assert_eq!(told("rogue", now + Duration::from_secs(2)), 128);
        assert_eq!(told("good", now + Duration::from_secs(2)), 8 * 1024);
    }
}
