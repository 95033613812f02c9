//! The question of how a plugin's storage is, seen from this node (`NodeGetStorageHealth`).
//!
//! **Promises** at most one question at a time. It has a connection of its own, so one that hangs
//! holds up neither a probe nor a call.
//!
//! **Never** keeps an answer beyond its process: an agent that restarts knows nothing of the
//! storage until the first answer, and reports no trouble until then.

use std::time::Duration;

use berth_csi::{Client, health, v1};
use berth_host::trust::TrustedUsers;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::member::PluginInstance;
use super::plugin::Plugin;

/// Time between questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long the plugin may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

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
