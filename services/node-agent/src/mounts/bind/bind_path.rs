//! Inspects a path of the caller's choice: whether a volume can be mounted there.
//!
//! **Promises** that the volume is mounted on the file or directory that was inspected. The
//! inspection opens the path, which follows every symbolic link once. The mount is made on the open
//! descriptor.

use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use berth_domain::access::AttachmentMode;
use berth_host::{MountTable, MountTableError};
use nix::fcntl::OFlag;
use thiserror::Error;

use super::link::LINK_PREFIX;
use crate::host::paths::Paths;

/// A caller's path that was inspected. A volume can be mounted there, or the agent has done so.
#[derive(Debug)]
pub(in crate::mounts) struct BindPath {
    /// The path in the request, before links are followed.
    requested: String,
    real: PathBuf,
    is_directory: bool,
    /// The agent's link to this path.
    owner: Option<PathBuf>,
    open: File,
}

/// Why a volume cannot be mounted at a caller's path.
#[derive(Debug, Error)]
pub(in crate::mounts) enum BindPathError {
    #[error(
        "this node's agent puts volumes at no paths but its own: its `bind_below` is empty; name \
         the directories there below which it may"
    )]
    Nowhere,
    #[error("{0:?} is not an absolute path")]
    Relative(String),
    #[error("{0} cannot be looked at; it must be there before a volume is put upon it")]
    Open(String, #[source] io::Error),
    #[error(
        "{requested} is really {}, which is not below {}: `bind_below` of this node's agent says \
         where volumes may be put", real.display(), list(below)
    )]
    Elsewhere { requested: String, real: PathBuf, below: Vec<PathBuf> },
    #[error("{} lies in the directory of the agent itself", .0.display())]
    Ours(PathBuf),
    #[error("{} is a mount point already; unmount what is there, or choose another path",
        .0.display())]
    Mounted(PathBuf),
    #[error(
        "{} is where another volume, or this one for another alloc or under another name, is seen \
         on this node", .0.display()
    )]
    Taken(PathBuf),
    #[error(
        "{} lies in a volume, which is mounted at {}; that could not be unmounted before this one",
        path.display(), volume.display()
    )]
    Within { path: PathBuf, volume: PathBuf },
    #[error("{} is not empty, and a mount would hide what is in it", .0.display())]
    Full(PathBuf),
    #[error("{} is neither a directory nor a file", .0.display())]
    Kind(PathBuf),
    #[error("{} is a {is}, and a volume with attachment {attachment} is put upon a {needs}",
        path.display())]
    Unfit { path: PathBuf, is: &'static str, attachment: AttachmentMode, needs: &'static str },
    #[error("{requested} was {} when the volume was asked for, and is {} now", was.display(),
        is.display())]
    Changed { requested: String, was: PathBuf, is: PathBuf },
    #[error("it is not known what is mounted")]
    Table(#[from] MountTableError),
    #[error("the agent's directory {} cannot be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or ")
}

impl BindPath {
    /// Inspects a path. This may hang on a dead mount.
    pub(super) fn inspect(
        requested: &str,
        below: &[PathBuf],
        paths: &Paths,
    ) -> Result<Self, BindPathError> {
        if below.is_empty() {
            return Err(BindPathError::Nowhere);
        }
        if !Path::new(requested).is_absolute() {
            return Err(BindPathError::Relative(requested.to_owned()));
        }
        let unseen = |error| BindPathError::Open(requested.to_owned(), error);
        let open = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(requested);
        let open = open.map_err(unseen)?;
        let real = fs::read_link(open_path(&open)).map_err(unseen)?;
        let kind = open.metadata().map_err(unseen)?;
        // The configuration may name these directories by a link, too.
        let is_above = |dir: &&PathBuf| {
            let dir = fs::canonicalize(dir).unwrap_or_else(|_| (*dir).clone());
            real != dir && real.starts_with(dir)
        };
        if !below.iter().any(|dir| is_above(&dir)) {
            let (requested, below) = (requested.to_owned(), below.to_vec());
            return Err(BindPathError::Elsewhere { requested, real, below });
        }
        if real.starts_with(paths.root().parent().unwrap_or(paths.root())) {
            return Err(BindPathError::Ours(real));
        }
        let table = MountTable::read_blocking()?;
        let links = links_of_node(paths.root())?;
        let is_within = |(path, _): &&(PathBuf, PathBuf)| real != *path && real.starts_with(path);
        let mut mounted = links.iter().filter(|(path, _)| table.has(path));
        if let Some((volume, _)) = mounted.find(is_within) {
            return Err(BindPathError::Within { path: real, volume: volume.clone() });
        }
        let owner = links.into_iter().find(|(path, _)| *path == real).map(|(_, owner)| owner);
        let is_mounted = table.has(&real);
        match &owner {
            None if is_mounted => return Err(BindPathError::Mounted(real)),
            Some(_) if is_mounted => {}
            _ => check_empty(&real, kind.file_type(), kind.len())?,
        }
        Ok(Self { requested: requested.to_owned(), is_directory: kind.is_dir(), real, owner, open })
    }

    /// Inspects the path again. It must still lead to the same real path.
    pub(super) fn inspect_again(
        self,
        below: &[PathBuf],
        paths: &Paths,
    ) -> Result<Self, BindPathError> {
        let now = Self::inspect(&self.requested, below, paths)?;
        if now.real == self.real {
            return Ok(now);
        }
        Err(BindPathError::Changed { requested: self.requested, was: self.real, is: now.real })
    }

    /// Checks that a file system is mounted on a directory and a block device on a file.
    pub(super) fn check_fits(&self, attachment: AttachmentMode) -> Result<(), BindPathError> {
        let (is, other) =
            if self.is_directory { ("directory", "file") } else { ("file", "directory") };
        // A mounted block device is neither a file nor a directory.
        if self.owner.is_some() || self.is_directory == (attachment == AttachmentMode::FileSystem) {
            return Ok(());
        }
        Err(BindPathError::Unfit { path: self.real.clone(), is, attachment, needs: other })
    }

    /// The real path, without links.
    pub(super) fn path(&self) -> &Path {
        &self.real
    }

    /// The agent's link to this path.
    pub(super) fn owner(&self) -> Option<&Path> {
        self.owner.as_deref()
    }

    /// The path of the open descriptor. It leads to what was inspected, even if the path changed.
    pub(super) fn open_path(&self) -> PathBuf {
        open_path(&self.open)
    }
}

fn open_path(open: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// Refuses a path unless it is an empty directory or an empty file.
fn check_empty(path: &Path, kind: FileType, bytes: u64) -> Result<(), BindPathError> {
    let unseen = |error| BindPathError::Open(path.display().to_string(), error);
    let is_empty = if kind.is_dir() {
        fs::read_dir(path).map_err(unseen)?.next().is_none()
    } else if kind.is_file() {
        bytes == 0
    } else {
        return Err(BindPathError::Kind(path.to_owned()));
    };
    if is_empty { Ok(()) } else { Err(BindPathError::Full(path.to_owned())) }
}

/// The callers' paths of all volumes on this node, each with the agent's link to it.
fn links_of_node(root: &Path) -> Result<Vec<(PathBuf, PathBuf)>, BindPathError> {
    let mut found = Vec::new();
    for volume in read_agent_dir(root)? {
        // `staging` is the staged volume and not an alloc.
        for alloc in read_agent_dir(&volume)?.into_iter().filter(|dir| !dir.ends_with("staging")) {
            let own =
                read_links(&alloc).map_err(|error| BindPathError::Read(alloc.clone(), error))?;
            found.extend(own.into_iter().map(|(link, to)| (to, link)));
        }
    }
    Ok(found)
}

/// The callers' paths of one volume, for all of its allocs.
pub(super) fn bind_paths_of_volume(volume_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for alloc in read_dir(volume_dir)?.into_iter().filter(|dir| !dir.ends_with("staging")) {
        found.extend(read_links(&alloc)?.into_iter().map(|(_, to)| to));
    }
    Ok(found)
}

fn read_agent_dir(dir: &Path) -> Result<Vec<PathBuf>, BindPathError> {
    read_dir(dir).map_err(|error| BindPathError::Read(dir.to_owned(), error))
}

/// The entries of a directory. Empty if the directory is missing.
pub(super) fn read_dir(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        read => read?.map(|entry| entry.map(|entry| entry.path())).collect(),
    }
}

/// The links in an alloc's directory, each with its target.
pub(super) fn read_links(alloc: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let is_link = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(LINK_PREFIX))
    };
    let links = read_dir(alloc)?.into_iter().filter(is_link);
    links
        .filter_map(|link| match fs::read_link(&link) {
            Err(error) if is_absent(&error) => None,
            to => Some(to.map(|to| (link, to))),
        })
        .collect()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_inspected_behind_its_links_and_refused_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        let (binds, state) = (dir.join("binds"), dir.join("binds/state"));
        for made in [&binds.join("data"), &state.join("csi"), &binds.join("full/in")] {
            fs::create_dir_all(made).unwrap();
        }
        symlink(binds.join("data"), binds.join("link")).unwrap();
        symlink("/etc", binds.join("etc")).unwrap();
        fs::write(binds.join("file"), "x").unwrap();
        File::create(binds.join("bare")).unwrap();
        let paths = Paths::new(&state);
        let inspect = |path: &Path, below: &[PathBuf]| {
            BindPath::inspect(path.to_str().unwrap(), below, &paths)
                .map_err(|error| error.to_string())
        };
        let below = [binds.clone()];
        let spot = inspect(&binds.join("link"), &below).unwrap();
        assert_eq!((spot.path(), spot.owner()), (binds.join("data").as_path(), None));
        assert!(spot.check_fits(AttachmentMode::FileSystem).is_ok());
        assert!(spot.check_fits(AttachmentMode::BlockDevice).is_err());
        let bare = inspect(&binds.join("bare"), &below).unwrap();
        assert!(bare.check_fits(AttachmentMode::BlockDevice).is_ok());
        for (path, words) in [
            (binds.clone(), "`bind_below`"),
            (dir.clone(), "`bind_below`"),
            (binds.join("etc"), "really /etc"),
            (binds.join("state/csi"), "the agent itself"),
            (binds.join("full"), "not empty"),
            (binds.join("file"), "not empty"),
            (binds.join("gone"), "must be there"),
            (PathBuf::from("data"), "absolute"),
        ] {
            let refused = inspect(&path, &below).unwrap_err();
            assert!(refused.contains(words), "{}: {refused}", path.display());
        }
        assert!(inspect(&binds.join("data"), &[]).unwrap_err().contains("`bind_below` is empty"));

        // A path that changed after the inspection is refused.
        fs::remove_file(binds.join("link")).unwrap();
        symlink(binds.join("bare"), binds.join("link")).unwrap();
        let changed = spot.inspect_again(&below, &paths).unwrap_err().to_string();
        assert!(changed.contains("when the volume was asked for"), "{changed}");
    }
}
