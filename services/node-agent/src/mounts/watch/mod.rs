//! The tasks that watch the mounts while the agent runs.
//!
//! **Owns** what was last reported of each mount.
//!
//! **Promises** that a mount which fails, hangs or is gone is on its claim's record within seconds.
//!
//! **Never** changes a mount.

mod condition;
mod observe;

use std::time::Duration;

use berth_service::shutdown::Shutdown;
use tokio::task::JoinSet;

use self::condition::ConditionWatcher;
use self::observe::Observer;
use crate::mounts::health::MountWatcher;
use crate::mounts::up::Mounting;

/// A plugin is asked after so many looks of the agent's own: the question may reach the storage.
const LOOKS_A_QUESTION: u32 = 3;

/// Starts the probes of mounts at this interval, the questions to their plugins, and the reports to
/// the claim service. All end at the shutdown, or when the returned set is dropped.
pub fn watch_mounts(mounting: &Mounting, interval: Duration, shutdown: &Shutdown) -> JoinSet<()> {
    let (local, healths) = (&mounting.local, &mounting.healths);
    let watcher = MountWatcher {
        journal: local.journal.clone(),
        boot_id: local.boot_id.clone(),
        healths: healths.clone(),
        events: mounting.events.clone(),
        interval,
    };
    let conditions = ConditionWatcher {
        journal: local.journal.clone(),
        plugins: mounting.plugins.clone(),
        executor: mounting.executor.clone(),
        healths: healths.clone(),
        interval: interval * LOOKS_A_QUESTION,
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(watcher.run(shutdown.clone()));
    tasks.spawn(conditions.run(shutdown.clone()));
    tasks.spawn(Observer::new(mounting).run(shutdown.clone()));
    tasks
}
