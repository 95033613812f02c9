//! The directories that plugins mount upon: made before, removed after.
//!
//! **Promises** that nothing is removed but an empty directory upon which nothing is mounted: the
//! kernel refuses all else.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Others on the host have no business with the paths themselves.
const MODE: u32 = 0o700;

/// Why a directory is not as it is to be.
#[derive(Debug, Error)]
pub(super) enum DirError {
    /// It cannot be made.
    #[error("the directory {} cannot be made", path.display())]
    Make {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot be removed.
    #[error("the directory {} cannot be removed", path.display())]
    Remove {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Makes the directory and those above it, where missing.
pub(super) async fn make(path: &Path) -> Result<(), DirError> {
    let owned = path.to_owned();
    let made = off_thread(move || DirBuilder::new().recursive(true).mode(MODE).create(owned)).await;
    made.map_err(|source| DirError::Make { path: path.to_owned(), source })
}

/// Removes the directory if it is there and empty. What a plugin or a workload left in it stays,
/// and is logged: it is not mounted, so it keeps no volume from going elsewhere.
pub(super) async fn remove(path: &Path) -> Result<(), DirError> {
    let owned = path.to_owned();
    match off_thread(move || fs::remove_dir(owned)).await {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error)
            if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory) =>
        {
            tracing::warn!(path = %path.display(), %error, "left behind: it is not ours to empty");
            Ok(())
        }
        Err(source) => Err(DirError::Remove { path: path.to_owned(), source }),
    }
}

/// Removes the directory if nothing is in it any more.
pub(super) async fn remove_if_empty(path: &Path) -> Result<(), DirError> {
    let owned = path.to_owned();
    match off_thread(move || fs::remove_dir(owned)).await {
        Err(error)
            if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) =>
        {
            Err(DirError::Remove { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Whether a block device is there, itself or by a link.
pub(super) async fn is_block_device(path: &Path) -> bool {
    let owned = path.to_owned();
    off_thread(move || {
        let kind = fs::metadata(owned)?.file_type();
        if kind.is_block_device() { Ok(()) } else { Err(io::Error::other("another kind")) }
    })
    .await
    .is_ok()
}

async fn off_thread(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_device_is_told_from_all_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        for path in [dir.path(), &dir.path().join("file"), Path::new("/dev/null")] {
            assert!(!is_block_device(path).await, "{}", path.display());
        }
        // Not every machine has one; tests that bind loop devices need root.
        if Path::new("/dev/loop0").exists() {
            assert!(is_block_device(Path::new("/dev/loop0")).await);
        }
    }

    #[tokio::test]
    async fn made_for_the_agent_alone_and_removed_only_when_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (parent, path) = (dir.path().join("volume"), dir.path().join("volume/alloc"));
        make(&path).await.unwrap();
        make(&path).await.unwrap();
        for made in [&parent, &path] {
            assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, MODE);
        }
        fs::write(path.join("data"), "kept").unwrap();
        remove(&path).await.unwrap();
        remove_if_empty(&parent).await.unwrap();
        assert_eq!(fs::read_to_string(path.join("data")).unwrap(), "kept");
        fs::remove_file(path.join("data")).unwrap();
        remove(&path).await.unwrap();
        remove(&path).await.unwrap();
        remove_if_empty(&parent).await.unwrap();
        assert!(!parent.exists());
    }
}
