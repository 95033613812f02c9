//! Whether only trusted users decide what a path leads to.
//!
//! **Owns** the walk along a path, one component at a time, from `/` to its end.
//!
//! **Promises** that the file it opens is the file it checked: each component is opened relative to
//! the one before it, without following a symbolic link (openat(2)), and checked when it is open.
//! The target of a symbolic link is walked in the same way. So no user can swap a component between
//! the check and the use.
//!
//! **Never** opens a file for reading or writing: `O_PATH` has no effect on what lies there.
//!
//! The rule for each component:
//! - It belongs to root, to the user of this process, or to a user who is trusted by name.
//! - In a user namespace that does not map the host's root, the kernel shows the files of root, and
//!   of every other user without a place in the map, as those of one *overflow user*. A component
//!   on the way may belong to that user, where no one else may write to the directory that holds
//!   it: so `/`, `/home` and `/tmp` pass, and a stranger's `/tmp/x` does not. The file itself, and
//!   the directory that it lies in, never may.
//! - A directory is not writable by its group or by others. The sticky bit (as on `/tmp`) is an
//!   excuse for a directory on the way: other users can add entries there, and replace none of a
//!   trusted user's. It is no excuse for the directory that the file lies in, nor for the file.
//! - A socket may be writable by others: that lets them connect, and nothing more.

mod unmapped;

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::process::geteuid;
use thiserror::Error;

/// Most symbolic links of one path, as in the kernel (`path_resolution(7)`).
const LINKS_MAX: usize = 40;
/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The users whose files are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedUsers {
    named: BTreeSet<u32>,
    /// The overflow user, if it stands for the host's root and for other unmapped users.
    unmapped: Option<u32>,
}

impl TrustedUsers {
    /// Root and the user of this process.
    pub fn own() -> Self {
        // The map of a user namespace is written once, before a program runs in it as root.
        static UNMAPPED: LazyLock<Option<u32>> = LazyLock::new(unmapped::overflow_user);
        Self { named: [0, geteuid().as_raw()].into(), unmapped: *UNMAPPED }
    }

    /// Also trusts this user.
    #[must_use]
    pub fn and(mut self, user: Option<u32>) -> Self {
        self.named.extend(user);
        self
    }

    /// Whether the user is trusted.
    pub fn has(&self, user: u32) -> bool {
        self.named.contains(&user)
    }
}

/// Why a path is not trusted.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The path does not begin at `/`.
    #[error("{} is not an absolute path", .0.display())]
    Relative(PathBuf),
    /// A component belongs to a user who is not trusted.
    #[error("{at} belongs to user {user}, who is not trusted: give it to root (`chown root {at}`)",
        at = path.display())]
    Owner {
        /// Which component.
        path: PathBuf,
        /// Its owner.
        user: u32,
    },
    /// A component can be changed by users who are not trusted.
    #[error("{at} is writable by others than its owner (mode {mode:04o}): `chmod go-w {at}`",
        at = path.display())]
    Writable {
        /// Which component.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The path has too many symbolic links, probably a loop.
    #[error("{} leads over more than {LINKS_MAX} symbolic links", .0.display())]
    Links(PathBuf),
    /// A component cannot be opened.
    #[error("{} cannot be opened", path.display())]
    Open {
        /// Which component.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl TrustError {
    /// The kind of the kernel's error, if that is the reason.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Open { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}

/// A file that only trusted users could have put where it is.
#[derive(Debug)]
pub struct Trusted {
    /// Opened with `O_PATH`; `/proc/self/fd/N` leads to this very file.
    pub file: OwnedFd,
    /// The path without symbolic links.
    pub real: PathBuf,
    /// Which kind of file it is.
    pub kind: FileType,
}

/// Opens the file at a path, and checks every component on the way.
pub fn open(path: &Path, users: &TrustedUsers) -> Result<Trusted, TrustError> {
    if !path.is_absolute() {
        return Err(TrustError::Relative(path.to_owned()));
    }
    let mut walk = Walk::from_root(users)?;
    let mut ahead = names(path);
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        let Some(target) = walk.step(&name, ahead.is_empty())? else { continue };
        links += 1;
        if links > LINKS_MAX {
            return Err(TrustError::Links(path.to_owned()));
        }
        if target.is_absolute() {
            walk = Walk::from_root(users)?;
        }
        for name in names(&target).into_iter().rev() {
            ahead.push_front(name);
        }
    }
    walk.end()
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

/// The component that a walk has reached.
struct Walk<'a> {
    users: &'a TrustedUsers,
    at: OwnedFd,
    stat: Stat,
    path: PathBuf,
}

impl<'a> Walk<'a> {
    fn from_root(users: &'a TrustedUsers) -> Result<Self, TrustError> {
        let path = PathBuf::from("/");
        let (at, stat) = open_one(CWD, path.as_os_str(), &path)?;
        let walk = Self { users, at, stat, path };
        if !walk.is_of_unmapped() {
            walk.check_owner()?;
        }
        Ok(walk)
    }

    /// Walks to the next component. Returns the target of a symbolic link instead, which the walk
    /// does not enter.
    fn step(&mut self, name: &OsStr, is_last: bool) -> Result<Option<PathBuf>, TrustError> {
        self.check_writable(false)?;
        let path = if name == ".." {
            self.path.parent().unwrap_or(Path::new("/")).to_owned()
        } else {
            self.path.join(name)
        };
        let (at, stat) = open_one(&self.at, name, &path)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if is_last && !matches!(kind, FileType::Symlink | FileType::Directory) {
            // A user who may add entries to the directory may wait until the file is absent.
            self.check_owner()?;
            self.check_writable(true)?;
        }
        let next_step = Self { users: self.users, at, stat, path };
        if next_step.is_of_unmapped() {
            // A sticky directory has entries of other users, and root looks like one of them here.
            self.check_writable(true).map_err(|_| next_step.owner_error())?;
        } else {
            next_step.check_owner()?;
        }
        if kind != FileType::Symlink {
            *self = next_step;
            return Ok(None);
        }
        let target = readlinkat(&next_step.at, c"", Vec::new());
        let target = target.map_err(|errno| failed(&next_step.path, errno))?;
        Ok(Some(OsString::from_vec(target.into_bytes()).into()))
    }

    fn end(self) -> Result<Trusted, TrustError> {
        let kind = FileType::from_raw_mode(self.stat.st_mode);
        self.check_owner()?;
        if kind != FileType::Socket {
            self.check_writable(true)?;
        }
        Ok(Trusted { file: self.at, real: self.path, kind })
    }

    fn check_owner(&self) -> Result<(), TrustError> {
        if self.users.has(self.stat.st_uid) {
            return Ok(());
        }
        Err(self.owner_error())
    }

    fn owner_error(&self) -> TrustError {
        TrustError::Owner { path: self.path.clone(), user: self.stat.st_uid }
    }

    /// Whether its owner is not mapped in this process's user namespace.
    fn is_of_unmapped(&self) -> bool {
        self.users.unmapped == Some(self.stat.st_uid) && !self.users.has(self.stat.st_uid)
    }

    fn check_writable(&self, strictly: bool) -> Result<(), TrustError> {
        let mode = self.stat.st_mode & 0o7777;
        let is_excused = mode & STICKY != 0 && !strictly;
        if mode & OTHERS_WRITE == 0 || is_excused {
            return Ok(());
        }
        Err(TrustError::Writable { path: self.path.clone(), mode })
    }
}

fn open_one(
    at: impl std::os::fd::AsFd,
    name: &OsStr,
    path: &Path,
) -> Result<(OwnedFd, Stat), TrustError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(at, name, flags, Mode::empty()).map_err(|errno| failed(path, errno))?;
    let stat = fstat(&opened).map_err(|errno| failed(path, errno))?;
    Ok((opened, stat))
}

fn failed(path: &Path, errno: rustix::io::Errno) -> TrustError {
    TrustError::Open { path: path.to_owned(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    const STRANGER: u32 = 4711;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn refused(path: &Path) -> String {
        open(path, &TrustedUsers::own()).unwrap_err().to_string()
    }

    #[test]
    fn a_path_below_a_sticky_directory_is_trusted_and_one_in_it_is_not() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let (file, socket) = (dir.path().join("file"), dir.path().join("socket"));
        fs::write(&file, "").unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        mode(&socket, 0o777);
        for path in [dir.path(), &file, &socket, &dir.path().join("../../proc")] {
            open(path, &TrustedUsers::own()).unwrap();
        }
        mode(dir.path(), 0o1777);
        for path in [dir.path(), &file, &socket] {
            assert!(refused(path).contains("mode 1777"), "{}", refused(path));
        }
        mode(dir.path(), 0o755);
        mode(&file, 0o664);
        assert!(refused(&file).contains("chmod go-w"), "{}", refused(&file));
    }

    #[test]
    fn each_directory_on_the_way_counts() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let (above, file) = (dir.path().join("a"), dir.path().join("a/b/file"));
        fs::create_dir_all(above.join("b")).unwrap();
        fs::write(&file, "").unwrap();
        mode(&above, 0o775);
        let refusal = refused(&file);
        assert!(refusal.contains("/a is writable") && refusal.contains("0775"), "{refusal}");
    }

    #[test]
    fn a_strangers_directory_file_or_link_is_named_with_its_owner() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let (below, file) = (dir.path().join("below"), dir.path().join("below/file"));
        let link = dir.path().join("link");
        fs::create_dir(&below).unwrap();
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let trusted = open(&link, &TrustedUsers::own()).unwrap();
        assert_eq!(trusted.real, fs::canonicalize(&file).unwrap());
        for path in [&below, &file] {
            if chown(path, Some(STRANGER), None).is_err() {
                println!("SKIPPED (needs root): gives files to another user");
                return;
            }
            for path in [&file, &link] {
                assert!(refused(path).contains("belongs to user 4711"), "{}", refused(path));
            }
            let users = TrustedUsers::own().and(Some(STRANGER));
            open(&link, &users).unwrap();
            chown(path, Some(0), None).unwrap();
        }
        std::os::unix::fs::lchown(&link, Some(STRANGER), None).unwrap();
        assert!(refused(&link).contains("link belongs to"), "{}", refused(&link));
    }

    #[test]
    fn an_unmapped_owner_passes_on_the_way_where_no_stranger_could_have_put_it() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let (above, below) = (dir.path().join("above"), dir.path().join("above/below"));
        let file = below.join("file");
        fs::create_dir_all(&below).unwrap();
        fs::write(&file, "").unwrap();
        if chown(&above, Some(STRANGER), None).is_err() {
            println!("SKIPPED (needs root): gives files to another user");
            return;
        }
        // As in a namespace that shows root's files as the overflow user's.
        let users = TrustedUsers { unmapped: Some(STRANGER), ..TrustedUsers::own() };
        let refused_at = |path: &Path| match open(path, &users) {
            Ok(_) => None,
            Err(TrustError::Owner { path, user: STRANGER }) => Some(path),
            Err(other) => panic!("{other}"),
        };
        assert!(refused(&file).contains("belongs to user 4711"));
        assert_eq!(refused_at(&file), None);
        // The end of the path, and the directory of the file.
        assert_eq!(refused_at(&above), Some(above.clone()));
        chown(&below, Some(STRANGER), None).unwrap();
        assert_eq!(refused_at(&file), Some(below.clone()));
        // A directory in which other users may make entries.
        chown(&below, Some(0), None).unwrap();
        mode(dir.path(), 0o1777);
        assert_eq!(refused_at(&file), Some(above));
    }

    #[test]
    fn links_are_walked_like_paths_and_a_circle_ends() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let (real_dir, open_dir) = (dir.path().join("real"), dir.path().join("open"));
        for dir in [&real_dir, &open_dir] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("file"), "").unwrap();
        }
        mode(&open_dir, 0o777);
        let link = real_dir.join("link");
        symlink("../open/file", &link).unwrap();
        assert!(refused(&link).contains("/open is writable"), "{}", refused(&link));
        let (target, link) = (real_dir.join("here"), real_dir.join("there"));
        symlink("there", &target).unwrap();
        symlink(&target, &link).unwrap();
        assert!(refused(&target).contains("symbolic links"), "{}", refused(&target));
        let missing = refused(&real_dir.join("missing/file"));
        assert!(missing.contains("real/missing cannot be opened"), "{missing}");
        assert!(refused(Path::new("relative")).contains("absolute"));
    }
}
