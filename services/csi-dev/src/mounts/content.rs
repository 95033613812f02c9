//! How mounts of a volume are recognised.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Identifies the content of a volume in the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VolumeContent {
    /// The directory: a bind mount shows the same inode.
    Directory(PathBuf),
    /// All loop devices of the image: a mounted file system or a device node has one of these
    /// numbers.
    Devices(Vec<u64>),
}

impl VolumeContent {
    /// Whether the volume is visible at `mount_point`.
    pub(super) fn is_at(&self, mount_point: &Path) -> io::Result<bool> {
        let visible = fs::metadata(mount_point)?;
        match self {
            Self::Directory(data) => {
                let own = fs::metadata(data)?;
                Ok((visible.dev(), visible.ino()) == (own.dev(), own.ino()))
            }
            Self::Devices(numbers) if visible.file_type().is_block_device() => {
                Ok(numbers.contains(&visible.rdev()))
            }
            Self::Devices(numbers) => Ok(numbers.contains(&visible.dev())),
        }
    }
}
