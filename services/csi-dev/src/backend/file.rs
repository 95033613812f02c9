//! Files that survive a crash.
//!
//! Owns: reading and replacing JSON files. Promises: a reader sees the old or the new content, even
//! if the writer is killed. Never: locks a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::BackendError;

/// Reads the JSON file `path`; `None` if there is none.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, BackendError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        // NotADirectory: a path below a file does not exist either.
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

/// Replaces the JSON file `path` atomically. The caller holds the lock that protects it.
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
        // Before the rename: a power cut must not leave the new name on an empty file.
        file.sync_data()?;
        fs::rename(temporary, path)
    };
    write().map_err(failed)
}

/// Removes the file or directory `path` with its content. Missing is success.
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

/// Creates `dir` and its parents.
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
        // A killed writer may leave a temporary file, complete or torn.
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
}
