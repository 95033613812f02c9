//! Bind mounts of a volume's data.
//!
//! Owns: the mount table's meaning, and every change of it. Promises: whether something is mounted
//! is read from the kernel, never from notes; doing a thing twice is doing it once; only mounts of
//! the volume in question are ever undone. Never: deletes anything but an empty directory that
//! nothing is mounted on.

mod table;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use thiserror::Error;

use crate::capability::MountFlag;

/// The longest path that the kernel takes.
const LONGEST_PATH_BYTES: usize = 4095;

/// What there is at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Nothing is mounted there.
    Absent,
    /// The volume is.
    Volume,
    /// Something else is.
    Foreign,
}

/// Why a mount could not be made, undone or looked at.
#[derive(Debug, Error)]
pub enum MountError {
    /// The path cannot be the place of a mount.
    #[error("{path:?} {wrong}")]
    Path {
        /// As the CO wrote it.
        path: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// Something else is mounted there.
    #[error("{} has another mount; unmount it by hand or use another path", path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
    },
    /// There are files beneath where the mount was or is to be.
    #[error("{} is not empty, so it is not ours; empty it or use another path", path.display())]
    NotEmpty {
        /// Where.
        path: PathBuf,
    },
    /// A process works in the mount.
    #[error("{} is in use; end the processes that use it", path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// The system said no.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl MountError {
    /// Whether it was found before anything was changed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Path { .. } | Self::Foreign { .. } | Self::NotEmpty { .. })
    }

    fn io(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { doing, path: path.to_owned(), source: source.into() }
    }
}

/// The place that `path` names, free of links; `None` if its parent directory does not exist.
///
/// The mount table knows only such paths. The place itself may be missing, but not be a link: a
/// mount would go where it points.
pub fn place(path: &str) -> Result<Option<PathBuf>, MountError> {
    let wrong = |wrong| MountError::Path { path: path.to_owned(), wrong };
    if path.len() > LONGEST_PATH_BYTES || path.contains('\0') {
        return Err(wrong("is not a path"));
    }
    let given = Path::new(path);
    if !given.is_absolute() {
        return Err(wrong("is not absolute"));
    }
    let (Some(parent), Some(name)) = (given.parent(), given.file_name()) else {
        return Err(wrong("does not end in a name"));
    };
    let place = match fs::canonicalize(parent) {
        Ok(parent) => parent.join(name),
        Err(error) if is_missing(&error) => return Ok(None),
        Err(source) => return Err(MountError::io("resolve", parent, source)),
    };
    match fs::symlink_metadata(&place) {
        Ok(meta) if meta.is_symlink() => Err(wrong("is a symbolic link")),
        Ok(_) => Ok(Some(place)),
        Err(error) if is_missing(&error) => Ok(Some(place)),
        Err(source) => Err(MountError::io("look at", &place, source)),
    }
}

/// What is mounted at `place`, seen from the volume whose content is `data`.
pub fn presence(place: &Path, data: &Path) -> Result<Presence, MountError> {
    if table::options_at(&read_table()?, place).is_none() {
        return Ok(Presence::Absent);
    }
    // A bind mount's root is the very directory that was bound.
    let same = identity(place)? == identity(data)?;
    Ok(if same { Presence::Volume } else { Presence::Foreign })
}

/// Mounts `source`, a directory with the volume's `data`, at the directory `place` with `flags`.
/// Fails if something else is mounted or lies there. A mount left by a killed call is made anew.
pub fn bind(
    source: &Path,
    data: &Path,
    place: &Path,
    flags: &BTreeSet<MountFlag>,
) -> Result<(), MountError> {
    unbind(place, data)?;
    let mut entries = fs::read_dir(place).map_err(|error| MountError::io("list", place, error))?;
    if entries.next().is_some() {
        return Err(MountError::NotEmpty { path: place.to_owned() });
    }
    let none = None::<&str>;
    mount(Some(source), place, none, MsFlags::MS_BIND, none)
        .map_err(|errno| MountError::io("mount", place, errno))?;
    if flags.is_empty() {
        return Ok(());
    }
    // A bind mount takes no flags of its own at first. Those it came with must be repeated: in a
    // user namespace the kernel refuses to drop them.
    let table = read_table()?;
    let came_with = table::options_at(&table, place).unwrap_or_default();
    let came_with = came_with.iter().filter_map(|name| MountFlag::from_name(name));
    let all = came_with.chain(flags.iter().copied()).map(flag_bits);
    let all = all.fold(MsFlags::MS_BIND | MsFlags::MS_REMOUNT, |all, flag| all | flag);
    mount(none, place, none, all, none)
        .map_err(|errno| MountError::io("set the flags of", place, errno))
}

/// Unmounts the volume whose content is `data` from `place`, however often it is mounted there.
/// Nothing there is success.
pub fn unbind(place: &Path, data: &Path) -> Result<(), MountError> {
    loop {
        match presence(place, data)? {
            Presence::Absent => return Ok(()),
            Presence::Foreign => return Err(MountError::Foreign { path: place.to_owned() }),
            Presence::Volume => {}
        }
        match umount2(place, MntFlags::UMOUNT_NOFOLLOW) {
            // Gone in between.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(Errno::EBUSY) => return Err(MountError::Busy { path: place.to_owned() }),
            Err(errno) => return Err(MountError::io("unmount", place, errno)),
        }
    }
}

/// Makes the directory `place` unless it is there.
pub fn make_place(place: &Path) -> Result<(), MountError> {
    match fs::create_dir(place) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && place.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(MountError::Path {
            path: place.display().to_string(),
            wrong: "exists and is not a directory",
        }),
        Err(source) => Err(MountError::io("make", place, source)),
    }
}

/// Removes the directory `place`, which has to be empty and have no mount. Missing is success.
pub fn remove_place(place: &Path) -> Result<(), MountError> {
    if table::options_at(&read_table()?, place).is_some() {
        return Err(MountError::Foreign { path: place.to_owned() });
    }
    match fs::remove_dir(place) {
        Ok(()) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            Err(MountError::NotEmpty { path: place.to_owned() })
        }
        Err(source) => Err(MountError::io("remove", place, source)),
    }
}

fn read_table() -> Result<Vec<u8>, MountError> {
    let path = Path::new("/proc/self/mountinfo");
    fs::read(path).map_err(|source| MountError::io("read", path, source))
}

fn identity(path: &Path) -> Result<(u64, u64), MountError> {
    let meta = fs::metadata(path).map_err(|source| MountError::io("look at", path, source))?;
    Ok((meta.dev(), meta.ino()))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn flag_bits(flag: MountFlag) -> MsFlags {
    match flag {
        MountFlag::Ro => MsFlags::MS_RDONLY,
        MountFlag::NoSuid => MsFlags::MS_NOSUID,
        MountFlag::NoDev => MsFlags::MS_NODEV,
        MountFlag::NoExec => MsFlags::MS_NOEXEC,
        MountFlag::NoAtime => MsFlags::MS_NOATIME,
        MountFlag::NoDirAtime => MsFlags::MS_NODIRATIME,
        MountFlag::RelAtime => MsFlags::MS_RELATIME,
    }
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
        let at = |path: &str| place(root.join(path).to_str().unwrap());

        assert_eq!(at("link/target").unwrap(), Some(root.join("real/target")));
        assert_eq!(at("real/target/").unwrap(), Some(root.join("real/target")));
        assert_eq!(at("missing/target").unwrap(), None);
        for path in ["link", "real/.."] {
            assert!(at(path).unwrap_err().is_refusal(), "{path}");
        }
        for path in ["relative", "", "/", "/nul\0"] {
            assert!(place(path).unwrap_err().is_refusal(), "{path:?}");
        }
    }

    #[test]
    fn only_an_empty_directory_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("target");
        remove_place(&place).unwrap();
        make_place(&place).unwrap();
        make_place(&place).unwrap();
        fs::write(place.join("file"), "kept").unwrap();
        assert!(matches!(remove_place(&place), Err(MountError::NotEmpty { .. })));
        fs::remove_file(place.join("file")).unwrap();
        remove_place(&place).unwrap();
        assert!(!place.exists());
    }
}
