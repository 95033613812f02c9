//! The kernel's mounts at the paths of a node call.
//!
//! Owns: asking the kernel what is mounted, for the `end` lines of the log. Promises: the driver is
//! not asked, so the judge can find its false reports. Never: decides anything.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use berth_host::identity::is_mount_point;
use berth_host::{DeviceNumber, Mount, MountTable};
use serde::{Deserialize, Serialize};

/// The mounts at one path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathMounts {
    /// The path, as the call names it.
    pub path: String,
    /// Oldest first. The last mount hides the others.
    pub mounts: Vec<KernelMount>,
    /// The block device at the path, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_device: Option<BlockDevice>,
}

/// A mount in the kernel's mount table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelMount {
    /// The device of the file system, as `major:minor`.
    pub device: DeviceNumber,
    /// The directory or file within the file system that is mounted.
    pub root: String,
    /// Whether the mount, or the whole file system, is read-only.
    pub read_only: bool,
}

/// A block device, from its device node and sysfs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockDevice {
    /// As `major:minor`.
    pub device: DeviceNumber,
    /// Whether the kernel refuses writes to it; absent if sysfs does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// The mounts at these paths. `None` if the mount table cannot be read; the judge reports that.
///
/// The table has a line for each mount of the host. It is read once, and only where the kernel says
/// that a path is a mount point: after an unpublish or unstage none should be.
pub(super) fn observe_mounts<'a>(
    paths: impl IntoIterator<Item = &'a str>,
) -> Option<Vec<PathMounts>> {
    let mut table = None;
    paths.into_iter().map(|path| mounts_at(path, &mut table)).collect()
}

/// Suffix of a root in the mount table, for a directory that was removed while it is mounted.
const DELETED: &str = "//deleted";

/// The mounts of directories that no longer exist. `None` if the mount table cannot be read.
pub(super) fn observe_deleted() -> Option<Vec<PathMounts>> {
    let table = MountTable::read_blocking().ok()?;
    let deleted = table.mounts().iter().map(|mount| (&mount.point, describe_mount(mount)));
    let deleted = deleted.filter(|(_, mount)| mount.root.ends_with(DELETED));
    let describe = |(point, mount): (&PathBuf, KernelMount)| PathMounts {
        path: point.to_string_lossy().into_owned(),
        mounts: vec![mount],
        block_device: None,
    };
    Some(deleted.map(describe).collect())
}

fn mounts_at(path: &str, table: &mut Option<MountTable>) -> Option<PathMounts> {
    let path = path.to_owned();
    let Some(canonical) = without_links(Path::new(&path)) else {
        // A missing path has no mounts.
        return Some(PathMounts { path, mounts: Vec::new(), block_device: None });
    };
    // An older kernel does not tell it of a path, and a dead mount answers with an error.
    let mounts = if matches!(is_mount_point(&canonical), Ok(Some(false))) {
        Vec::new()
    } else {
        let table = match table {
            Some(table) => table,
            None => table.insert(MountTable::read_blocking().ok()?),
        };
        table.all_at(&canonical).map(describe_mount).collect()
    };
    Some(PathMounts { path, mounts, block_device: block_device(&canonical) })
}

/// The path in the mount table's form. Its last component may be missing, or be a mount point.
fn without_links(path: &Path) -> Option<PathBuf> {
    Some(fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?))
}

fn describe_mount(mount: &Mount) -> KernelMount {
    let root = mount.root.to_string_lossy().into_owned();
    KernelMount { device: mount.device, root, read_only: mount.is_read_only() }
}

fn block_device(path: &Path) -> Option<BlockDevice> {
    let node = fs::symlink_metadata(path).ok()?;
    if !node.file_type().is_block_device() {
        return None;
    }
    let device = DeviceNumber::from_raw(node.rdev());
    let read_only = fs::read_to_string(format!("/sys/dev/block/{device}/ro")).ok();
    Some(BlockDevice { device, read_only: read_only.map(|text| text.trim() == "1") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_seen_also_by_a_path_with_links() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        for path in ["/proc", link.join("proc").to_str().unwrap()] {
            let observed = observe_mounts([path]).unwrap();
            assert_eq!(observed[0].path, path);
            assert_eq!(observed[0].mounts.last().unwrap().root, "/", "{observed:?}");
            assert_eq!(observed[0].block_device, None);
        }
    }

    #[test]
    fn where_nothing_is_mounted_nothing_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().to_path_buf(), dir.path().join("missing/below")];
        for path in paths.map(|path| path.to_str().unwrap().to_owned()) {
            let mut table = None;
            assert_eq!(mounts_at(&path, &mut table).unwrap().mounts, []);
            assert!(table.is_none(), "the table of the whole host is read for it");
        }
    }
}
