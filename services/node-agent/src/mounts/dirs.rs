//! Makes the directories for mounts, and removes them.
//!
//! **Promises** that only an empty directory is removed, upon which nothing is mounted: the kernel
//! refuses everything else.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::host::pool::VolumeHost;

/// Only the agent's user may enter.
const MODE: u32 = 0o700;

/// Why a directory was not made or not removed.
#[derive(Debug, Error)]
#[error("the directory {} cannot be {done}", path.display())]
pub(super) struct DirError {
    path: PathBuf,
    done: &'static str,
    source: io::Error,
}

impl DirError {
    fn new(path: &Path, done: &'static str, source: io::Error) -> Self {
        Self { path: path.to_owned(), done, source }
    }
}

/// Makes the directory and its missing parents.
pub(super) async fn make_dir(host: &VolumeHost, path: &Path) -> Result<(), DirError> {
    let owned = path.to_owned();
    let work = move || DirBuilder::new().recursive(true).mode(MODE).create(owned);
    let made = run_on_host(host, "make a directory", work).await;
    made.map_err(|source| DirError::new(path, "made", source))
}

/// Removes the directory if it is there and empty. Files that a plugin or a workload left in it
/// stay, and are logged. They are not mounted, so they do not hold the volume here.
pub(super) async fn remove_unless_used(host: &VolumeHost, path: &Path) -> Result<(), DirError> {
    match remove_dir(host, path).await {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error)
            if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory) =>
        {
            tracing::warn!(path = %path.display(), %error, "left behind: it is not ours to empty");
            Ok(())
        }
        Err(source) => Err(DirError::new(path, "removed", source)),
    }
}

/// Removes the directory if it is empty.
pub(super) async fn remove_if_empty(host: &VolumeHost, path: &Path) -> Result<(), DirError> {
    match remove_dir(host, path).await {
        Err(error)
            if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) =>
        {
            Err(DirError::new(path, "removed", error))
        }
        _ => Ok(()),
    }
}

/// Whether the path is absent or an empty directory without a mount, which is removed.
pub(super) async fn is_bare(host: &VolumeHost, path: &Path) -> bool {
    match remove_dir(host, path).await {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Whether a block device is there, itself or by a link.
pub(super) async fn is_block_device(host: &VolumeHost, path: &Path) -> io::Result<bool> {
    let owned = path.to_owned();
    let look = move || fs::metadata(owned).is_ok_and(|seen| seen.file_type().is_block_device());
    run_on_host(host, "look at a device", move || Ok(look())).await
}

async fn remove_dir(host: &VolumeHost, path: &Path) -> io::Result<()> {
    let owned = path.to_owned();
    run_on_host(host, "remove a directory", move || fs::remove_dir(owned)).await
}

async fn run_on_host<T: Send + 'static>(
    host: &VolumeHost,
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    host.run(what, work).await?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use berth_domain::{AllocId, Namespace, PluginId, VolumeId, VolumeKey};
    use berth_host::HostPool;

    use super::*;
    use crate::host::paths::Paths;

    fn host() -> VolumeHost {
        let plugin = PluginId::new("p").unwrap();
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("v").unwrap());
        let place =
            Paths::new(Path::new("/s")).volume_paths(&plugin, &volume, &AllocId::new("a").unwrap());
        VolumeHost::new(&HostPool::default(), &plugin, &place)
    }

    #[tokio::test]
    async fn a_device_is_told_from_all_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        for path in [dir.path(), &dir.path().join("file"), Path::new("/dev/null")] {
            assert!(!is_block_device(&host(), path).await.unwrap(), "{}", path.display());
        }
        // Not every machine has one; tests that bind loop devices need root.
        if Path::new("/dev/loop0").exists() {
            assert!(is_block_device(&host(), Path::new("/dev/loop0")).await.unwrap());
        }
    }

    #[tokio::test]
    async fn made_for_the_agent_alone_and_removed_only_when_empty() {
        let (dir, host) = (tempfile::tempdir().unwrap(), host());
        let (parent, path) = (dir.path().join("volume"), dir.path().join("volume/alloc"));
        make_dir(&host, &path).await.unwrap();
        make_dir(&host, &path).await.unwrap();
        for made in [&parent, &path] {
            assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, MODE);
        }
        fs::write(path.join("data"), "kept").unwrap();
        remove_unless_used(&host, &path).await.unwrap();
        remove_if_empty(&host, &parent).await.unwrap();
        assert_eq!(fs::read_to_string(path.join("data")).unwrap(), "kept");
        fs::remove_file(path.join("data")).unwrap();
        remove_unless_used(&host, &path).await.unwrap();
        remove_unless_used(&host, &path).await.unwrap();
        remove_if_empty(&host, &parent).await.unwrap();
        assert!(!parent.exists());
    }
}
