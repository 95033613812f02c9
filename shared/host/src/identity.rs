//! The identity of the mount at a path: statx(2).
//!
//! **Owns** the checks "is this still the same mount?" and "is this path a mount point?".
//!
//! **Promises** that a kernel without an answer is reported as such: nothing is guessed.
//!
//! **Never** follows a symbolic link at the end of the path, and triggers no automount. A path
//! below a dead network mount may hang: call it off the async threads.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8); rustix has no name for it yet.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The kernel's id of a mount. Two ids are equal only when they are of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MountId {
    /// Never used again until the host reboots (Linux 6.8 and later).
    Unique(u64),
    /// May be given to another mount after this one is unmounted.
    Reusable(u64),
}

/// The id of the mount that `path` lies in.
pub fn mount_id(path: &Path) -> io::Result<MountId> {
    id_of(statx(CWD, path, flags(), StatxFlags::MNT_ID | MNT_ID_UNIQUE)?)
}

/// The id of the mount that an open file lies in.
pub fn mount_id_of_open(file: impl AsFd) -> io::Result<MountId> {
    id_of(statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID | MNT_ID_UNIQUE)?)
}

/// Whether a mount lies at `path`; `None` if the kernel cannot tell (before Linux 5.8). A path that
/// does not exist is no mount point.
pub fn is_mount_point(path: &Path) -> io::Result<Option<bool>> {
    match statx(CWD, path, flags(), StatxFlags::empty()) {
        Ok(there) if there.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            Ok(Some(there.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)))
        }
        Ok(_) | Err(Errno::NOSYS) => Ok(None),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Some(false)),
        Err(errno) => Err(errno.into()),
    }
}

fn flags() -> AtFlags {
    AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT
}

fn id_of(seen: Statx) -> io::Result<MountId> {
    let has = |flag: StatxFlags| seen.stx_mask & flag.bits() != 0;
    if has(MNT_ID_UNIQUE) {
        Ok(MountId::Unique(seen.stx_mnt_id))
    } else if has(StatxFlags::MNT_ID) {
        Ok(MountId::Reusable(seen.stx_mnt_id))
    } else {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel tells no mount id"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_file_of_a_mount_has_its_id_and_another_mount_has_another() {
        let (proc, inside) = (mount_id(Path::new("/proc")).unwrap(), Path::new("/proc/self/stat"));
        assert_eq!(mount_id(inside).unwrap(), proc);
        assert_eq!(mount_id_of_open(File::open(inside).unwrap()).unwrap(), proc);
        assert_ne!(mount_id(Path::new("/")).unwrap(), proc);
    }

    #[test]
    fn only_the_root_of_a_mount_is_a_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "").unwrap();
        symlink("/proc", &link).unwrap();
        assert_eq!(is_mount_point(Path::new("/proc")).unwrap(), Some(true));
        for no_mount_point in [&file, &link, &dir.path().join("missing"), &file.join("below")] {
            assert_eq!(
                is_mount_point(no_mount_point).unwrap(),
                Some(false),
                "{}",
                no_mount_point.display()
            );
        }
    }
}
