//! One volume of a backend.
//!
//! Owns: the files in the volume's directory. Promises: it exists once `meta.json` does and no
//! longer; what it is and where it is used are read and changed under its lock, and replaced in one
//! step; what a killed creation or removal left is cleared by the next call about the same id.
//! Never: removes the content of a volume that exists.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::BackendError;
use super::meta::Meta;
use super::slot::{CallSlot, HeldSlot, RunningCall};
use super::state::State;
use super::{content, file};
use crate::backing::Backing;
use crate::lock::{Lock, LockError};
use crate::tool;

/// A volume that exists.
#[derive(Clone, Debug)]
pub struct Volume {
    dir: PathBuf,
    meta: Meta,
}

/// A volume whose state nobody else can read or change now.
#[derive(Debug)]
pub struct LockedVolume<'a> {
    volume: &'a Volume,
    lock: Lock,
}

impl Volume {
    /// The volume in `dir`, if there is one.
    pub(super) fn open(dir: PathBuf) -> Result<Option<Self>, BackendError> {
        let meta = file::read(&dir.join("meta.json"))?;
        Ok(meta.map(|meta| Self { dir, meta }))
    }

    /// Makes the volume in `dir`, with its content copied from the directory `from` where there is
    /// one, or returns what is there already.
    pub(super) fn make(
        dir: PathBuf,
        meta: &Meta,
        from: Option<&Path>,
    ) -> Result<Option<Meta>, BackendError> {
        let _lock = lock_new(&dir)?;
        let path = dir.join("meta.json");
        if let Some(existing) = file::read(&path)? {
            return Ok(Some(existing));
        }
        // Of a volume of this id that was removed only half.
        file::remove(&dir.join("state.json"))?;
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

    /// Clears what killed calls left of a volume that does not exist.
    pub(super) fn clear_leftovers(dir: &Path) -> Result<(), BackendError> {
        let lock = match Lock::wait(&dir.join("lock")) {
            Err(LockError::Gone { .. }) => return Ok(()),
            lock => lock?,
        };
        if file::read::<Meta>(&dir.join("meta.json"))?.is_none() {
            remove_all(dir, lock)?;
        }
        Ok(())
    }

    /// What it is, as of when it was opened.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The path of its content: a directory or an image.
    pub fn data(&self) -> PathBuf {
        content::path(&self.dir, self.meta.backing)
    }

    /// The directory that has all of it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is wrong with it, as far as can be seen from anywhere.
    pub fn damage(&self) -> Option<String> {
        let is_there = content::exists(&self.dir, self.meta.backing);
        (!is_there).then(|| format!("its content {} is gone", self.data().display()))
    }

    /// Keeps it as it is, for as long as its content is copied.
    pub fn keep(&self) -> Result<Lock, BackendError> {
        Ok(Lock::wait(&self.dir.join("lock"))?)
    }

    /// Waits until nobody else looks at its state, and keeps others out.
    pub fn lock(&self) -> Result<LockedVolume<'_>, BackendError> {
        let lock = Lock::wait(&self.dir.join("lock"))?;
        Ok(LockedVolume { volume: self, lock })
    }

    /// Where it is in use, as of some moment just now.
    pub fn read_state(&self) -> Result<State, BackendError> {
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
    /// Where the volume is in use.
    pub fn state(&self) -> Result<State, BackendError> {
        self.volume.read_state()
    }

    /// Notes where the volume is in use.
    pub fn save(&self, state: &State) -> Result<(), BackendError> {
        file::replace(&self.volume.state_file(), state)
    }

    /// What the volume is now; `None` if it was removed before the lock was taken.
    pub fn meta(&self) -> Result<Option<Meta>, BackendError> {
        file::read(&self.volume.dir.join("meta.json"))
    }

    /// Notes what the volume is.
    pub fn save_meta(&self, meta: &Meta) -> Result<(), BackendError> {
        file::replace(&self.volume.dir.join("meta.json"), meta)
    }

    /// Makes an image at least this large, without a note of it.
    pub fn grow(&self, size_bytes: i64) -> Result<(), BackendError> {
        content::grow(&self.volume.data(), size_bytes)
    }

    /// Ends the volume, and then removes all of it.
    pub fn remove(self) -> Result<(), BackendError> {
        file::remove(&self.volume.dir.join("meta.json"))?;
        remove_all(&self.volume.dir, self.lock)
    }

    /// Marks a call as in flight, or says which one is.
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

/// Makes the directory `dir` and takes its lock, also while another process removes it.
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

/// Removes `dir`, which no longer is a volume or snapshot. The lock goes last.
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
