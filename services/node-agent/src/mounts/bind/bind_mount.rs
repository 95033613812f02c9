//! Makes and removes bind mounts together with their links and proofs.
//!
//! **Promises** that the link and the proof are on the disk before the mount is made.
//!
//! Every function here blocks. A function may hang where a mount is dead, so [`super::Binds`] runs
//! it on the host pool.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use berth_host::Mount;
use berth_host::table::{MountTable, MountTableError};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use thiserror::Error;

use super::bind_path::{BindPath, BindPathError, read_dir, read_links};
use super::flags::{self, Flags};
use super::link::link_path;
use super::proof::{self, BindProof, BindVerdict};
use crate::host::paths::{VolumePaths, is_view};

/// Why a bind mount cannot be made.
#[derive(Debug, Error)]
pub(super) enum BindError {
    #[error(transparent)]
    Spot(#[from] BindPathError),
    #[error("{} cannot be made", .0.display())]
    Make(PathBuf, #[source] io::Error),
    #[error("{} cannot be mounted at {}", from.display(), to.display())]
    Mount { from: PathBuf, to: PathBuf, source: nix::Error },
    #[error("the dead mount at {} cannot be taken away; whoever uses it must end first",
        .0.display())]
    Dead(PathBuf, #[source] nix::Error),
    #[error("nothing is mounted at {}, where the volume is published", .0.display())]
    NoSource(PathBuf),
    #[error("the record {} of a mount cannot be read", .0.display())]
    Proof(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Foreign(#[from] ForeignMount),
    #[error("it is not known what is mounted")]
    Table(#[from] MountTableError),
}

/// A mount without proof that it is this volume's.
#[derive(Debug, Error)]
#[error(
    "at {at} something is mounted ({fs_type}, {source_name}) that nothing proves to be this \
     volume, so it is left alone: {why}; see what it is with `findmnt --mountpoint {at}`, then \
     unmount it or move it away with `umount {at}`", at = path.display()
)]
pub(super) struct ForeignMount {
    path: PathBuf,
    fs_type: String,
    source_name: String,
    why: &'static str,
}

impl ForeignMount {
    /// What a person does about it.
    pub(super) fn advise(&self) -> String {
        let path = self.path.display();
        format!("`umount {path}` once you know what it is; the release goes on by itself")
    }

    fn from_mount(mount: &Mount, why: &'static str) -> Self {
        Self {
            path: mount.point.clone(),
            fs_type: mount.fs_type.clone(),
            source_name: mount.source.to_string_lossy().into_owned(),
            why,
        }
    }
}

const EARLIER_BOOT: &str = "what the agent mounted there ended with an earlier boot";

/// Why a bind mount cannot be removed.
#[derive(Debug, Error)]
pub(super) enum UnbindError {
    #[error("the agent's directory {} cannot be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("{} cannot be unmounted; whoever uses it must end first", .0.display())]
    Unmount(PathBuf, #[source] nix::Error),
    #[error(transparent)]
    Foreign(#[from] ForeignMount),
    #[error("{} is still mounted", .0.display())]
    Still(PathBuf),
    #[error("{} cannot be removed", .0.display())]
    Remove(PathBuf, #[source] io::Error),
    #[error("it is not known what is mounted")]
    Table(#[from] MountTableError),
}

/// For arguments of mount(2) that a bind mount does not use.
const UNUSED: Option<&Path> = None;

/// Mounts what is at `from` at a path of the agent, with the flags of `from` and the requested
/// ones. An existing mount gets the flags, too: an agent may have been killed before it set them.
pub(super) fn bind_view(
    from: &Path,
    to: &Path,
    requested: Flags,
    boot_id: &str,
) -> Result<(), BindError> {
    let failed = |source| BindError::Mount { from: from.to_owned(), to: to.to_owned(), source };
    let table = MountTable::read_blocking()?;
    let source = table.top_at(from).ok_or_else(|| BindError::NoSource(from.to_owned()))?;
    let proof = proof::proof_file(to);
    if let Some(there) = table.top_at(to) {
        let unread = |error| BindError::Proof(proof.clone(), error);
        match proof::judge_mount(&proof, boot_id, there, Some(source)).map_err(unread)? {
            BindVerdict::Ours if proof::have_same_content(source, there) => {
                return set_flags(to, source, requested).map_err(failed);
            }
            // A dead mount of an earlier publication.
            BindVerdict::Ours => {
                unmount(to).map_err(|error| BindError::Dead(to.to_owned(), error))?;
            }
            BindVerdict::EarlierBoot => {
                return Err(ForeignMount::from_mount(there, EARLIER_BOOT).into());
            }
            BindVerdict::Foreign(why) => return Err(ForeignMount::from_mount(there, why).into()),
        }
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(to);
    made.map_err(|error| BindError::Make(to.to_owned(), error))?;
    let intended = BindProof::intend(boot_id, source, &table, to);
    intended.write(&proof).map_err(|error| BindError::Make(proof.clone(), error))?;
    mount(Some(from), to, UNUSED, MsFlags::MS_BIND, UNUSED).map_err(failed)?;
    complete_proof(intended, &proof, to);
    set_flags(to, source, requested).map_err(failed)
}

/// Sets the flags of `source` as well: a remount drops every flag that it does not name.
fn set_flags(path: &Path, source: &Mount, requested: Flags) -> nix::Result<()> {
    let flags = flags::add_flags(flags::mount_flags(source), requested);
    mount(UNUSED, path, UNUSED, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | flags, UNUSED)
}

/// Adds the ids of the new mount to its proof. If that fails, the intended content still proves it.
fn complete_proof(intended: BindProof, proof: &Path, path: &Path) {
    let table = MountTable::read_blocking().ok();
    let Some(made) = table.as_ref().and_then(|table| table.top_at(path)) else { return };
    if let Err(error) = intended.with_mount_ids(made).write(proof) {
        let proof = proof.display();
        tracing::warn!(%proof, %error, "the ids of a mount were not written down");
    }
}

/// Mounts what is at `from` at a caller's path, which the caller has just inspected.
pub(super) fn bind_at_path(
    from: &Path,
    spot: &BindPath,
    place: &VolumePaths,
    boot_id: &str,
) -> Result<(), BindError> {
    let path = spot.path();
    let link = link_path(place, from, path);
    if spot.owner().is_some_and(|owner| owner != link) {
        return Err(BindPathError::Taken(path.to_owned()).into());
    }
    let table = MountTable::read_blocking()?;
    let source = table.top_at(from).ok_or_else(|| BindError::NoSource(from.to_owned()))?;
    let proof = proof::proof_file(&link);
    if let Some(there) = table.top_at(path).filter(|_| spot.owner().is_some()) {
        // The mount of an earlier request, unless an operator has replaced it.
        let unread = |error| BindError::Proof(proof.clone(), error);
        let verdict = proof::judge_mount(&proof, boot_id, there, Some(source)).map_err(unread)?;
        if verdict == BindVerdict::Ours && proof::have_same_content(source, there) {
            return Ok(());
        }
        return Err(BindPathError::Mounted(path.to_owned()).into());
    }
    write_link(&link, path, &place.alloc_dir)
        .map_err(|error| BindError::Make(link.clone(), error))?;
    let intended = BindProof::intend(boot_id, source, &table, path);
    intended.write(&proof).map_err(|error| BindError::Make(proof.clone(), error))?;
    mount(Some(from), &spot.open_path(), UNUSED, MsFlags::MS_BIND, UNUSED).map_err(|source| {
        // Nothing was mounted. If the removal fails, the link only says that a mount may exist.
        let _ = fs::remove_file(&link).and_then(|()| fs::remove_file(&proof));
        BindError::Mount { from: from.to_owned(), to: path.to_owned(), source }
    })?;
    complete_proof(intended, &proof, path);
    Ok(())
}

fn unmount(path: &Path) -> nix::Result<()> {
    umount2(path, MntFlags::UMOUNT_NOFOLLOW)
}

/// Makes the link and syncs its directory.
fn write_link(link: &Path, to: &Path, dir: &Path) -> io::Result<()> {
    match symlink(to, link) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    File::open(dir)?.sync_all()
}

/// Removes every bind mount of this use: those at callers' paths first, then the views.
pub(super) fn remove_binds(place: &VolumePaths, boot_id: &str) -> Result<(), UnbindError> {
    let unread = |error| UnbindError::Read(place.alloc_dir.clone(), error);
    let links = read_links(&place.alloc_dir).map_err(unread)?;
    let entries = read_dir(&place.alloc_dir).map_err(unread)?;
    let has_name_of_view = |path: &&PathBuf| path.file_name().is_some_and(is_view);
    let views: Vec<PathBuf> = entries.iter().filter(has_name_of_view).cloned().collect();
    let unremoved = |error| UnbindError::Remove(place.alloc_dir.clone(), error);
    // A mount has its link or its directory for as long as it may exist.
    if links.is_empty() && views.is_empty() {
        return proof::remove_proofs(&place.alloc_dir, &entries).map_err(unremoved);
    }
    let table = MountTable::read_blocking()?;
    let target = table.top_at(&place.target);
    let views_as_records = views.iter().map(|view| (view, view));
    let records = links.iter().map(|(link, path)| (link, path)).chain(views_as_records);
    let mut not_ours = BTreeSet::new();
    for (record, path) in records {
        let Some(top) = table.top_at(path) else { continue };
        let file = proof::proof_file(record);
        let unread = |error| UnbindError::Read(file.clone(), error);
        match proof::judge_mount(&file, boot_id, top, target).map_err(unread)? {
            BindVerdict::Ours => {
                unmount(path).map_err(|error| UnbindError::Unmount(path.clone(), error))?;
            }
            // A boot ended the agent's mount at the caller's path. This mount is foreign.
            BindVerdict::EarlierBoot if record != path => {
                not_ours.insert(path);
            }
            BindVerdict::EarlierBoot => {
                return Err(ForeignMount::from_mount(top, EARLIER_BOOT).into());
            }
            BindVerdict::Foreign(why) => return Err(ForeignMount::from_mount(top, why).into()),
        }
    }
    let after = MountTable::read_blocking()?;
    for (link, path) in &links {
        if after.has(path) && !not_ours.contains(path) {
            return Err(UnbindError::Still(path.clone()));
        }
        fs::remove_file(link).map_err(|error| UnbindError::Remove(link.clone(), error))?;
    }
    for view in &views {
        if after.has(view) {
            return Err(UnbindError::Still(view.clone()));
        }
        fs::remove_dir(view).map_err(|error| UnbindError::Remove(view.clone(), error))?;
    }
    proof::remove_proofs(&place.alloc_dir, &entries).map_err(unremoved)
}
