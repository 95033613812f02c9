//! Images as devices of this node.
//!
//! Owns: which loop device is whose. Promises: a device is noted in the same locked step that binds
//! it; one that no note names was bound by a killed call, and is taken over or released. Never:
//! touches a device that a note of another node names.

use crate::backend::{State, Volume};
use crate::backing::Backing;
use crate::loops::{self, LoopDevice, LoopError};
use crate::mounts::VolumeContent;

/// By what the volume's mounts are known.
pub(crate) fn content(volume: &Volume) -> Result<VolumeContent, LoopError> {
    match volume.meta().backing {
        Backing::Directory => Ok(VolumeContent::Directory(volume.data())),
        Backing::Image => {
            let loops = loops::find(&volume.data())?;
            Ok(VolumeContent::Devices(loops.iter().map(|device| device.number).collect()))
        }
    }
}

/// The device of `noted`, if it still is the volume's.
pub(crate) fn current(
    volume: &Volume,
    noted: Option<&str>,
) -> Result<Option<LoopDevice>, LoopError> {
    let Some(noted) = noted else { return Ok(None) };
    let loops = loops::find(&volume.data())?;
    Ok(loops.into_iter().find(|device| device.device == noted && !device.going))
}

/// Binds the volume's image: the device of `noted` if it still is the volume's, one that a killed
/// call left, or a free one. The caller holds the volume's lock, and notes the device.
pub(super) fn acquire(
    volume: &Volume,
    state: &State,
    noted: Option<&str>,
    readonly: bool,
) -> Result<String, LoopError> {
    let image = volume.data();
    let others = state.devices();
    let mut usable = loops::find(&image)?;
    usable.retain(|device| !device.going && (readonly || !device.readonly));
    let mine = |device: &&LoopDevice| Some(&*device.device) == noted;
    let left =
        |device: &&LoopDevice| device.readonly == readonly && !others.contains(&*device.device);
    match usable.iter().find(mine).or_else(|| usable.iter().find(left)) {
        Some(device) => {
            loops::refresh_size(&image, &device.device)?;
            Ok(device.device.clone())
        }
        None => loops::bind(&image, readonly),
    }
}

/// As [`acquire`], but a device through which nothing can be written, beside one that can.
pub(super) fn acquire_readonly(volume: &Volume, noted: Option<&str>) -> Result<String, LoopError> {
    match current(volume, noted)?.filter(|device| device.readonly) {
        Some(device) => Ok(device.device),
        None => loops::bind(&volume.data(), true),
    }
}

/// Releases the devices of the image that `mine` names, and those that no note names. The caller
/// holds the volume's lock, and forgets the devices.
pub(crate) fn release(volume: &Volume, state: &State, mine: &[&str]) -> Result<(), LoopError> {
    if volume.meta().backing != Backing::Image {
        return Ok(());
    }
    let (image, noted) = (volume.data(), state.devices());
    for device in loops::find(&image)? {
        let name = &*device.device;
        if mine.contains(&name) || !noted.contains(name) {
            loops::release(&image, &device)?;
        }
    }
    Ok(())
}
