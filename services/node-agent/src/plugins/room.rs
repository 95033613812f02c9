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
/// How long a volume that left the node may still count at the plugin: its controller detaches it
/// later, and this agent does not learn when.
const DETACHED_WITHIN: Duration = Duration::from_secs(30);
/// How long the node counts as full by an answer that came in that time.
const FULL_WHILE_DETACHING: Duration = Duration::from_secs(3);
/// Volumes of which it is remembered that they were refused. Beyond that they say so again.
const REFUSED_MAX: usize = 1024;

/// The plugin's last word on its room.
#[derive(Debug, Default)]
pub(super) struct NodeRoom(Mutex<LastWord>);

#[derive(Debug, Default)]
struct LastWord {
    /// Why the node is full, and until when it counts so.
    full: Option<(String, Instant)>,
    /// When a volume left the node last.
    left: Option<Instant>,
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
        let is_detaching = word.left.is_some_and(|left| left.elapsed() <= DETACHED_WITHIN);
        let lasts = if is_detaching { FULL_WHILE_DETACHING } else { FULL_AT_MOST };
        word.full.replace((why, Instant::now() + lasts)).is_none()
    }

    /// A volume of the plugin left the node. True if the node was full.
    pub(super) fn clear(&self) -> bool {
        let now = LastWord { left: Some(Instant::now()), ..LastWord::default() };
        std::mem::replace(&mut *self.lock(), now).full.is_some()
    }

    /// Forgets an answer that is too old. True if the node was full by it.
    pub(super) fn expire(&self) -> bool {
        self.lock().full.take_if(|(_, until)| *until < Instant::now()).is_some()
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

    /// The plugin counts the volume until its controller has detached it.
    #[tokio::test(start_paused = true)]
    async fn an_answer_soon_after_a_volume_left_makes_the_node_full_for_moments() {
        let room = NodeRoom::default();
        assert!(!room.clear());
        assert!(room.set_full("a", WHY.to_owned()));
        tokio::time::advance(FULL_WHILE_DETACHING + Duration::from_millis(1)).await;
        assert!(room.expire(), "the one that left is detached by now");
        tokio::time::advance(DETACHED_WITHIN).await;
        assert!(room.set_full("b", WHY.to_owned()));
        tokio::time::advance(FULL_AT_MOST).await;
        assert!(!room.expire(), "nothing has left for long");
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
