//! The kind of content that a new volume gets.
//!
//! Owns: the choice of directory or image, and of the file system. Promises: `CreateVolume` and
//! `GetCapacity` choose the same. Never: makes a volume.

use berth_csi::v1::VolumeCapability;

use super::origin::CopySource;
use super::parameters::VolumeParameters;
use crate::backing::{Backing, FsType};
use crate::capability::Capability;
use crate::driver::request::RequestFields;

/// Reads a list of capabilities. Faults go to `fields`.
pub(super) fn read_capabilities(
    fields: &mut RequestFields,
    given: &[VolumeCapability],
) -> Vec<Capability> {
    let mut read = Vec::new();
    for (index, capability) in given.iter().enumerate() {
        let name = format!("volume_capabilities[{index}]");
        read.extend(fields.capability(&name, Some(capability)));
    }
    read
}

/// The content and file system of a volume: as requested, otherwise as its source has it, otherwise
/// as the capabilities need it.
pub(super) fn choose_kind(
    parameters: &VolumeParameters,
    capabilities: &[Capability],
    origin: Option<&CopySource>,
) -> (Backing, Option<FsType>) {
    let fs = parameters.fs.or_else(|| capabilities.iter().find_map(|capability| capability.fs));
    let needs_image = fs.is_some() || capabilities.iter().any(|capability| capability.block);
    let usual = if needs_image { Backing::Image } else { Backing::Directory };
    let backing = parameters.backing.or(origin.map(|origin| origin.backing)).unwrap_or(usual);
    if backing == Backing::Directory {
        return (backing, None);
    }
    if let Some(origin) = origin {
        return (backing, origin.fs);
    }
    let is_mounted =
        capabilities.is_empty() || capabilities.iter().any(|capability| !capability.block);
    (backing, is_mounted.then(|| fs.unwrap_or(FsType::Ext4)))
}
