//! File locks that end with their holder.
//!
//! Owns: how this driver locks a file. Promises: the kernel drops the locks of a dead process. A
//! program that was started under a lock keeps it until the program ends, even if the driver is
//! killed. Never: waits without a timeout.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

/// How long to wait for a lock. Locks are held for a few file operations, so a longer wait means a
/// stopped process.
const WAIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// An exclusive lock between processes and threads.
#[derive(Debug)]
pub struct Lock {
    held: LockedFile,
}

/// A locked file. Dropping this value unlocks it explicitly: a child process that is just being
/// started has a copy of the file handle, and would keep the lock otherwise.
#[derive(Debug)]
pub struct LockedFile(File);

#[derive(Debug, Error)]
pub enum LockError {
    #[error(
        "{} was held by another process for {waited_ms} ms; is that process stopped?",
        path.display()
    )]
    Held { path: PathBuf, waited_ms: u64 },
    #[error("{} is gone", path.display())]
    Gone { path: PathBuf },
    #[error("cannot lock {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl LockedFile {
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // If this fails, the kernel unlocks when the last copy of the handle is closed.
        _ = self.0.unlock();
    }
}

impl Lock {
    /// Waits for the lock on `path`. Creates the file if it is missing.
    pub fn wait(path: &Path) -> Result<Self, LockError> {
        let start = Instant::now();
        loop {
            // The lock of a file that was removed meanwhile protects nothing.
            if let Ok(locked) = try_lock(path)?
                && is_at(locked.file(), path)?
            {
                return Ok(Self { held: locked });
            }
            if start.elapsed() > WAIT {
                let waited_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
                return Err(LockError::Held { path: path.to_owned(), waited_ms });
            }
            thread::sleep(PAUSE);
        }
    }

    /// A handle for a program that works under this lock. The lock lasts until the program closes
    /// the handle, unless this value is dropped.
    pub fn handle(&self) -> io::Result<File> {
        self.held.file().try_clone()
    }
}

/// Opens or creates `path` and tries to lock it. Returns the unlocked file if another process has
/// the lock.
pub fn try_lock(path: &Path) -> Result<Result<LockedFile, File>, LockError> {
    let failed = |source| LockError::Io { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => LockError::Gone { path: path.to_owned() },
        _ => failed(source),
    })?;
    match file.try_lock() {
        Ok(()) => Ok(Ok(LockedFile(file))),
        Err(TryLockError::WouldBlock) => Ok(Err(file)),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Whether `path` still leads to this file.
fn is_at(file: &File, path: &Path) -> Result<bool, LockError> {
    let failed = |source| LockError::Io { path: path.to_owned(), source };
    let own_metadata = file.metadata().map_err(failed)?;
    match fs::metadata(path) {
        Ok(found_metadata) => Ok((own_metadata.dev(), own_metadata.ino())
            == (found_metadata.dev(), found_metadata.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_under_the_lock_come_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, count) = (dir.path().join("lock"), dir.path().join("count"));
        fs::write(&count, "0").unwrap();
        let add = || {
            for _ in 0..50 {
                let _held = Lock::wait(&lock).unwrap();
                let before: u32 = fs::read_to_string(&count).unwrap().parse().unwrap();
                fs::write(&count, (before + 1).to_string()).unwrap();
            }
        };
        thread::scope(|scope| _ = [scope.spawn(add), scope.spawn(add)]);
        assert_eq!(fs::read_to_string(&count).unwrap(), "100");
    }
}
