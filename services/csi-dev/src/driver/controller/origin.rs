//! The source that a new volume is copied from.

use std::path::Path;

use berth_csi::Code;

use super::answer;
use crate::backend::{BackendError, ContentSource, Snapshot, Volume};
use crate::backing::{Backing, FsType};
use crate::driver::Driver;
use crate::driver::refusal::Refusal;
use crate::lock::Lock;

pub(super) enum CopySource {
    Volume(Volume),
    Snapshot(Snapshot),
}

pub(super) fn find(driver: &Driver, source: &ContentSource) -> Result<CopySource, Refusal> {
    let id = match source {
        ContentSource::Volume(id) => return Ok(CopySource::Volume(driver.volume(id)?)),
        ContentSource::Snapshot(id) => id,
    };
    let snapshot = driver.backend.snapshot(id)?;
    let snapshot = snapshot.filter(|snapshot| driver.is_home(snapshot.meta().node.as_deref()));
    let Some(snapshot) = snapshot else {
        let message = format!("snapshot {id:?} does not exist; CreateSnapshot makes snapshots");
        return Err(Refusal::new(Code::NotFound, message));
    };
    if !answer::is_ready(snapshot.meta()) {
        let message = format!("snapshot {id:?} is not ready_to_use yet; try again later");
        return Err(Refusal::new(Code::FailedPrecondition, message));
    }
    Ok(CopySource::Snapshot(snapshot))
}

impl CopySource {
    pub fn backing(&self) -> Backing {
        match self {
            Self::Volume(volume) => volume.meta().backing,
            Self::Snapshot(snapshot) => snapshot.meta().backing,
        }
    }

    pub fn fs(&self) -> Option<FsType> {
        match self {
            Self::Volume(volume) => volume.meta().fs,
            Self::Snapshot(snapshot) => snapshot.meta().fs,
        }
    }

    pub fn size_bytes(&self) -> i64 {
        match self {
            Self::Volume(volume) => volume.meta().capacity_bytes,
            Self::Snapshot(snapshot) => snapshot.meta().size_bytes,
        }
    }

    /// Prevents changes and removal while it is copied.
    pub fn keep(&self) -> Result<Lock, BackendError> {
        match self {
            Self::Volume(volume) => volume.keep(),
            Self::Snapshot(snapshot) => snapshot.keep(),
        }
    }

    pub fn dir(&self) -> &Path {
        match self {
            Self::Volume(volume) => volume.dir(),
            Self::Snapshot(snapshot) => snapshot.dir(),
        }
    }
}
