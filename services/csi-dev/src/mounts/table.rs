//! Questions to the kernel's mount table.

use std::io;
use std::path::Path;

use berth_host::{MountTable, identity};

use super::error::MountError;

/// Whether `place`, a path free of links, is a mount point. A kernel that does not tell of one path
/// is asked for its table.
pub(super) fn is_mount_point(place: &Path) -> Result<bool, MountError> {
    match identity::is_mount_point(place) {
        Ok(Some(is_mount_point)) => Ok(is_mount_point),
        Ok(None) => Ok(read_table(place)?.has(place)),
        Err(error) => Err(MountError::io("look at", place, error)),
    }
}

pub(super) fn read_table(place: &Path) -> Result<MountTable, MountError> {
    let unread = |error| MountError::io("look up", place, io::Error::other(error));
    MountTable::read_blocking().map_err(unread)
}
