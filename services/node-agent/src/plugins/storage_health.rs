//! What a plugin said last of its storage, seen from this node (`NodeGetStorageHealth`).
//!
//! **Promises** that the last answer counts until another comes: a storage does not become well by
//! hanging.
//!
//! **Never** follows each word: while the same volumes are kept out, the words change now and then.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_domain::plugin::{StorageTrouble, are_alike};
use tokio::time::Instant;

/// How long words stay that say the same.
const WORDS_KEPT: Duration = Duration::from_secs(300);

/// The last answer.
#[derive(Debug, Default)]
pub(super) struct StorageHealth(Mutex<LastHealth>);

#[derive(Debug, Default)]
struct LastHealth {
    troubles: Vec<StorageTrouble>,
    since: Option<Instant>,
}

impl StorageHealth {
    /// Stores an answer. True if it is news.
    pub(super) fn set(&self, troubles: Vec<StorageTrouble>) -> bool {
        let mut last = self.lock();
        let is_kept = are_alike(&last.troubles, &troubles)
            && last.since.is_some_and(|since| since.elapsed() < WORDS_KEPT);
        if last.troubles == troubles || is_kept {
            return false;
        }
        *last = LastHealth { troubles, since: Some(Instant::now()) };
        true
    }

    pub(super) fn troubles(&self) -> Vec<StorageTrouble> {
        self.lock().troubles.clone()
    }

    fn lock(&self) -> MutexGuard<'_, LastHealth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(said: &str, unreachable: bool) -> StorageTrouble {
        StorageTrouble {
            unreachable,
            said: said.to_owned(),
            access: None,
            attachment: None,
            fs_type: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_words_are_news_only_now_and_then_and_another_trouble_is_at_once() {
        let health = StorageHealth::default();
        assert!(!health.set(Vec::new()), "it was well");
        assert!(health.set(vec![trouble("12 ms", true)]));
        for latency in 0..10 {
            assert!(!health.set(vec![trouble(&format!("{latency} ms"), true)]));
        }
        assert_eq!(health.troubles()[0].said, "12 ms");
        tokio::time::advance(WORDS_KEPT).await;
        assert!(health.set(vec![trouble("13 ms", true)]));
        assert!(health.set(vec![trouble("13 ms", false)]));
        assert!(health.set(Vec::new()));
    }
}
