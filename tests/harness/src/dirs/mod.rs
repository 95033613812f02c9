//! Temporary directories that may have mounts in them.
//!
//! Owns: the directories it makes, and every mount and loop device beneath them. Promises: short
//! paths (a unix socket's is at most 107 bytes); a drop removes the mounts, then the loop devices,
//! then the files, and so does a kill of the test process. Never: deletes through a mount: if one
//! cannot be unmounted, everything stays and a line says so.

mod disk;
mod janitor;
mod loops;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use berth_host::MountTable;
pub use disk::Disk;
pub use loops::loops_beneath;
use nix::mount::{MntFlags, umount2};

use crate::failure;

/// A new directory below /tmp, removed when dropped.
#[derive(Debug)]
pub struct Dir {
    path: PathBuf,
}

impl Dir {
    /// Makes `/tmp/berth-<name>-<random>`.
    pub fn new(name: &str) -> Self {
        let created = tempfile::Builder::new().prefix(&format!("berth-{name}-")).tempdir_in("/tmp");
        // Kept: tempfile would delete through mounts.
        let path = created.expect("a directory can be made in /tmp").keep();
        janitor::enter(&path);
        failure::hook();
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path inside it, which need not exist.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            failure::keep_logs(&self.path);
        }
        let still_mounted = unmount_beneath(&self.path);
        loops::detach_beneath(&self.path);
        let outcome = match still_mounted.first() {
            Some(mount) => Err(format!("{} is still mounted", mount.display())),
            None => fs::remove_dir_all(&self.path).map_err(|error| error.to_string()),
        };
        match outcome {
            Ok(()) => janitor::strike_out(&self.path),
            Err(reason) => {
                let line = format!("{} was left behind: {reason}", self.path.display());
                if std::thread::panicking() {
                    let _ = writeln!(std::io::stderr().lock(), "{line}");
                } else {
                    panic!("{line}");
                }
            }
        }
        failure::print_reason();
    }
}

/// Unmounts everything at `root` and below it; returns the mounts that stayed.
///
/// A busy mount is detached from the tree, so that nothing can be reached through its path.
fn unmount_beneath(root: &Path) -> Vec<PathBuf> {
    // The newest mount first: it may cover an older one, even at the same path.
    for mount in mounts_beneath(root).iter().rev() {
        if umount2(mount, MntFlags::UMOUNT_NOFOLLOW).is_err() {
            let _ = umount2(mount, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
        }
    }
    mounts_beneath(root)
}

/// The mount points at `root` and below it, oldest first, as this process sees them.
pub fn mounts_beneath(root: &Path) -> Vec<PathBuf> {
    let table = MountTable::read_blocking().expect("the mount table can be read");
    let points = table.mounts().iter().map(|mount| mount.point.clone());
    points.filter(|point| point.starts_with(root)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbours_name_that_starts_alike_is_not_beneath() {
        assert!(mounts_beneath(Path::new("/proc")).contains(&PathBuf::from("/proc")));
        assert!(mounts_beneath(Path::new("/pro")).is_empty());
    }
}
