//! Snapshots, and groups of them.
//!
//! Owns: the directories of snapshots and the files of groups. Promises: a snapshot exists while
//! its `meta.json` does. A group is recorded before its first member is taken and until its last
//! member is removed. Never: shares content with the volume.

use std::path::{Path, PathBuf};

use super::error::BackendError;
use super::meta::{GroupMeta, SnapshotMeta};
use super::store::Backend;
use super::volume::Volume;
use super::{content, directory, encoding, file};
use crate::lock::Lock;

/// A snapshot that exists.
#[derive(Clone, Debug)]
pub struct Snapshot {
    dir: PathBuf,
    meta: SnapshotMeta,
}

impl Snapshot {
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// The directory that its content is copied from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn open(dir: PathBuf) -> Result<Option<Self>, BackendError> {
        let meta = file::read(&directory::record(&dir))?;
        Ok(meta.map(|meta| Self { dir, meta }))
    }
}

impl Backend {
    /// Takes a snapshot of `source`, or returns the existing one. The caller holds the volume's
    /// lock.
    pub fn take_snapshot(
        &self,
        source: &Volume,
        meta: &SnapshotMeta,
    ) -> Result<Option<SnapshotMeta>, BackendError> {
        let dir = self.snapshot_dir(&meta.snapshot_id)?;
        let _lock = directory::make(&dir)?;
        let path = directory::record(&dir);
        if let Some(existing) = file::read(&path)? {
            return Ok(Some(existing));
        }
        content::copy(source.dir(), &dir, meta.backing)?;
        file::replace(&path, meta)?;
        Ok(None)
    }

    /// The snapshot called `id`, if there is one.
    pub fn snapshot(&self, id: &str) -> Result<Option<Snapshot>, BackendError> {
        match self.snapshot_dir(id) {
            Ok(dir) => Snapshot::open(dir),
            Err(_) => Ok(None),
        }
    }

    /// All snapshots, ordered by id.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, BackendError> {
        let mut snapshots = Vec::new();
        for dir in self.all_in("snapshots")? {
            snapshots.extend(Snapshot::open(dir)?);
        }
        snapshots.sort_by(|a, b| a.meta.snapshot_id.cmp(&b.meta.snapshot_id));
        Ok(snapshots)
    }

    /// Removes a snapshot, also one that a killed call left incomplete. Missing is success.
    pub fn remove_snapshot(&self, id: &str) -> Result<(), BackendError> {
        let Ok(dir) = self.snapshot_dir(id) else { return Ok(()) };
        let Some(lock) = directory::lock_unless_gone(&dir)? else { return Ok(()) };
        file::remove(&directory::record(&dir))?;
        directory::remove(&dir, lock)
    }

    /// The group called `id`, complete or not.
    pub fn group(&self, id: &str) -> Result<Option<GroupMeta>, BackendError> {
        self.group_file(id).map_or(Ok(None), |path| file::read(&path))
    }

    /// The caller holds the lock of the groups.
    pub fn save_group(&self, meta: &GroupMeta) -> Result<(), BackendError> {
        let path = self.group_file(&meta.group_id).ok_or(BackendError::Id)?;
        file::replace(&path, meta)
    }

    /// The caller holds the lock of the groups.
    pub fn remove_group(&self, id: &str) -> Result<(), BackendError> {
        self.group_file(id).map_or(Ok(()), |path| file::remove(&path))
    }

    /// The lock of the groups. Taken before the lock of a volume.
    pub fn lock_groups(&self) -> Result<Lock, BackendError> {
        Ok(Lock::wait(&self.root.join("groups").join(".lock"))?)
    }

    fn snapshot_dir(&self, id: &str) -> Result<PathBuf, BackendError> {
        Ok(self.root.join("snapshots").join(encoding::encode(id).ok_or(BackendError::Id)?))
    }

    fn group_file(&self, id: &str) -> Option<PathBuf> {
        Some(self.root.join("groups").join(format!("{}.json", encoding::encode(id)?)))
    }
}
