//! Files that survive a crash, and locks that do not.
//!
//! Owns: how this driver reads, replaces and locks a file. Promises: a reader sees the old or the
//! new content, whenever the writer is killed; the kernel drops the locks of a dead process.
//! Never: waits for a lock without end.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::BackendError;

/// A lock is held for a few file operations; a holder that takes this long is stopped.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// An exclusive lock between processes and threads, released when dropped or when the process dies.
#[derive(Debug)]
pub struct Lock {
    _held: Held,
}

/// A locked file. The lock ends with this value, and not only with the last copy of its handle: a
/// child that is being started elsewhere in this process has one for as long as it is no program of
/// its own yet.
#[derive(Debug)]
pub(super) struct Held(File);

impl Held {
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Where that fails the kernel does it, when the last copy is closed.
        _ = self.0.unlock();
    }
}

impl Lock {
    /// Waits for the lock on `path`, which is made when missing.
    pub(super) fn wait(path: &Path) -> Result<Self, BackendError> {
        let start = Instant::now();
        loop {
            // A file that was removed meanwhile guards nothing: what it guarded is gone, too.
            if let Ok(held) = try_lock(path)?
                && is_at(held.file(), path)?
            {
                return Ok(Self { _held: held });
            }
            if start.elapsed() > LOCK_WAIT {
                let waited_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
                return Err(BackendError::Locked { path: path.to_owned(), waited_ms });
            }
            thread::sleep(LOCK_PAUSE);
        }
    }
}

/// Opens `path`, which is made when missing, and tries to lock it; the file as it is, when somebody
/// else has it.
pub(super) fn try_lock(path: &Path) -> Result<Result<Held, File>, BackendError> {
    let failed = |source| BackendError::io("lock", path, source);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => BackendError::Gone { path: path.to_owned() },
        _ => failed(source),
    })?;
    match file.try_lock() {
        Ok(()) => Ok(Ok(Held(file))),
        Err(TryLockError::WouldBlock) => Ok(Err(file)),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Whether this very file is what `path` leads to.
fn is_at(file: &File, path: &Path) -> Result<bool, BackendError> {
    let failed = |source| BackendError::io("look at", path, source);
    let held = file.metadata().map_err(failed)?;
    match fs::metadata(path) {
        Ok(there) => Ok((held.dev(), held.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(failed(source)),
    }
}

/// Reads the JSON file `path`; `None` if there is none.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, BackendError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        // Beneath a file there is nothing either: the path of an id may lead there.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(None);
        }
        Err(source) => return Err(BackendError::io("read", path, source)),
    };
    let damaged = |source| BackendError::Damaged { path: path.to_owned(), source };
    serde_json::from_slice(&text).map(Some).map_err(damaged)
}

/// Replaces the JSON file `path` in one step. The caller holds the lock that guards it.
pub(super) fn replace<T: Serialize>(path: &Path, content: &T) -> Result<(), BackendError> {
    let failed = |source| BackendError::io("write", path, source);
    let mut text = serde_json::to_vec_pretty(content).map_err(|error| failed(error.into()))?;
    text.push(b'\n');

    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let write = || {
        let mut file = File::create(temporary)?;
        file.write_all(&text)?;
        // Before the rename, so that a power cut cannot leave the new name on an empty file.
        file.sync_data()?;
        fs::rename(temporary, path)
    };
    write().map_err(failed)
}

/// Removes the file or directory `path` and what is in it. Missing is success.
pub(super) fn remove(path: &Path) -> Result<(), BackendError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error)
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Err(BackendError::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Makes `dir` and what leads to it.
pub(super) fn make_dir(dir: &Path) -> Result<(), BackendError> {
    fs::create_dir_all(dir).map_err(|source| BackendError::io("make", dir, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_killed_half_way_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        assert_eq!(read::<u32>(&path).unwrap(), None);
        replace(&path, &1_u32).unwrap();
        // What a killed writer leaves: a temporary file, whole or torn.
        fs::write(dir.path().join("state.json.tmp"), "{\"torn").unwrap();
        assert_eq!(read(&path).unwrap(), Some(1_u32));
        replace(&path, &2_u32).unwrap();
        assert_eq!(read(&path).unwrap(), Some(2_u32));
    }

    #[test]
    fn damage_is_named_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        fs::write(&path, "{").unwrap();
        let error = read::<u32>(&path).unwrap_err();
        assert!(error.to_string().contains("state.json is damaged"), "{error}");
    }

    #[test]
    fn changes_under_the_lock_come_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, count) = (dir.path().join("lock"), dir.path().join("count"));
        let add = || {
            for _ in 0..50 {
                let _held = Lock::wait(&lock).unwrap();
                let before = read::<u32>(&count).unwrap().unwrap_or(0);
                replace(&count, &(before + 1)).unwrap();
            }
        };
        thread::scope(|scope| _ = [scope.spawn(add), scope.spawn(add)]);
        assert_eq!(read(&count).unwrap(), Some(100_u32));
    }
}
