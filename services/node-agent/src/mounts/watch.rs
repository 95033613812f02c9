//! Starts the tasks that watch the mounts while the agent runs.

use std::time::Duration;

use berth_service::shutdown::Shutdown;
use tokio::task::JoinSet;

use super::condition::ConditionWatcher;
use super::mounter::Mounter;
use super::observe::Observer;
use crate::mounts::health::MountWatcher;

/// A plugin is asked after so many looks of the agent's own: the question may reach the storage.
const LOOKS_A_QUESTION: u32 = 3;

impl Mounter {
    /// Starts the probes of mounts at this interval, the questions to their plugins, and the
    /// reports to the claim service. All end at the shutdown, or when the returned set is dropped.
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
        let conditions =
            ConditionWatcher { mounter: self.clone(), interval: interval * LOOKS_A_QUESTION };
        tasks.spawn(conditions.run(shutdown.clone()));
        tasks.spawn(Observer::new(self).run(shutdown.clone()));
        tasks
    }
}
