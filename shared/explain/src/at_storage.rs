//! What the storage has of a volume, by the volume's record.

use berth_contract::message::volume::VolumeStatus;
use berth_domain::volume::storage::Stage;

/// What the storage has of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStorage {
    /// The volume.
    Volume,
    /// Nothing: it was never created, or the plugin refused.
    Nothing,
    /// Perhaps a volume that only the plugin knows: the plugin reports that it created one, but no
    /// listed volume can be this one.
    Unknown,
}

impl AtStorage {
    /// By the volume's status.
    pub fn find(volume: &VolumeStatus) -> Self {
        let Some(storage) = &volume.storage else { return Self::Volume };
        match storage.stage {
            Stage::Failed | Stage::Unused if volume.external_id.is_some() => Self::Volume,
            Stage::Failed if !storage.faults.is_empty() => Self::Unknown,
            Stage::Failed | Stage::Unused => Self::Nothing,
            Stage::Creating | Stage::Ready | Stage::Deleting => Self::Volume,
        }
    }
}
