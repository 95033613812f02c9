//! One volume of a backend.
//!
//! Owns: the files in the volume's directory. Promises: state is read and changed under the
//! volume's lock, and replaced in one step. Never: removes data.

use std::path::PathBuf;

use super::file::{self, Lock};
use super::{BackendError, InFlight, Lane, Meta, Running, State};

/// A volume that exists.
#[derive(Clone, Debug)]
pub struct Volume {
    dir: PathBuf,
    meta: Meta,
}

/// A volume whose state nobody else can read or change now.
#[derive(Debug)]
pub struct Locked<'a> {
    volume: &'a Volume,
    _lock: Lock,
}

impl Volume {
    /// The volume in `dir`, if there is one.
    pub(super) fn open(dir: PathBuf) -> Result<Option<Self>, BackendError> {
        let meta = file::read(&dir.join("meta.json"))?;
        Ok(meta.map(|meta| Self { dir, meta }))
    }

    /// Makes the volume in `dir`, or returns what is there already.
    pub(super) fn provision(dir: PathBuf, meta: &Meta) -> Result<Option<Meta>, BackendError> {
        file::make_dir(&dir.join("data"))?;
        let _lock = Lock::wait(&dir.join("lock"))?;
        let path = dir.join("meta.json");
        let existing = file::read(&path)?;
        if existing.is_none() {
            file::replace(&path, meta)?;
        }
        Ok(existing)
    }

    /// What it is.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The directory that holds its content.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Waits until nobody else looks at its state, and keeps others out.
    pub fn lock(&self) -> Result<Locked<'_>, BackendError> {
        let lock = Lock::wait(&self.dir.join("lock"))?;
        Ok(Locked { volume: self, _lock: lock })
    }

    /// Where it is in use, as of some moment just now.
    pub fn glance(&self) -> Result<State, BackendError> {
        Ok(file::read(&self.state_file())?.unwrap_or_default())
    }

    fn state_file(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    fn calls(&self) -> PathBuf {
        self.dir.join("calls")
    }
}

impl Locked<'_> {
    /// Where the volume is in use.
    pub fn state(&self) -> Result<State, BackendError> {
        self.volume.glance()
    }

    /// Notes where the volume is in use.
    pub fn save(&self, state: &State) -> Result<(), BackendError> {
        file::replace(&self.volume.state_file(), state)
    }

    /// Marks a call as in flight, or says which one is.
    pub fn enter(
        &self,
        lane: &Lane,
        call: &Running,
    ) -> Result<Result<InFlight, Running>, BackendError> {
        lane.enter(&self.volume.calls(), call)
    }

    /// The call in flight in `lane`, if any.
    pub fn running(&self, lane: &Lane) -> Result<Option<Running>, BackendError> {
        lane.running(&self.volume.calls())
    }
}
