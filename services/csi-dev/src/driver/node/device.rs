//! Images as devices of this node.
//!
//! Owns: which loop device belongs to which volume. Promises: a device is bound and recorded under
//! one lock. A device without a record was bound by a killed call; it is reused or released. Never:
//! touches a device that another node records.

use crate::backend::{Volume, VolumeState};
use crate::backing::Backing;
use crate::loops::{self, LoopDevice, LoopError};
use crate::mounts::VolumeContent;

/// The content that identifies the volume's mounts.
pub(crate) fn content(volume: &Volume) -> Result<VolumeContent, LoopError> {
    match volume.meta().backing {
        Backing::Directory => Ok(VolumeContent::Directory(volume.data())),
        Backing::Image => {
            let loops = loops::find(&volume.data())?;
            Ok(VolumeContent::Devices(loops.iter().map(|device| device.number).collect()))
        }
    }
}

/// The device called `recorded`, if it still belongs to the volume.
pub(crate) fn current(
    volume: &Volume,
    recorded: Option<&str>,
) -> Result<Option<LoopDevice>, LoopError> {
    let Some(recorded) = recorded else { return Ok(None) };
    let loops = loops::find(&volume.data())?;
    Ok(loops.into_iter().find(|device| device.device == recorded && !device.going))
}

/// Binds the volume's image. Prefers the device called `recorded`, then one that a killed call
/// left, then a free one. The caller holds the volume's lock, and records the device.
pub(super) fn acquire(
    volume: &Volume,
    state: &VolumeState,
    recorded: Option<&str>,
    readonly: bool,
) -> Result<String, LoopError> {
    let image = volume.data();
    let recorded_devices = state.devices();
    let mut usable = loops::find(&image)?;
    usable.retain(|device| !device.going && (readonly || !device.readonly));
    let is_recorded = |device: &&LoopDevice| Some(&*device.device) == recorded;
    let is_unrecorded = |device: &&LoopDevice| {
        device.readonly == readonly && !recorded_devices.contains(&*device.device)
    };
    match usable.iter().find(is_recorded).or_else(|| usable.iter().find(is_unrecorded)) {
        Some(device) => {
            loops::refresh_size(&image, &device.device)?;
            Ok(device.device.clone())
        }
        None => loops::bind(&image, readonly),
    }
}

/// Binds a read-only device in addition to the writable one.
pub(super) fn acquire_readonly(
    volume: &Volume,
    recorded: Option<&str>,
) -> Result<String, LoopError> {
    match current(volume, recorded)?.filter(|device| device.readonly) {
        Some(device) => Ok(device.device),
        None => loops::bind(&volume.data(), true),
    }
}

/// Releases the devices of the image that `mine` names, and those without a record. The caller
/// holds the volume's lock, and removes the records.
pub(crate) fn release(
    volume: &Volume,
    state: &VolumeState,
    mine: &[&str],
) -> Result<(), LoopError> {
    if volume.meta().backing != Backing::Image {
        return Ok(());
    }
    let (image, recorded) = (volume.data(), state.devices());
    for device in loops::find(&image)? {
        let name = &*device.device;
        if mine.contains(&name) || !recorded.contains(name) {
            loops::release(&image, &device)?;
        }
    }
    Ok(())
}
