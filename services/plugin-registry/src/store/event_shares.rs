//! Each node's share of the stream of events: a burst, and then a rate. It counts the events that a
//! node tells, and those that its reports and its lease cause.
//!
//! **Promises** that no node alone can push the others' events out of the stream within an hour.

use std::sync::{Mutex, PoisonError};

use berth_contract::event::Event;
use berth_domain::NodeId;
use berth_service::rate::SenderRates;
use tokio::time::Instant;

/// Bytes of a node's events at once, after a quiet time: about ten thousand events.
const BURST_BYTES: f64 = 8.0 * 1024.0 * 1024.0;
/// Bytes of a node's events per second in the long run: about a hundred events. The stream holds an
/// hour of them.
const BYTES_PER_SECOND: f64 = 64.0 * 1024.0;

/// The rest of each node's share.
#[derive(Debug)]
pub struct EventShares(Mutex<SenderRates<NodeId>>);

impl Default for EventShares {
    fn default() -> Self {
        Self(Mutex::new(SenderRates::new(BURST_BYTES, BYTES_PER_SECOND)))
    }
}

impl EventShares {
    /// Takes the event's bytes from the node's share; false if they exceed it.
    pub fn take_event(&self, node: &NodeId, event: &Event, now: Instant) -> bool {
        let bytes = serde_json::to_vec(event).map_or(usize::MAX, |body| body.len());
        self.take(node, bytes, now)
    }

    fn take(&self, node: &NodeId, bytes: usize, now: Instant) -> bool {
        let bytes = u32::try_from(bytes).map_or(f64::MAX, f64::from);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(node, bytes, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_nodes_flood_takes_nothing_from_another_node() {
        let (shares, now) = (EventShares::default(), Instant::now());
        let node = |id: &str| NodeId::new(id).unwrap();
        let accepted =
            |id: &str, at| (0..30_000).filter(|_| shares.take(&node(id), 1024, at)).count();
        assert_eq!(accepted("rogue", now), 8 * 1024);
        assert_eq!(accepted("rogue", now + Duration::from_secs(2)), 128);
        assert_eq!(accepted("good", now + Duration::from_secs(2)), 8 * 1024);
    }
}
