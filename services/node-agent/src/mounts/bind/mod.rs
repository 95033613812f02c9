//! Bind mounts of a published volume (E6): a view, which is another name of the volume in its
//! alloc, and a mount at a path of the caller's choice.
//!
//! **Owns** these mounts and their records in the alloc's directory:
//!
//! ```text
//! <volume>/<alloc>/also1                      a view, by its number
//! <volume>/<alloc>/bind-also1-<hash> -> /srv  a link to the caller's path of a view or the target
//! <volume>/<alloc>/proof-…                    for each of these: proves that the agent mounted it
//! ```
//!
//! **Promises**
//! - that a link is on the disk before its mount is made, and is removed after the unmount. An
//!   agent that lost its journal still finds every bind mount by the ids;
//! - that all bind mounts are gone before the volume is unpublished;
//! - that no foreign mount, file or directory is hidden or removed.
//!
//! **Never** unmounts by force. It never unmounts what this agent cannot prove to have mounted in
//! this boot.

mod bind_mount;
mod bind_path;
pub(super) mod flags;
mod link;
mod proof;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::message::claim::{Grant, View};
use berth_contract::problem::Problem;
use berth_domain::access::AttachmentMode;
use berth_host::{HostOperation, HostPool, HostPoolError};
use berth_service::locks::KeyedLocks;
use nix::errno::Errno;
use tokio::time::timeout;

use self::bind_mount::UnbindError;
use super::node_faults::{local_problem, read_mount_table};
use super::still_mounted;
use crate::host::paths::{Paths, VolumePaths};
use crate::host::pool::{CHANGE_MAX, INSPECT_MAX, VolumeHost};
pub(super) use bind_path::BindPath;

/// Makes and removes bind mounts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Binds {
    paths: Paths,
    boot_id: Arc<str>,
    bind_below: Arc<[PathBuf]>,
    pool: HostPool,
    /// One lock per caller's path: two volumes are never mounted at one path at the same time.
    path_locks: KeyedLocks<PathBuf>,
}

impl Binds {
    /// Callers' paths must be below one of the directories in `bind_below`.
    pub fn new(pool: &HostPool, paths: &Paths, boot_id: &str, bind_below: &[PathBuf]) -> Self {
        Self {
            paths: paths.clone(),
            boot_id: boot_id.into(),
            bind_below: bind_below.into(),
            pool: pool.clone(),
            path_locks: KeyedLocks::default(),
        }
    }

    /// Checks whether a volume can be mounted at a caller's path, before the plugin is called.
    pub(super) async fn check_path(&self, path: &str) -> Result<BindPath, Problem> {
        let (paths, below) = (self.paths.clone(), Arc::clone(&self.bind_below));
        let requested = path.to_owned();
        self.inspect_path(path.as_ref(), move || BindPath::inspect(&requested, &below, &paths))
            .await
    }

    /// Runs an inspection of a caller's path with a timeout, because the path may cross a dead
    /// mount. Paths below one mount point share threads.
    async fn inspect_path(
        &self,
        path: &Path,
        inspect: impl FnOnce() -> Result<BindPath, bind_path::BindPathError> + Send + 'static,
    ) -> Result<BindPath, Problem> {
        let table = read_mount_table(Code::PathRefused).await?;
        let above = path.ancestors().find(|above| table.has(above)).unwrap_or(Path::new("/"));
        let share = format!("callers' paths below {}", above.display());
        let inspected =
            self.pool.run(HostOperation::new("look", share, path), INSPECT_MAX, inspect);
        match inspected.await {
            Ok(spot) => spot.map_err(path_refused),
            Err(HostPoolError::Late { .. }) => {
                let message = format!(
                    "{} does not answer within {INSPECT_MAX:?}: is it on a dead mount?",
                    path.display()
                );
                Err(Problem::new(Code::PathRefused, message))
            }
            Err(error) => Err(local_problem(Code::Overloaded)(error)),
        }
    }

    /// Makes the view and the mount at the caller's path that the request names. Returns the path
    /// that the workload uses.
    pub(super) async fn make_requested_binds(
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

    /// Mounts a view of the volume. Idempotent.
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
        let made = host
            .run("bind mount", move || bind_mount::bind_view(&from, &to, flags, &boot_id))
            .await;
        made.map_err(local_problem(Code::MountFailed))?.map_err(|error| match error {
            bind_mount::BindError::Foreign(_) => local_problem(Code::ForeignMount)(error),
            error => local_problem(Code::MountFailed)(error),
        })?;
        Ok(path)
    }

    /// Mounts what is at `from` at a caller's path. Idempotent.
    async fn make_bind(
        &self,
        host: &VolumeHost,
        from: PathBuf,
        spot: BindPath,
        place: &VolumePaths,
        attachment: AttachmentMode,
    ) -> Result<PathBuf, Problem> {
        spot.check_fits(attachment).map_err(path_refused)?;
        let path = spot.path().to_owned();
        let path_lock = timeout(CHANGE_MAX, self.path_locks.lock(&path)).await.map_err(|_| {
            let message = format!("another volume is being mounted at {}", path.display());
            Problem::new(Code::Overloaded, message).retryable()
        })?;
        // Inspected again, because minutes may have passed.
        let (paths, below) = (self.paths.clone(), Arc::clone(&self.bind_below));
        let spot = self.inspect_path(&path, move || spot.inspect_again(&below, &paths)).await?;
        let (place, boot_id) = (place.clone(), Arc::clone(&self.boot_id));
        let mounted = host.run("bind mount", move || {
            // Locked until the mount ends, even if its caller has given up.
            let _path_lock = path_lock;
            bind_mount::bind_at_path(&from, &spot, &place, &boot_id)
                .map(|()| spot.path().to_owned())
        });
        match mounted.await.map_err(local_problem(Code::MountFailed))? {
            Ok(path) => Ok(path),
            Err(error @ bind_mount::BindError::Spot(_)) => Err(path_refused(error)),
            Err(error) => Err(local_problem(Code::MountFailed)(error)),
        }
    }

    /// The callers' paths at which any alloc's bind mount of this volume may be on the node.
    pub(super) async fn paths_of_volume(
        &self,
        host: &VolumeHost,
        place: &VolumePaths,
    ) -> Result<Vec<PathBuf>, Problem> {
        let volume_dir = place.volume_dir.clone();
        let found =
            host.run("read links", move || bind_path::bind_paths_of_volume(&volume_dir)).await;
        found
            .map_err(local_problem(Code::UnmountFailed))?
            .map_err(local_problem(Code::UnmountFailed))
    }

    /// Removes every view and every mount at a caller's path of this use.
    pub(super) async fn remove_binds(
        &self,
        host: &VolumeHost,
        place: &VolumePaths,
    ) -> Result<(), Problem> {
        let (place, boot_id) = (place.clone(), Arc::clone(&self.boot_id));
        let undone = host.run("unmount", move || bind_mount::remove_binds(&place, &boot_id)).await;
        let Err(error) = undone.map_err(local_problem(Code::UnmountFailed))? else {
            return Ok(());
        };
        Err(match &error {
            UnbindError::Foreign(foreign) => {
                let next = foreign.advise();
                local_problem(Code::ForeignMount)(error).next(next)
            }
            UnbindError::Unmount(path, Errno::EBUSY) => {
                let path = path.clone();
                still_mounted::explain(local_problem(Code::UnmountFailed)(error), &path).await
            }
            _ => local_problem(Code::UnmountFailed)(error),
        })
    }
}

/// Checks a view before anything is mounted. Returns its flags.
pub(super) fn check_view(grant: &Grant, view: &View) -> Result<flags::Flags, Problem> {
    let refuse = |message: String| Problem::new(Code::MountOptionsRefused, message);
    if grant.attachment == AttachmentMode::BlockDevice {
        let message = "a block device is had under one name only: what may be done with it is the \
                    device's property, not that of a path";
        return Err(refuse(message.to_owned()));
    }
    flags::view_flags(&grant.mount, view.mode, &view.mount).map_err(refuse)
}

fn path_refused<E: std::error::Error + 'static>(error: E) -> Problem {
    Problem::new(Code::PathRefused, berth_service::process::chain(&error))
}

#[cfg(test)]
mod tests;
