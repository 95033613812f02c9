//! Files that only their owner can read.
//!
//! **Promises** that directories have mode 0700 and files 0600, and that a file is replaced whole:
//! after a crash it holds the old text or the new one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::AccessError;

/// Adds the path and the action to an error.
fn fault(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> AccessError {
    move |source| AccessError::File { path: path.to_owned(), doing, source }
}

/// Pause between two tries to take a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The way in which files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileWriter {
    /// Whether a written file is on disk before the call returns. A fleet of a test needs no sync.
    pub synced: bool,
    /// The owner's user and group id; the process's own if not given.
    pub owner: Option<(u32, u32)>,
}

impl FileWriter {
    /// Replaces a file, or creates it.
    pub fn replace(self, path: &Path, text: &str) -> Result<(), AccessError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(fault(path, "written")(io::ErrorKind::InvalidInput.into()));
        };
        let mut beside = name.to_owned();
        beside.push(".new");
        let beside = parent.join(beside);
        self.write(&beside, parent, path, text).map_err(fault(path, "written"))
    }

    fn write(self, beside: &Path, parent: &Path, path: &Path, text: &str) -> io::Result<()> {
        // The file of an interrupted run may have another mode.
        match fs::remove_file(beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
        if let Some((user, group)) = self.owner {
            fchown(&file, Some(user), Some(group))?;
        }
        file.write_all(text.as_bytes())?;
        if self.synced {
            file.sync_all()?;
        }
        fs::rename(beside, path)?;
        if self.synced { File::open(parent)?.sync_all() } else { Ok(()) }
    }
}

/// Makes a directory, and those above it.
pub fn make_dir(path: &Path) -> Result<(), AccessError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fault(path, "written"))
}

/// Reads a file.
pub fn read(path: &Path) -> Result<String, AccessError> {
    fs::read_to_string(path).map_err(fault(path, "read"))
}

/// The absolute path, which is the same in every working directory.
pub fn absolute(path: &Path) -> Result<PathBuf, AccessError> {
    std::path::absolute(path).map_err(fault(path, "read"))
}

/// Removes a file, if it exists.
pub fn remove(path: &Path) -> Result<(), AccessError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fault(path, "removed")(error)),
        _ => Ok(()),
    }
}

/// The files of a directory with this extension, sorted.
pub fn list(path: &Path, extension: &str) -> Result<Vec<PathBuf>, AccessError> {
    let entries = fs::read_dir(path).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
    });
    let mut paths = entries.map_err(fault(path, "read"))?;
    paths.retain(|path| path.extension().is_some_and(|file_extension| file_extension == extension));
    paths.sort();
    Ok(paths)
}

/// Renames a complete directory to its final name, which must be free or an empty directory.
pub fn put_in_place(from: &Path, to: &Path) -> Result<(), AccessError> {
    fs::rename(from, to).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
            AccessError::DirectoryExists(to.to_owned())
        }
        io::ErrorKind::NotADirectory => AccessError::DirectoryExists(to.to_owned()),
        _ => fault(to, "written")(error),
    })
}

/// Whether the path is a file, or a directory that is not empty.
pub fn is_occupied(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Locks a file for this process until the result is dropped. `None` if another process holds the
/// lock for all of `patience`.
///
/// A short wait is useful: a process that is just being started has a copy of every open file of
/// its parent until it runs its own program, and so of a lock that the parent has dropped.
pub fn lock(path: &Path, patience: Duration) -> Result<Option<File>, AccessError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(fault(path, "written"))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) if began.elapsed() < patience => {
                thread::sleep(LOCK_PAUSE);
            }
            Err(fs::TryLockError::WouldBlock) => return Ok(None),
            Err(fs::TryLockError::Error(error)) => return Err(fault(path, "locked")(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_and_directories_are_their_owners_only() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        make_dir(&inner).unwrap();
        let file = inner.join("seed");
        for text in ["one", "two"] {
            FileWriter { synced: true, owner: None }.replace(&file, text).unwrap();
            assert_eq!(read(&file).unwrap(), text);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir.path().join("a")), mode(&inner), mode(&file)), (0o700, 0o700, 0o600));
        assert_eq!(list(&inner, "new").unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn one_process_at_a_time_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path, Duration::ZERO).unwrap();
        assert!(held.is_some() && lock(&path, LOCK_PAUSE).unwrap().is_none());
        let waiting = thread::spawn(move || lock(&path, Duration::from_secs(60)).unwrap());
        drop(held);
        assert!(waiting.join().unwrap().is_some());
    }
}
