//! One volume of a backend.
//!
//! Owns: the files in the volume's directory. Promises: a volume exists while its `meta.json` does.
//! Its records are read and changed under its lock, and replaced atomically. The next call about
//! the same id cleans up after a killed creation or removal. Never: removes the content of an
//! existing volume.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::BackendError;
use super::meta::VolumeMeta;
use super::slot::{CallSlot, HeldSlot, RunningCall};
use super::state::VolumeState;
use super::{condition, content, file};
use crate::backing::Backing;
use crate::lock::{Lock, LockError};
use crate::tool;

/// A volume that exists.
#[derive(Clone, Debug)]
pub struct Volume {
    dir: PathBuf,
    meta: VolumeMeta,
}

/// A volume under its lock.
#[derive(Debug)]
pub struct LockedVolume<'a> {
    volume: &'a Volume,
    lock: Lock,
}

impl Volume {
    pub(super) fn open(dir: PathBuf) -> Result<Option<Self>, BackendError> {
        let meta = file::read(&dir.join("meta.json"))?;
        Ok(meta.map(|meta| Self { dir, meta }))
    }

    /// Creates the volume in `dir`, with a copy of the content in `from` if given. Returns the
    /// existing volume if there is one.
    pub(super) fn make(
        dir: PathBuf,
        meta: &VolumeMeta,
        from: Option<&Path>,
    ) -> Result<Option<VolumeMeta>, BackendError> {
        let _lock = lock_new(&dir)?;
        let path = dir.join("meta.json");
        if let Some(existing) = file::read(&path)? {
            return Ok(Some(existing));
        }
        // A volume of this id may have been removed in part.
        file::remove(&dir.join("state.json"))?;
        file::remove(&condition::mark_path(&dir))?;
        match from {
            Some(from) => content::copy(from, &dir, meta.backing)?,
            None => content::make(&dir, meta.backing, meta.fs, meta.capacity_bytes)?,
        }
        if meta.backing == Backing::Image {
            content::grow(&content::path(&dir, meta.backing), meta.capacity_bytes)?;
        }
        file::replace(&path, meta)?;
        Ok(None)
    }

    /// Removes what killed calls left of a volume that does not exist.
    pub(super) fn clear_leftovers(dir: &Path) -> Result<(), BackendError> {
        let lock = match Lock::wait(&dir.join("lock")) {
            Err(LockError::Gone { .. }) => return Ok(()),
            lock => lock?,
        };
        if file::read::<VolumeMeta>(&dir.join("meta.json"))?.is_none() {
            remove_all(dir, lock)?;
        }
        Ok(())
    }

    /// As it was when the volume was opened.
    pub fn meta(&self) -> &VolumeMeta {
        &self.meta
    }

    /// The path of its directory or image.
    pub fn data(&self) -> PathBuf {
        content::path(&self.dir, self.meta.backing)
    }

    /// The directory with all of its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn lock(&self) -> Result<LockedVolume<'_>, BackendError> {
        let lock = Lock::wait(&self.dir.join("lock"))?;
        Ok(LockedVolume { volume: self, lock })
    }

    /// Takes its lock, unless it was removed since it was opened.
    pub fn lock_unless_gone(&self) -> Result<Option<LockedVolume<'_>>, BackendError> {
        match Lock::wait(&self.dir.join("lock")) {
            Err(LockError::Gone { .. }) => Ok(None),
            lock => Ok(Some(LockedVolume { volume: self, lock: lock? })),
        }
    }

    /// Its use at this moment, without the lock.
    pub fn read_state(&self) -> Result<VolumeState, BackendError> {
        Ok(file::read(&self.state_file())?.unwrap_or_default())
    }

    fn state_file(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    fn calls(&self) -> PathBuf {
        self.dir.join("calls")
    }
}

impl LockedVolume<'_> {
    /// The directory with all of the volume's files.
    pub(super) fn dir(&self) -> &Path {
        &self.volume.dir
    }

    pub fn state(&self) -> Result<VolumeState, BackendError> {
        self.volume.read_state()
    }

    pub fn save(&self, state: &VolumeState) -> Result<(), BackendError> {
        file::replace(&self.volume.state_file(), state)
    }

    /// The current record; `None` if the volume was removed before the lock was taken.
    pub fn meta(&self) -> Result<Option<VolumeMeta>, BackendError> {
        file::read(&self.volume.dir.join("meta.json"))
    }

    pub fn save_meta(&self, meta: &VolumeMeta) -> Result<(), BackendError> {
        file::replace(&self.volume.dir.join("meta.json"), meta)
    }

    /// Grows the image to at least this size. Does not record the size.
    pub fn grow(&self, size_bytes: i64) -> Result<(), BackendError> {
        content::grow(&self.volume.data(), size_bytes)
    }

    /// Removes the record first, then everything else.
    pub fn remove(self) -> Result<(), BackendError> {
        file::remove(&self.volume.dir.join("meta.json"))?;
        remove_all(&self.volume.dir, self.lock)
    }

    /// Takes a slot for a call, or returns the call that has it.
    pub fn enter(
        &self,
        slot: &CallSlot,
        call: &RunningCall,
    ) -> Result<Result<HeldSlot, RunningCall>, BackendError> {
        slot.enter(&self.volume.calls(), call)
    }

    /// The call in flight in `slot`, if any.
    pub fn running(&self, slot: &CallSlot) -> Result<Option<RunningCall>, BackendError> {
        slot.running(&self.volume.calls())
    }
}

/// Locks the volume or snapshot in `dir` while its content is copied.
pub fn lock_content(dir: &Path) -> Result<Lock, BackendError> {
    Ok(Lock::wait(&dir.join("lock"))?)
}

/// Creates the directory `dir` and takes its lock. Retries if another process removes it meanwhile.
pub(super) fn lock_new(dir: &Path) -> Result<Lock, BackendError> {
    let mut tries = 3;
    loop {
        file::make_dir(dir)?;
        tries -= 1;
        match Lock::wait(&dir.join("lock")) {
            Err(LockError::Gone { .. }) if tries > 0 => {}
            lock => return Ok(lock?),
        }
    }
}

/// Removes `dir` of a volume or snapshot that does not exist. The lock goes last.
pub(super) fn remove_all(dir: &Path, lock: Lock) -> Result<(), BackendError> {
    let _idle = tool::idle(dir)?;
    let failed = |source| BackendError::io("list", dir, source);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name() != "lock" {
            file::remove(&entry.path())?;
        }
    }
    file::remove(dir)?;
    drop(lock);
    Ok(())
}
