//! Whether a plugin has room for a further volume on this node, by its last answers.
//!
//! **Promises** that a node counts as full only after the plugin said `RESOURCE_EXHAUSTED` here,
//! and no longer than [`FULL_AT_MOST`]: the plugin does not say when there is room again.
//!
//! **Never** refuses a call: placement and claims do, by the report.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long the node counts as full after such an answer, if no volume leaves it.
const FULL_AT_MOST: Duration = Duration::from_secs(60);
/// Volumes of which it is remembered that they were refused. Beyond that they say so again.
const REFUSED_MAX: usize = 1024;

/// The plugin's last word on its room.
#[derive(Debug, Default)]
pub(super) struct NodeRoom(Mutex<LastWord>);

#[derive(Debug, Default)]
struct LastWord {
    /// Why the node is full, and since when.
    full: Option<(String, Instant)>,
    /// The volumes that were refused since there was room last. One that is refused again says
    /// nothing new of the node: it may be refused for itself, for as long as it is asked for.
    refused: BTreeSet<String>,
}

impl NodeRoom {
    /// The plugin has no room for this volume. True if the node is full by that, and was not.
    pub(super) fn set_full(&self, volume: &str, why: String) -> bool {
        let mut word = self.lock();
        if word.refused.len() >= REFUSED_MAX {
            word.refused.clear();
        }
        if !word.refused.insert(volume.to_owned()) {
            return false;
        }
        word.full.replace((why, Instant::now())).is_none()
    }

    /// A volume of the plugin left the node. True if the node was full.
    pub(super) fn clear(&self) -> bool {
        std::mem::take(&mut *self.lock()).full.is_some()
    }

    /// Forgets an answer that is too old. True if the node was full by it.
    pub(super) fn expire(&self) -> bool {
        self.lock().full.take_if(|(_, since)| since.elapsed() > FULL_AT_MOST).is_some()
    }

    /// Why the node is full, in the plugin's words.
    pub(super) fn why_full(&self) -> Option<String> {
        self.lock().full.as_ref().map(|(why, _)| why.clone())
    }

    fn lock(&self) -> MutexGuard<'_, LastWord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHY: &str = "25 of 25";

    #[tokio::test(start_paused = true)]
    async fn a_node_is_full_until_a_volume_leaves_or_the_answer_is_old() {
        let room = NodeRoom::default();
        assert!(room.set_full("a", WHY.to_owned()));
        assert!(!room.set_full("b", "26 of 25".to_owned()), "it was full");
        tokio::time::advance(FULL_AT_MOST).await;
        assert!(!room.expire());
        assert_eq!(room.why_full().as_deref(), Some("26 of 25"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(room.expire() && room.why_full().is_none() && !room.expire());
        assert!(room.set_full("c", WHY.to_owned()));
        assert!(room.clear() && !room.clear());
        assert_eq!(room.why_full(), None);
    }

    /// Its own quota may be the reason.
    #[tokio::test(start_paused = true)]
    async fn a_volume_that_is_refused_again_and_again_keeps_no_other_one_out() {
        let room = NodeRoom::default();
        assert!(room.set_full("a", WHY.to_owned()));
        for _ in 0..100 {
            tokio::time::advance(Duration::from_secs(1)).await;
            room.expire();
            assert!(!room.set_full("a", WHY.to_owned()));
        }
        assert_eq!(room.why_full(), None);
        assert!(!room.clear());
        assert!(room.set_full("a", WHY.to_owned()), "a volume left meanwhile");
    }
}
