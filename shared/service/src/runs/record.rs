//! The content of a run's file.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;

use berth_contract::message::agent::Guard;
use berth_domain::alloc::AllocState;
use berth_domain::{AllocId, Namespace};
use serde::{Deserialize, Serialize};

/// The extension of a run's file.
pub(super) const JSON: &str = "json";

/// The alloc and the runner of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The alloc's namespace.
    pub namespace: Namespace,
    /// The alloc that claims the volumes.
    pub alloc: AllocId,
    /// The runner's process id, for people.
    pub pid: u32,
    /// The mark that distinguishes this run's processes from those of every other run on the host;
    /// empty in a file of an older version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mark: String,
    /// How the run ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// The guard in place of a runner, if a scheduler started the workload itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<RunGuard>,
}

/// The guard that a scheduler named for its alloc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunGuard {
    /// A process, a cgroup or a lock.
    pub guard: Guard,
    /// The boot of the host in which it was named. In another boot it does not live.
    pub boot_id: String,
    /// For a lock: the file that was locked, whatever its name is now. `None` if an earlier version
    /// wrote the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileId>,
}

impl RunGuard {
    /// Whether both name the same process, cgroup or lock.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.guard, &self.boot_id) == (&other.guard, &other.boot_id)
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What the alloc's state becomes.
    pub state: AllocState,
    /// Why, for people.
    pub note: String,
}

/// One file, whatever its name. Valid while it exists or is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// The device, as `st_dev`.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
}

impl FileId {
    pub(super) fn from_metadata(metadata: &fs::Metadata) -> Self {
        Self { dev: metadata.dev(), ino: metadata.ino() }
    }
}

/// The result, or none for a file that does not exist.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
