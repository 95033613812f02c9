//! The content of volumes and snapshots.
//!
//! Owns: creating, copying and growing it. Promises: an image is and stays sparse; a copy has
//! everything written before the call began. Never: shrinks an image, or formats a used one.
//!
//! A copy is not atomic: it may have parts of what is written meanwhile. A directory cannot be
//! snapshotted at one moment.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use nix::unistd::sync;

use super::error::BackendError;
use super::file;
use crate::backing::{Backing, FsType};
use crate::tool::{self, CP, MKFS_EXT4, MKFS_XFS, ToolError};

/// The size of an image is a multiple of this, in bytes.
pub const BLOCK_BYTES: i64 = 4096;

/// The path of the content in the directory of a volume or snapshot.
pub fn path(dir: &Path, backing: Backing) -> PathBuf {
    match backing {
        Backing::Directory => dir.join("data"),
        Backing::Image => dir.join("image"),
    }
}

/// Creates new content in `dir`. Replaces what a killed call left there.
pub(super) fn make(
    dir: &Path,
    backing: Backing,
    fs: Option<FsType>,
    size_bytes: i64,
) -> Result<(), BackendError> {
    clear(dir)?;
    let path = path(dir, backing);
    match backing {
        Backing::Directory => file::make_dir(&path),
        Backing::Image => {
            grow(&path, size_bytes)?;
            fs.map_or(Ok(()), |fs| Ok(format(dir, &path, fs)?))
        }
    }
}

/// Copies the content from `from` to `dir`. Replaces what a killed call left there.
pub(super) fn copy(from: &Path, dir: &Path, backing: Backing) -> Result<(), BackendError> {
    clear(dir)?;
    // The page cache of a mounted image is not in its file yet.
    sync();
    let to = path(dir, backing);
    let mut source: OsString = path(from, backing).into();
    if backing == Backing::Directory {
        file::make_dir(&to)?;
        source.push("/.");
    }
    // Leaves out mounts inside the directory.
    let options = ["--archive", "--one-file-system", "--sparse=always", "--reflink=auto", "--"];
    let args = options.map(OsString::from).into_iter().chain([source, to.into()]);
    CP.run(dir, args)?;
    Ok(())
}

/// Grows the image at `path` to at least this size. Creates it if it is missing.
pub(super) fn grow(path: &Path, size_bytes: i64) -> Result<(), BackendError> {
    let failed = |source| BackendError::io("grow", path, source);
    let mut options = OpenOptions::new();
    let image: File =
        options.write(true).create(true).truncate(false).open(path).map_err(failed)?;
    let wanted = u64::try_from(size_bytes).unwrap_or_default();
    if image.metadata().map_err(failed)?.len() < wanted {
        image.set_len(wanted).map_err(failed)?;
    }
    Ok(())
}

/// Removes all content in `dir`, after programs that work on it have ended.
pub(super) fn clear(dir: &Path) -> Result<(), BackendError> {
    let _idle = tool::idle(dir)?;
    [Backing::Directory, Backing::Image]
        .iter()
        .try_for_each(|backing| file::remove(&path(dir, *backing)))
}

fn format(dir: &Path, image: &Path, fs: FsType) -> Result<(), ToolError> {
    let (tool, options): (_, &[&str]) = match fs {
        FsType::Ext4 => (MKFS_EXT4, &["-q", "-F", "-m", "0", "-E", "nodiscard"]),
        FsType::Xfs => (MKFS_XFS, &["-q", "-f", "-K"]),
    };
    tool.run(dir, options.iter().map(OsString::from).chain([image.into()]))?;
    Ok(())
}
