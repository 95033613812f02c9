//! Host operations of this agent that may hang.
//!
//! **Owns** how they are counted ([`VolumeHost`] and the functions beside it say which share an
//! operation takes from) and shown: as the node's attribute `hung`, as a metric, and in the log.
//!
//! **Promises** that everything that touches a mount, a caller's path, a plugin's files or `/proc`
//! runs in the [`HostPool`], with a deadline. Tokio's threads for blocking calls are left to the
//! journal, to Docker's store, and to the resolver by which the bus is found again: what hangs
//! delays neither a write to the journal nor the lease.
//!
//! **Never** repeats an operation by itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_domain::PluginId;
use berth_host::{HostOperation, HostPool, HostPoolError, HungOperations};
use berth_service::shutdown::Shutdown;
use berth_telemetry::metric::HOST_OPERATIONS_HUNG;
use tokio::time::sleep;

use crate::fault_report::FaultReport;
use crate::paths::VolumePaths;

/// How long something may be looked at.
pub(crate) const INSPECT_MAX: Duration = Duration::from_secs(5);
/// How long a mount, an unmount or the start of a process may take.
pub(crate) const CHANGE_MAX: Duration = Duration::from_secs(30);
/// How long it may take to look at all processes.
pub(crate) const PROCESSES_MAX: Duration = Duration::from_secs(10);
/// Interval at which the hung operations are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Changes of the mounts of one volume, one at a time.
///
/// A change that hangs keeps every later change of its volume out, also after its caller gave up: a
/// mount that is made late is not made behind the back of the unmount that followed it.
#[derive(Debug, Clone)]
pub(crate) struct VolumeHost {
    pool: HostPool,
    share: Arc<str>,
    volume_dir: PathBuf,
}

impl VolumeHost {
    /// For the volume of this plugin that lies there.
    pub(crate) fn new(pool: &HostPool, plugin: &PluginId, place: &VolumePaths) -> Self {
        let share = format!("mounts of plugin {plugin}").into();
        Self { pool: pool.clone(), share, volume_dir: place.volume_dir.clone() }
    }

    /// Changes something, or looks at what is about to be changed.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HostPoolError> {
        let operation = HostOperation::new(what, Arc::clone(&self.share), self.volume_dir.clone());
        self.pool.run(operation, CHANGE_MAX, work).await
    }
}

/// A look at what a plugin has mounted at `target`.
pub(crate) fn look_at_mount(plugin: &PluginId, target: &Path) -> HostOperation {
    HostOperation::new("look", format!("looks at mounts of plugin {plugin}"), target)
}

/// Reads or writes a file of the agent itself, or one beside which plugins are found.
pub(crate) async fn with_agent_file<T: Send + 'static>(
    what: &'static str,
    file: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let operation = HostOperation::new(what, "files of the agent", file);
    HostPool::of_process().run(operation, INSPECT_MAX, work).await?
}

/// Looks at the processes of the host. `for_whom` tells two such looks apart.
pub(crate) async fn with_processes<T: Send + 'static>(
    what: &'static str,
    for_whom: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let operation = HostOperation::new(what, "processes", for_whom);
    HostPool::of_process().run(operation, PROCESSES_MAX, work).await?
}

/// Keeps the report of hung operations current until the shutdown.
pub async fn watch_hung(report: FaultReport, pool: HostPool, shutdown: Shutdown) {
    loop {
        update_report(&report, pool.hung().as_ref());
        tokio::select! {
            () = sleep(COUNT_INTERVAL) => {}
            () = shutdown.requested() => return,
        }
    }
}

fn update_report(report: &FaultReport, hung: Option<&HungOperations>) {
    let count = hung.map_or(0, |hung| hung.count);
    HOST_OPERATIONS_HUNG.set(u64::try_from(count).unwrap_or(u64::MAX), []);
    let hung = hung.map(ToString::to_string);
    if report.set(hung.clone()) {
        if let Some(hung) = hung {
            tracing::warn!(hung, "host operations hang");
        } else {
            tracing::info!("no host operation hangs any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_changes_when_another_operation_hangs_and_not_while_the_same_one_does() {
        let report = FaultReport::default();
        let mut told = report.follow();
        let hung = HungOperations {
            count: 2,
            oldest: HostOperation::new("unmount", "mounts of plugin p", "/s/csi/v"),
            since: std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        };
        update_report(&report, Some(&hung));
        assert!(told.has_changed().unwrap());
        let said = told.borrow_and_update().clone().unwrap();
        assert_eq!(
            said,
            "2 host operations hang, the oldest since 2027-01-15T08:00:00Z: unmount at /s/csi/v \
             (mounts of plugin p)"
        );
        update_report(&report, Some(&hung));
        assert!(!told.has_changed().unwrap());
        update_report(&report, None);
        assert_eq!(told.borrow_and_update().clone(), None);
    }
}
