//! Whether a plugin has room for a further volume on this node, by its last answers.
//!
//! **Promises** that a node counts as full only after the plugin said `RESOURCE_EXHAUSTED` here,
//! and no longer than [`FULL_AT_MOST`]: the plugin does not say when there is room again.
//!
//! **Never** refuses a call: placement and claims do, by the report.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long the node counts as full after the last such answer, if no volume leaves it.
const FULL_AT_MOST: Duration = Duration::from_secs(60);

/// The plugin's last word on its room.
#[derive(Debug, Default)]
pub(super) struct NodeRoom {
    full: Mutex<Option<(String, Instant)>>,
}

impl NodeRoom {
    /// The plugin has no room. True if that is new.
    pub(super) fn set_full(&self, why: String) -> bool {
        let before = self.replace(Some((why.clone(), Instant::now())));
        before.is_none_or(|(known, _)| known != why)
    }

    /// A volume of the plugin left the node. True if the node was full.
    pub(super) fn clear(&self) -> bool {
        self.replace(None).is_some()
    }

    /// Forgets an answer that is too old. True if the node was full by it.
    pub(super) fn expire(&self) -> bool {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        full.take_if(|(_, since)| since.elapsed() > FULL_AT_MOST).is_some()
    }

    /// Why the node is full, in the plugin's words.
    pub(super) fn why_full(&self) -> Option<String> {
        let full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        full.as_ref().map(|(why, _)| why.clone())
    }

    fn replace(&self, full: Option<(String, Instant)>) -> Option<(String, Instant)> {
        std::mem::replace(&mut *self.full.lock().unwrap_or_else(PoisonError::into_inner), full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_is_full_until_a_volume_leaves_or_the_answer_is_old() {
        let room = NodeRoom::default();
        assert!(room.set_full("25 of 25".to_owned()));
        assert!(!room.set_full("25 of 25".to_owned()), "nothing is new");
        tokio::time::advance(FULL_AT_MOST).await;
        assert!(!room.expire());
        assert_eq!(room.why_full().as_deref(), Some("25 of 25"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(room.expire() && room.why_full().is_none() && !room.expire());
        assert!(room.set_full("25 of 25".to_owned()));
        assert!(room.clear() && !room.clear());
        assert_eq!(room.why_full(), None);
    }
}
