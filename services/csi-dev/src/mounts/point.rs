//! Whether something is mounted at a path.
//!
//! Owns: asking the kernel about one path: statx(2), whose answer says since Linux 5.8 whether it
//! is a mount's root. The mount table says the same, but of a thousand mounts it takes a
//! millisecond to read, and a call asks several times. Promises: a kernel that does not say is
//! asked for its table; what cannot be looked at is an error, never an absence. Never: follows a
//! link, or sets off an automount.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

use super::{MountError, read_table, table};

/// Whether `place`, a path free of links, is where something is mounted.
pub(super) fn is_mount_point(place: &Path) -> Result<bool, MountError> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match statx(CWD, place, flags, StatxFlags::empty()) {
        Ok(there) if there.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            Ok(there.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
        }
        Ok(_) | Err(Errno::NOSYS) => Ok(table::options_at(&read_table()?, place).is_some()),
        // Nothing is mounted on what is not there.
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(MountError::io("look at", place, errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_mount_point_of_the_table_that_can_be_seen_is_one() {
        let points = [Path::new("/"), Path::new("/proc")];
        for point in points {
            assert!(is_mount_point(point).unwrap(), "{}", point.display());
            assert!(table::options_at(&read_table().unwrap(), point).is_some());
        }
    }

    #[test]
    fn what_lies_in_a_mount_or_nowhere_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let link = dir.path().join("link");
        symlink("/proc", &link).unwrap();
        let missing = [dir.path().join("missing"), file.join("below")];
        for place in missing.iter().chain([&file, &link]).map(|path| &**path).chain([dir.path()]) {
            assert!(!is_mount_point(place).unwrap(), "{}", place.display());
        }
    }
}
