//! One volume of a backend.
//!
//! Owns: the files in the volume's directory. Promises: a volume exists while its `meta.json` does.
//! Its records are read and changed under its lock, and replaced atomically. The next call about
//! the same id cleans up after a killed creation or removal. Never: removes the content of an
//! existing volume.

use std::path::{Path, PathBuf};

use super::error::BackendError;
use super::meta::VolumeMeta;
use super::slot::{CallSlot, HeldSlot, RunningCall};
use super::state::VolumeState;
use super::{content, directory, file};
use crate::backing::Backing;
use crate::lock::Lock;

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
        let meta = file::read(&directory::record(&dir))?;
        Ok(meta.map(|meta| Self { dir, meta }))
    }

    /// Creates the volume in `dir`, with a copy of the content in `from` if given. Returns the
    /// existing volume if there is one.
    pub(super) fn make(
        dir: PathBuf,
        meta: &VolumeMeta,
        from: Option<&Path>,
    ) -> Result<Option<VolumeMeta>, BackendError> {
        let _lock = directory::make(&dir)?;
        let path = directory::record(&dir);
        if let Some(existing) = file::read(&path)? {
            return Ok(Some(existing));
        }
        // A volume of this id may have been removed in part.
        file::remove(&directory::state(&dir))?;
        file::remove(&directory::abnormal(&dir))?;
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
        let Some(lock) = directory::lock_unless_gone(dir)? else { return Ok(()) };
        match file::read::<VolumeMeta>(&directory::record(dir))? {
            Some(_) => Ok(()),
            None => directory::remove(dir, lock),
        }
    }

    /// The record at the time when the volume was opened.
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
        Ok(LockedVolume { volume: self, lock: directory::lock(&self.dir)? })
    }

    /// Takes the volume's lock, unless the volume was removed since it was opened.
    pub fn lock_unless_gone(&self) -> Result<Option<LockedVolume<'_>>, BackendError> {
        let lock = directory::lock_unless_gone(&self.dir)?;
        Ok(lock.map(|lock| LockedVolume { volume: self, lock }))
    }

    /// The use at this moment, read without the lock.
    pub fn read_state(&self) -> Result<VolumeState, BackendError> {
        Ok(file::read(&directory::state(&self.dir))?.unwrap_or_default())
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
        file::replace(&directory::state(self.dir()), state)
    }

    /// The current record; `None` if the volume was removed before the lock was taken.
    pub fn meta(&self) -> Result<Option<VolumeMeta>, BackendError> {
        file::read(&directory::record(self.dir()))
    }

    pub fn save_meta(&self, meta: &VolumeMeta) -> Result<(), BackendError> {
        file::replace(&directory::record(self.dir()), meta)
    }

    /// Grows the image to at least this size. Does not record the size.
    pub fn grow(&self, size_bytes: i64) -> Result<(), BackendError> {
        content::grow(&self.volume.data(), size_bytes)
    }

    /// Removes the record first, then everything else.
    pub fn remove(self) -> Result<(), BackendError> {
        file::remove(&directory::record(self.dir()))?;
        directory::remove(&self.volume.dir, self.lock)
    }

    /// Takes a slot for a call, or returns the call that has it.
    pub fn enter(
        &self,
        slot: &CallSlot,
        call: &RunningCall,
    ) -> Result<Result<HeldSlot, RunningCall>, BackendError> {
        slot.enter(&directory::calls(self.dir()), call)
    }

    /// The call in flight in `slot`, if any.
    pub fn running(&self, slot: &CallSlot) -> Result<Option<RunningCall>, BackendError> {
        slot.running(&directory::calls(self.dir()))
    }
}
