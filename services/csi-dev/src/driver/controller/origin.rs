//! The source that a new volume is copied from.

use std::path::PathBuf;

use berth_csi::Code;

use super::answer;
use crate::backend::ContentSource;
use crate::backing::{Backing, FsType};
use crate::driver::Driver;
use crate::driver::refusal::Refusal;

/// A volume or snapshot.
pub(super) struct CopySource {
    pub backing: Backing,
    pub fs: Option<FsType>,
    pub size_bytes: i64,
    /// The directory with its content and its lock.
    pub dir: PathBuf,
}

pub(super) fn find(driver: &Driver, source: &ContentSource) -> Result<CopySource, Refusal> {
    let id = match source {
        ContentSource::Volume(id) => {
            let volume = driver.volume(id)?;
            let (meta, dir) = (volume.meta(), volume.dir().to_owned());
            let size_bytes = meta.capacity_bytes;
            return Ok(CopySource { backing: meta.backing, fs: meta.fs, size_bytes, dir });
        }
        ContentSource::Snapshot(id) => id,
    };
    let snapshot = driver.backend.snapshot(id)?;
    let snapshot = snapshot.filter(|snapshot| driver.is_home(snapshot.meta().node.as_deref()));
    let Some(snapshot) = snapshot else {
        let message = format!("snapshot {id:?} does not exist; CreateSnapshot makes snapshots");
        return Err(Refusal::new(Code::NotFound, message));
    };
    let (meta, dir) = (snapshot.meta(), snapshot.dir().to_owned());
    if !answer::is_ready(meta) {
        let message = format!("snapshot {id:?} is not ready_to_use yet; try again later");
        return Err(Refusal::new(Code::FailedPrecondition, message));
    }
    Ok(CopySource { backing: meta.backing, fs: meta.fs, size_bytes: meta.size_bytes, dir })
}
