//! Watching what is mounted, for as long as the agent runs.

use std::time::Duration;

use berth_service::shutdown::Shutdown;
use tokio::task::JoinSet;

use super::Mounter;
use super::observe::Observer;
use crate::mount_health::MountWatcher;

impl Mounter {
    /// Looks at each mount at this interval, and reports what becomes of claims. Ends with the
    /// shutdown, or when the returned set is dropped.
    pub fn watch_mounts(&self, interval: Duration, shutdown: &Shutdown) -> JoinSet<()> {
        let shared = &self.shared;
        let looker = MountWatcher {
            journal: shared.journal.clone(),
            boot_id: shared.host.boot_id.clone(),
            healths: shared.healths.clone(),
            events: shared.events.clone(),
            interval,
        };
        let mut watched = JoinSet::new();
        watched.spawn(looker.run(shutdown.clone()));
        watched.spawn(Observer::new(self).run(shutdown.clone()));
        watched
    }
}
