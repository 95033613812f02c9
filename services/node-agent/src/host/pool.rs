//! Host operations of this agent that may hang.
//!
//! **Owns** how they are counted: [`VolumeHost`] and the functions beside it say which share an
//! operation takes from.
//!
//! **Promises** that everything that touches a mount, a caller's path, a plugin's files or `/proc`
//! runs in the [`HostPool`], with a deadline. Tokio's threads for blocking calls are left to the
//! journal and to the resolver by which the bus is found again: what hangs delays neither a write
//! to the journal nor the lease.
//!
//! **Never** repeats an operation by itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_domain::PluginId;
use berth_host::{HostOperation, HostPool, HostPoolError};

use crate::host::paths::VolumePaths;

/// How long something may be looked at.
pub(crate) const INSPECT_MAX: Duration = Duration::from_secs(5);
/// How long a mount, an unmount or the start of a process may take.
pub(crate) const CHANGE_MAX: Duration = Duration::from_secs(30);
/// How long it may take to look at all processes.
pub(crate) const PROCESSES_MAX: Duration = Duration::from_secs(10);

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
pub(crate) fn probe_operation(plugin: &PluginId, target: &Path) -> HostOperation {
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
