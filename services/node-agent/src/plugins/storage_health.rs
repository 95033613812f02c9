//! What a plugin says of its storage, seen from this node (`NodeGetStorageHealth`).
//!
//! **Owns** the question, again and again, and the last answer.
//!
//! **Promises** that the last answer counts until another comes: a storage does not become well by
//! hanging. The question has a connection of its own, so it holds up neither a probe nor a call.
//!
//! **Never** follows each word: while the same volumes are kept out, the words change now and then.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_csi::{Client, health, v1};
use berth_domain::plugin::StorageTrouble;
use berth_host::trust::TrustedUsers;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::member::PluginInstance;
use super::plugin::Plugin;

/// Time between questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long the plugin may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long words stay that say the same.
const WORDS_KEPT: Duration = Duration::from_secs(300);

/// The last answer.
#[derive(Debug, Default)]
pub(super) struct StorageHealth(Mutex<Answer>);

#[derive(Debug, Default)]
struct Answer {
    troubles: Vec<StorageTrouble>,
    since: Option<Instant>,
}

impl StorageHealth {
    /// Stores an answer. True if it is news.
    pub(super) fn set(&self, troubles: Vec<StorageTrouble>) -> bool {
        let mut last = self.lock();
        let is_same = last.troubles.len() == troubles.len()
            && last.troubles.iter().zip(&troubles).all(|(last, now)| last.is_alike(now));
        let is_kept = is_same && last.since.is_some_and(|since| since.elapsed() < WORDS_KEPT);
        if last.troubles == troubles || is_kept {
            return false;
        }
        *last = Answer { troubles, since: Some(Instant::now()) };
        true
    }

    pub(super) fn troubles(&self) -> Vec<StorageTrouble> {
        self.lock().troubles.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The question to one instance.
pub(super) struct StorageQuestion {
    client: Client,
    last: Option<Instant>,
    /// At most one.
    asking: JoinSet<()>,
}

impl StorageQuestion {
    pub(super) fn new(member: &PluginInstance) -> Self {
        let trusted = TrustedUsers::own().and(member.declaration.owner);
        let client = Client::trusting(&member.socket, trusted);
        Self { client, last: None, asking: JoinSet::new() }
    }

    /// Asks, if that is due and the instance is the one that mounts. Returns at once.
    pub(super) fn ask_if_due(&mut self, member: &PluginInstance, plugin: &Plugin) {
        let view = member.view();
        if !view.healthy || !plugin.mounts_by(member) {
            return;
        }
        let node = view.fingerprint.and_then(|known| known.node);
        if !node.is_some_and(|node| node.capabilities.get_storage_health) {
            plugin.record_storage(Vec::new());
            return;
        }
        while self.asking.try_join_next().is_some() {}
        let is_due = self.last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if !is_due || !self.asking.is_empty() {
            return;
        }
        self.last = Some(Instant::now());
        let (client, plugin) = (self.client.clone(), plugin.clone());
        self.asking.spawn(async move {
            let request = v1::NodeGetStorageHealthRequest::default();
            match client.call(request, ANSWER_WITHIN).await {
                Ok(answer) => plugin.record_storage(health::of_storage(&answer)),
                Err(error) => {
                    tracing::debug!(plugin = %plugin.id, %error, "it does not tell of its storage");
                }
            }
        });
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
