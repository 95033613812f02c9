//! A published volume in further places: under another name of its alloc's, and at a path of the
//! caller's choice (E6).
//!
//! **Owns** the bind mounts of a target, and what says where they are:
//!
//! ```text
//! <volume>/<alloc>/also1                      the volume under another name, by its number
//! <volume>/<alloc>/bind-also1-<hash> -> /srv  where that, or the target itself, is seen besides
//! <volume>/<alloc>/proof-…                    of each, what proves that this agent mounted it
//! ```
//!
//! **Promises** that the link is on the disk before its mount is made and goes after it, so that an
//! agent that lost its journal still finds every one by the ids; that all are gone before the
//! volume is unpublished; and that no mount, file or directory of others is hidden or taken away.
//!
//! **Never** unmounts by force, nor what it cannot prove to have mounted itself in this boot.

pub(super) mod flags;
mod place;
mod proof;
mod spot;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::message::claim::{Grant, View};
use berth_contract::problem::Problem;
use berth_domain::access::AttachmentMode;
use berth_host::{HostOperation, HostPool, HostPoolError};
use berth_service::locks::KeyedLocks;
use tokio::time::timeout;

use super::{local_problem, read_mount_table};
use crate::host_pool::{CHANGE_MAX, INSPECT_MAX, VolumeHost};
use crate::paths::{Paths, VolumePaths};
pub(super) use spot::BindPath;

/// Makes bind mounts, and takes them away. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Binds {
    paths: Paths,
    boot_id: Arc<str>,
    below: Arc<[PathBuf]>,
    pool: HostPool,
    turns: KeyedLocks<PathBuf>,
}

impl Binds {
    /// For volumes that lie so, at paths of callers below one of these directories only, in this
    /// boot of the host.
    pub fn new(pool: &HostPool, paths: &Paths, boot_id: &str, below: &[PathBuf]) -> Self {
        Self {
            paths: paths.clone(),
            boot_id: boot_id.into(),
            below: below.into(),
            pool: pool.clone(),
            turns: KeyedLocks::default(),
        }
    }

    /// Looks whether a volume can be put at a caller's path, before it is asked for.
    pub(super) async fn check_path(&self, path: &str) -> Result<BindPath, Problem> {
        let (paths, below, asked) = (self.paths.clone(), Arc::clone(&self.below), path.to_owned());
        self.inspect_path(path.as_ref(), move || BindPath::inspect(&asked, &below, &paths)).await
    }

    /// Looks at a caller's path: it may lead across a dead mount. Paths share threads with those
    /// below the same mount point.
    async fn inspect_path(
        &self,
        path: &Path,
        look: impl FnOnce() -> Result<BindPath, spot::BindPathError> + Send + 'static,
    ) -> Result<BindPath, Problem> {
        let table = read_mount_table(Code::PathRefused).await?;
        let above = path.ancestors().find(|above| table.has(above)).unwrap_or(Path::new("/"));
        let share = format!("callers' paths below {}", above.display());
        let looked = self.pool.run(HostOperation::new("look", share, path), INSPECT_MAX, look);
        match looked.await {
            Ok(spot) => spot.map_err(refused),
            Err(HostPoolError::Late { .. }) => {
                let said = format!(
                    "{} does not answer within {INSPECT_MAX:?}: is it on a dead mount?",
                    path.display()
                );
                Err(Problem::new(Code::PathRefused, said))
            }
            Err(error) => Err(local_problem(Code::Overloaded)(error)),
        }
    }

    /// Shows a published volume where it was asked for; the path is what the workload is given.
    pub(super) async fn show_volume(
        &self,
        host: &VolumeHost,
        grant: &Grant,
        place: &VolumePaths,
        spot: Option<BindPath>,
    ) -> Result<PathBuf, Problem> {
        let from = match &grant.view {
            None => place.target.clone(),
            Some(view) => self.make_view(host, grant, view, place).await?,
        };
        match spot {
            None => Ok(from),
            Some(spot) => self.make_bind(host, from, spot, place, grant.attachment).await,
        }
    }

    /// Mounts the volume under another name of the alloc's. Again is the same.
    async fn make_view(
        &self,
        host: &VolumeHost,
        grant: &Grant,
        view: &View,
        place: &VolumePaths,
    ) -> Result<PathBuf, Problem> {
        let flags = check_view(grant, view)?;
        let (from, to) = (place.target.clone(), place.view(view.place));
        let (path, boot_id) = (to.clone(), Arc::clone(&self.boot_id));
        let made =
            host.run("bind mount", move || place::bind_view(&from, &to, flags, &boot_id)).await;
        made.map_err(local_problem(Code::MountFailed))?.map_err(|error| match error {
            place::BindError::Foreign(_) => local_problem(Code::ForeignMount)(error),
            error => local_problem(Code::MountFailed)(error),
        })?;
        Ok(path)
    }

    /// Puts what is mounted at `from` at a caller's path. Again is the same.
    async fn make_bind(
        &self,
        host: &VolumeHost,
        from: PathBuf,
        spot: BindPath,
        place: &VolumePaths,
        attachment: AttachmentMode,
    ) -> Result<PathBuf, Problem> {
        spot.check_fits(attachment).map_err(refused)?;
        let path = spot.path().to_owned();
        let turn = timeout(CHANGE_MAX, self.turns.lock(&path)).await.map_err(|_| {
            let said = format!("another volume is being mounted at {}", path.display());
            Problem::new(Code::Overloaded, said).retryable()
        })?;
        // Inspected again, because minutes may have passed.
        let (paths, below) = (self.paths.clone(), Arc::clone(&self.below));
        let spot = self.inspect_path(&path, move || spot.inspect_again(&below, &paths)).await?;
        let (place, boot_id) = (place.clone(), Arc::clone(&self.boot_id));
        let put = host.run("bind mount", move || {
            // Kept to the end of the mount, also when its caller has given up.
            let _turn = turn;
            place::bind_at_path(&from, &spot, &place, &boot_id).map(|()| spot.path().to_owned())
        });
        match put.await.map_err(local_problem(Code::MountFailed))? {
            Ok(path) => Ok(path),
            Err(error @ place::BindError::Spot(_)) => Err(refused(error)),
            Err(error) => Err(local_problem(Code::MountFailed)(error)),
        }
    }

    /// Every caller's path at which this volume is, or is to be, seen on the node, for any alloc.
    pub(super) async fn paths_of_volume(
        &self,
        host: &VolumeHost,
        place: &VolumePaths,
    ) -> Result<Vec<PathBuf>, Problem> {
        let volume_dir = place.volume_dir.clone();
        let found = host.run("read links", move || spot::links_of_volume(&volume_dir)).await;
        found
            .map_err(local_problem(Code::UnmountFailed))?
            .map_err(local_problem(Code::UnmountFailed))
    }

    /// Takes away every view and every bind of this use.
    pub(super) async fn remove(
        &self,
        host: &VolumeHost,
        place: &VolumePaths,
    ) -> Result<(), Problem> {
        let (place, boot_id) = (place.clone(), Arc::clone(&self.boot_id));
        let undone = host.run("unmount", move || place::remove_binds(&place, &boot_id)).await;
        undone.map_err(local_problem(Code::UnmountFailed))?.map_err(|error| match error {
            place::UnbindError::Foreign(_) => local_problem(Code::ForeignMount)(error),
            error => local_problem(Code::UnmountFailed)(error),
        })
    }
}

/// What can be known of a view before anything is mounted.
pub(super) fn check_view(grant: &Grant, view: &View) -> Result<flags::Flags, Problem> {
    let refused = |said: String| Problem::new(Code::MountOptionsRefused, said);
    if grant.attachment == AttachmentMode::BlockDevice {
        let said = "a block device is had under one name only: what may be done with it is the \
                    device's property, not that of a path";
        return Err(refused(said.to_owned()));
    }
    flags::view_flags(&grant.mount, view.mode, &view.mount).map_err(refused)
}

fn refused<E: std::error::Error + 'static>(error: E) -> Problem {
    Problem::new(Code::PathRefused, berth_service::process::chain(&error))
}

/// What is in the alloc's directory for what is mounted at `from` and seen at a caller's path, too.
fn link_path(place: &VolumePaths, from: &Path, path: &Path) -> PathBuf {
    let what = from.file_name().unwrap_or_default().to_string_lossy();
    place.alloc_dir.join(format!("{LINK}{what}-{}", crate::paths::path_hash(path)))
}

/// How the names of links begin.
const LINK: &str = "bind-";

#[cfg(test)]
mod tests;
