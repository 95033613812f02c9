//! What a volume's mounts show.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// By what a volume is known again in the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VolumeContent {
    /// A directory: a bind mount's root is the very directory that was bound.
    Directory(PathBuf),
    /// The numbers of all devices its image is bound to: of a file system on one of them, or of
    /// their nodes.
    Devices(Vec<u64>),
}

impl VolumeContent {
    /// Whether what is seen at `place` is the volume's.
    pub(super) fn is_at(&self, place: &Path) -> io::Result<bool> {
        let there = fs::metadata(place)?;
        match self {
            Self::Directory(data) => {
                let own = fs::metadata(data)?;
                Ok((there.dev(), there.ino()) == (own.dev(), own.ino()))
            }
            Self::Devices(numbers) if there.file_type().is_block_device() => {
                Ok(numbers.contains(&there.rdev()))
            }
            Self::Devices(numbers) => Ok(numbers.contains(&there.dev())),
        }
    }
}
