//! Mount points.
//!
//! Owns: the form of paths; creating and removing mount points. Promises: a resolved path has no
//! symbolic links; only an empty mount point without a mount is removed. Never: mounts.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::error::MountError;
use super::table::is_mount_point;

/// `PATH_MAX` of Linux, in bytes, without the final zero byte.
const LONGEST_PATH_BYTES: usize = 4095;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountPointKind {
    /// For directories and file systems.
    Directory,
    /// For device nodes.
    File,
}

/// Resolves `path` to a path without symbolic links. `None` if the parent directory is missing.
///
/// The mount table has only such paths. The last component may be missing. It must not be a
/// symbolic link: a mount would be made at the link's destination.
pub fn resolve_place(path: &str) -> Result<Option<PathBuf>, MountError> {
    let wrong = |wrong| MountError::Path { path: path.to_owned(), wrong };
    if path.len() > LONGEST_PATH_BYTES || path.contains('\0') {
        return Err(wrong("is not a path"));
    }
    let unresolved = Path::new(path);
    if !unresolved.is_absolute() {
        return Err(wrong("is not absolute"));
    }
    let (Some(parent), Some(name)) = (unresolved.parent(), unresolved.file_name()) else {
        return Err(wrong("does not end in a name"));
    };
    let mount_point = match fs::canonicalize(parent) {
        Ok(parent) => parent.join(name),
        Err(error) if is_missing(&error) => return Ok(None),
        Err(source) => return Err(MountError::io("resolve", parent, source)),
    };
    match fs::symlink_metadata(&mount_point) {
        Ok(meta) if meta.is_symlink() => Err(wrong("is a symbolic link")),
        Ok(_) => Ok(Some(mount_point)),
        Err(error) if is_missing(&error) => Ok(Some(mount_point)),
        Err(source) => Err(MountError::io("look at", &mount_point, source)),
    }
}

/// Creates the mount point, unless it exists.
pub fn make_place(mount_point: &Path, kind: MountPointKind) -> Result<(), MountError> {
    let result = match kind {
        MountPointKind::Directory => fs::create_dir(mount_point),
        MountPointKind::File => {
            OpenOptions::new().write(true).create_new(true).open(mount_point).map(drop)
        }
    };
    let wrong = match result {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(MountError::io("make", mount_point, error));
        }
        Err(_) if mount_point.is_dir() == (kind == MountPointKind::Directory) => return Ok(()),
        Err(_) if kind == MountPointKind::Directory => "exists and is not a directory",
        Err(_) => "exists and is not a file",
    };
    Err(MountError::Path { path: mount_point.display().to_string(), wrong })
}

/// Removes the empty mount point. Missing is success.
pub fn remove_place(mount_point: &Path) -> Result<(), MountError> {
    if is_mount_point(mount_point)? {
        return Err(MountError::Foreign { path: mount_point.to_owned() });
    }
    if mount_point.is_file() && !is_empty(mount_point)? {
        return Err(MountError::NotEmpty { path: mount_point.to_owned() });
    }
    let removed = if mount_point.is_file() {
        fs::remove_file(mount_point)
    } else {
        fs::remove_dir(mount_point)
    };
    match removed {
        Ok(()) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            Err(MountError::NotEmpty { path: mount_point.to_owned() })
        }
        Err(source) => Err(MountError::io("remove", mount_point, source)),
    }
}

pub(super) fn is_empty(mount_point: &Path) -> Result<bool, MountError> {
    let failed = |error| MountError::io("look into", mount_point, error);
    let meta = fs::metadata(mount_point).map_err(failed)?;
    if !meta.is_dir() {
        return Ok(meta.len() == 0);
    }
    Ok(fs::read_dir(mount_point).map_err(failed)?.next().is_none())
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_place_is_free_of_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(root.join("real")).unwrap();
        symlink(root.join("real"), root.join("link")).unwrap();
        let at = |path: &str| resolve_place(root.join(path).to_str().unwrap());

        assert_eq!(at("link/target").unwrap(), Some(root.join("real/target")));
        assert_eq!(at("real/target/").unwrap(), Some(root.join("real/target")));
        assert_eq!(at("missing/target").unwrap(), None);
        for path in ["link", "real/.."] {
            assert!(at(path).unwrap_err().is_refusal(), "{path}");
        }
        for path in ["relative", "", "/", "/nul\0"] {
            assert!(resolve_place(path).unwrap_err().is_refusal(), "{path:?}");
        }
    }

    #[test]
    fn only_what_is_empty_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mount_point = dir.path().join("target");
        remove_place(&mount_point).unwrap();
        make_place(&mount_point, MountPointKind::Directory).unwrap();
        make_place(&mount_point, MountPointKind::Directory).unwrap();
        fs::write(mount_point.join("file"), "kept").unwrap();
        assert!(matches!(remove_place(&mount_point), Err(MountError::NotEmpty { .. })));
        fs::remove_file(mount_point.join("file")).unwrap();
        remove_place(&mount_point).unwrap();
        assert!(!mount_point.exists());

        make_place(&mount_point, MountPointKind::File).unwrap();
        make_place(&mount_point, MountPointKind::File).unwrap();
        assert!(make_place(&mount_point, MountPointKind::Directory).unwrap_err().is_refusal());
        fs::write(&mount_point, "kept").unwrap();
        assert!(matches!(remove_place(&mount_point), Err(MountError::NotEmpty { .. })));
        fs::write(&mount_point, "").unwrap();
        remove_place(&mount_point).unwrap();
        assert!(!mount_point.exists());
    }
}
