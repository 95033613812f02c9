//! Questions to the kernel's mount table.

use std::io;
use std::path::Path;

use berth_host::{MountTable, identity};

use super::error::MountError;

/// Whether `mount_point`, a path without symbolic links, is a mount point. Reads the whole table on
/// kernels that do not answer for one path.
pub(super) fn is_mount_point(mount_point: &Path) -> Result<bool, MountError> {
    match identity::is_mount_point(mount_point) {
        Ok(Some(is_mount_point)) => Ok(is_mount_point),
        Ok(None) => Ok(read_table(mount_point)?.has(mount_point)),
        Err(error) => Err(MountError::io("look at", mount_point, error)),
    }
}

pub(super) fn read_table(mount_point: &Path) -> Result<MountTable, MountError> {
    let unread = |error| MountError::io("look up", mount_point, io::Error::other(error));
    MountTable::read_blocking().map_err(unread)
}
