//! Starts the tasks that watch the mounts while the agent runs.

use std::time::Duration;

use berth_service::shutdown::Shutdown;
use tokio::task::JoinSet;

use super::Mounter;
use super::observe::Observer;
use crate::mount_health::MountWatcher;

impl Mounter {
    /// Starts the probes of mounts at this interval, and the reports to the claim service. Both end
    /// at the shutdown, or when the returned set is dropped.
    pub fn watch_mounts(&self, interval: Duration, shutdown: &Shutdown) -> JoinSet<()> {
        let shared = &self.shared;
        let watcher = MountWatcher {
            journal: shared.journal.clone(),
            boot_id: shared.host.boot_id.clone(),
            healths: shared.healths.clone(),
            events: shared.events.clone(),
            interval,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(watcher.run(shutdown.clone()));
        tasks.spawn(Observer::new(self).run(shutdown.clone()));
        tasks
    }
}
