//! Whether a volume is well.
//!
//! Owns: the condition of a volume, and the mark by which a test makes it abnormal. Promises: the
//! mark is deleted with the volume. Never: repairs anything.

use std::io;

use super::error::BackendError;
use super::volume::{LockedVolume, Volume};
use super::{directory, file};

impl Volume {
    /// The reasons why the volume is abnormal; none if it is well.
    pub fn read_abnormal(&self) -> Result<Vec<String>, BackendError> {
        let mut reasons = Vec::new();
        reasons.extend(file::read::<String>(&directory::abnormal(self.dir()))?);
        let data = self.data();
        match data.symlink_metadata() {
            Ok(_) => {}
            // Unless the whole volume was deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.exists()? => {
                reasons.push(format!("its content {} is missing", data.display()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(BackendError::io("look at", &data, source)),
        }
        Ok(reasons)
    }

    fn exists(&self) -> Result<bool, BackendError> {
        Ok(Self::open(self.dir().to_owned())?.is_some())
    }
}

impl LockedVolume<'_> {
    /// Marks the volume as abnormal for this reason; an empty one removes the mark.
    pub fn mark_abnormal(&self, reason: &str) -> Result<(), BackendError> {
        let path = directory::abnormal(self.dir());
        if reason.is_empty() { file::remove(&path) } else { file::replace(&path, &reason) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::backend::{Backend, VolumeMeta};

    #[test]
    fn a_mark_or_missing_content_is_abnormal_until_it_is_mended() {
        let dir = tempfile::tempdir().unwrap();
        let backend = Backend::open(dir.path()).unwrap();
        let meta = VolumeMeta { volume_id: "v".into(), ..VolumeMeta::default() };
        backend.provision(&meta).unwrap();
        let volume = backend.volume("v").unwrap().unwrap();
        assert_eq!(volume.read_abnormal().unwrap(), [""; 0]);
        volume.lock().unwrap().mark_abnormal("a disk is failing").unwrap();
        fs::remove_dir_all(volume.data()).unwrap();
        let reasons = volume.read_abnormal().unwrap();
        assert_eq!((reasons.len(), &*reasons[0]), (2, "a disk is failing"));
        assert!(reasons[1].ends_with("is missing"), "{reasons:?}");
        for _ in 0..2 {
            volume.lock().unwrap().mark_abnormal("").unwrap();
        }
        fs::create_dir(volume.data()).unwrap();
        assert_eq!(volume.read_abnormal().unwrap(), [""; 0]);

        // A deleted volume has no condition, and a new volume with its id does not have the mark.
        volume.lock().unwrap().mark_abnormal("old").unwrap();
        volume.lock().unwrap().remove().unwrap();
        assert_eq!(volume.read_abnormal().unwrap(), [""; 0]);
        backend.provision(&meta).unwrap();
        assert_eq!(volume.read_abnormal().unwrap(), [""; 0]);
    }
}
