//! The mounts themselves, and their links. All of this may hang where a mount is dead.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use berth_host::{MountTable, MountTableError};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use thiserror::Error;

use super::flags::Flags;
use super::link;
use super::spot::{Spot, SpotError, links_of, read_dir};
use crate::paths::{Place, VIEW};

/// Why a volume is not seen where it was asked for.
#[derive(Debug, Error)]
pub(super) enum PutError {
    /// The path will not do.
    #[error(transparent)]
    Spot(#[from] SpotError),
    /// What is needed in the agent's own directory cannot be made.
    #[error("{} cannot be made", .0.display())]
    Make(PathBuf, #[source] io::Error),
    /// The kernel refused.
    #[error("{} cannot be mounted at {}", from.display(), to.display())]
    Mount { from: PathBuf, to: PathBuf, source: nix::Error },
    /// A dead mount is in the way.
    #[error("the dead mount at {} cannot be taken away; whoever uses it must end first",
        .0.display())]
    Dead(PathBuf, #[source] nix::Error),
    /// It is not known what is mounted.
    #[error("it is not known what is mounted")]
    Table(#[from] MountTableError),
}

/// Why a volume is still seen somewhere.
#[derive(Debug, Error)]
pub(super) enum UndoError {
    /// It is not known where.
    #[error("the agent's directory {} cannot be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The kernel refused.
    #[error("{} cannot be unmounted; whoever uses it must end first", .0.display())]
    Unmount(PathBuf, #[source] nix::Error),
    /// Something else is there.
    #[error(
        "at {} something else is mounted than this volume, upon it or in its place: unmount it, \
         then this is tried again", .0.display()
    )]
    Foreign(PathBuf),
    /// It was unmounted, and is there.
    #[error("{} is still mounted", .0.display())]
    Still(PathBuf),
    /// What was made for it cannot be removed.
    #[error("{} cannot be removed", .0.display())]
    Remove(PathBuf, #[source] io::Error),
    /// It is not known what is mounted.
    #[error("it is not known what is mounted")]
    Table(#[from] MountTableError),
}

const NONE: Option<&Path> = None;

/// Mounts what is at `from` at a path of our own, with these flags. They are set also when it is
/// mounted already: an agent may have been killed in between.
pub(super) fn view(from: &Path, to: &Path, flags: Flags) -> Result<(), PutError> {
    let failed = |source| PutError::Mount { from: from.to_owned(), to: to.to_owned(), source };
    let mut is_there = MountTable::read_blocking()?.has(to);
    if is_there && same(from, to) != Some(true) {
        // It is of an earlier publication, and dead.
        unmount(to).map_err(|error| PutError::Dead(to.to_owned(), error))?;
        is_there = false;
    }
    if !is_there {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(to);
        made.map_err(|error| PutError::Make(to.to_owned(), error))?;
        mount(Some(from), to, NONE, MsFlags::MS_BIND, NONE).map_err(failed)?;
    }
    let remount = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | flags;
    mount(NONE, to, NONE, remount, NONE).map_err(failed)
}

/// Mounts what is at `from` at a caller's path, which was just looked at.
pub(super) fn put(from: &Path, spot: &Spot, place: &Place) -> Result<(), PutError> {
    let path = spot.path();
    let link = link(place, from, path);
    if spot.owner().is_some_and(|owner| owner != link) {
        return Err(SpotError::Taken(path.to_owned()).into());
    }
    if spot.owner().is_some() && MountTable::read_blocking()?.has(path) {
        // It was asked for before, unless somebody took it away and mounted something else. One
        // that is dead could not have been looked at.
        return match same(from, path) {
            Some(true) => Ok(()),
            _ => Err(SpotError::Mounted(path.to_owned()).into()),
        };
    }
    note(&link, path, &place.alloc_dir).map_err(|error| PutError::Make(link.clone(), error))?;
    mount(Some(from), &spot.handle(), NONE, MsFlags::MS_BIND, NONE).map_err(|source| {
        // Nothing was mounted. A link that stays says only that something may be.
        let _ = fs::remove_file(&link);
        PutError::Mount { from: from.to_owned(), to: path.to_owned(), source }
    })
}

fn unmount(path: &Path) -> nix::Result<()> {
    umount2(path, MntFlags::UMOUNT_NOFOLLOW)
}

/// Makes the link, and has it on the disk.
fn note(link: &Path, to: &Path, dir: &Path) -> io::Result<()> {
    match symlink(to, link) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    File::open(dir)?.sync_all()
}

/// Takes away every view and every bind of this use: first those at callers' paths.
pub(super) fn undo(place: &Place) -> Result<(), UndoError> {
    let unread = |error| UndoError::Read(place.alloc_dir.clone(), error);
    let links = links_of(&place.alloc_dir).map_err(unread)?;
    let is_view = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(VIEW))
    };
    let views: Vec<PathBuf> =
        read_dir(&place.alloc_dir).map_err(unread)?.into_iter().filter(is_view).collect();
    // Each has its link or its directory for as long as it may be mounted.
    if links.is_empty() && views.is_empty() {
        return Ok(());
    }
    let table = MountTable::read_blocking()?;
    let is_known = table.has(&place.target);
    for path in links.iter().map(|(_, path)| path).chain(&views).filter(|path| table.has(path)) {
        if is_known && same(&place.target, path) == Some(false) {
            return Err(UndoError::Foreign(path.clone()));
        }
        unmount(path).map_err(|error| UndoError::Unmount(path.clone(), error))?;
    }
    let left = MountTable::read_blocking()?;
    for (link, path) in &links {
        if left.has(path) {
            return Err(UndoError::Still(path.clone()));
        }
        fs::remove_file(link).map_err(|error| UndoError::Remove(link.clone(), error))?;
    }
    for view in &views {
        if left.has(view) {
            return Err(UndoError::Still(view.clone()));
        }
        fs::remove_dir(view).map_err(|error| UndoError::Remove(view.clone(), error))?;
    }
    Ok(())
}

/// Whether both paths show one thing; none when that cannot be seen, as on a dead mount.
fn same(one: &Path, other: &Path) -> Option<bool> {
    let id = |meta: Metadata| (meta.dev(), meta.ino());
    let (one, other) = (fs::metadata(one).ok()?, fs::metadata(other).ok()?);
    Some(id(one) == id(other))
}
