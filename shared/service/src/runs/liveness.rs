//! Whether a guard lives: a process, a cgroup, or the lock on a file.
//!
//! **Owns** the lock files that are held open. A file that was removed while it is locked stays
//! locked, which only an open descriptor of it shows.
//!
//! **Promises** an error if the guard's state cannot be determined.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::message::agent::Guard;
use berth_host::process::find_open_file;
use berth_host::{ProcessHandle, cgroup};

use super::record::{FileId, RunGuard, found};

/// Checks guards. Clones share the open files.
#[derive(Debug, Clone, Default)]
pub(super) struct Liveness {
    held: Arc<Mutex<HashMap<FileId, Arc<File>>>>,
}

impl Liveness {
    /// Whether the guard lives. `dir` has the lock files.
    pub(super) fn lives(&self, dir: &Path, guard: &RunGuard) -> io::Result<bool> {
        let RunGuard { guard, boot_id, file } = guard;
        if *boot_id != berth_host::read_boot_id()? {
            return Ok(false);
        }
        match guard {
            Guard { pid: Some(pid), start: Some(start), .. } => {
                Ok(ProcessHandle::open(*pid, *start)?.is_some())
            }
            Guard { cgroup: Some(dir), .. } => cgroup::has_process(Path::new(dir)),
            Guard { lock: Some(name), .. } => self.is_lock_held(&dir.join(name), *file),
            _ => Ok(false),
        }
    }

    /// Opens a lock file and keeps it open. `None` if there is none.
    pub(super) fn hold(&self, path: &Path) -> io::Result<Option<FileId>> {
        let Some(file) = found(open_lock(path))? else { return Ok(None) };
        let id = FileId::from_metadata(&file.metadata()?);
        self.held().entry(id).or_insert_with(|| Arc::new(file));
        Ok(Some(id))
    }

    /// Closes the lock file of a guard that has ended.
    pub(super) fn let_go(&self, guard: &RunGuard) {
        if let Some(id) = guard.file {
            self.held().remove(&id);
        }
    }

    fn is_lock_held(&self, path: &Path, file_id: Option<FileId>) -> io::Result<bool> {
        if let Some(open_file) = file_id.and_then(|id| self.held().get(&id).map(Arc::clone)) {
            return is_locked(&open_file);
        }
        if let Some(there) = found(open_lock(path))? {
            let id = FileId::from_metadata(&there.metadata()?);
            if file_id.is_none_or(|file_id| file_id == id) {
                let is_held = is_locked(&there);
                self.held().extend(file_id.map(|id| (id, Arc::new(there))));
                return is_held;
            }
        }
        let Some(file_id) = file_id else {
            // A version that did not record the locked file accepted the guard.
            let message = "its lock file is gone, and it is not known which file it was";
            return Err(io::Error::new(ErrorKind::NotFound, message));
        };
        // A locked file is open in a process.
        let Some(found_file) = find_open_file(file_id.dev, file_id.ino)? else { return Ok(false) };
        let is_held = is_locked(&found_file);
        self.held().insert(file_id, Arc::new(found_file));
        is_held
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<FileId, Arc<File>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether another process has locked the file. Processes that only check do not see each other.
pub(super) fn is_locked(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Opens the lock file of a guard. The directory is the agent's own, and has nothing but plain
/// files.
fn open_lock(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "a lock must be a plain file"))
}
