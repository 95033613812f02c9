//! Making a volume larger where it is used.
//!
//! Owns: `NodeExpandVolume`. Promises: a device sees the size of its image, and a file system fills
//! its device; doing it twice is doing it once. Never: makes anything smaller.

use berth_csi::Code;
use berth_csi::v1::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};

use super::{device, mount, stats};
use crate::ability::Ability;
use crate::backend::{Backing, State, Volume};
use crate::driver::Driver;
use crate::driver::controller::size;
use crate::driver::refusal::Refusal;
use crate::driver::request::Fields;
use crate::loops;

pub(super) fn expand(
    driver: &Driver,
    request: &NodeExpandVolumeRequest,
) -> Result<NodeExpandVolumeResponse, Refusal> {
    let NodeExpandVolumeRequest { volume_id, volume_path: path, .. } = request;
    let mut fields = Fields::default();
    fields.id("volume_id", volume_id);
    fields.required("volume_path", path);
    if let Some(capability) = &request.volume_capability {
        fields.capability("volume_capability", Some(capability));
    }
    fields.check(Some(()))?;

    let volume = driver.volume(volume_id)?;
    let node = driver.node_id();
    let state = volume.glance()?;
    let place = stats::find(&volume, &state, node, path)?;
    let wanted = size::grown(volume.meta(), request.capacity_range.as_ref())?;
    let capacity_bytes = enlarge(driver, &volume, wanted)?;
    if volume.meta().backing == Backing::Directory {
        return Ok(NodeExpandVolumeResponse { capacity_bytes });
    }
    for device in devices(&state, node) {
        if device::current(&volume, Some(&device))?.is_some() {
            loops::measure(&volume.data(), &device)?;
        }
    }
    let is_block = stats::is_block(&state, node, &place);
    if let (Some(fs), Some(device), false) = (volume.meta().fs, state.device_on(node), is_block) {
        // The mount that may write: a target may be one that only reads.
        let staging = state.staged_on(node).map(|staged| staged.path.clone());
        let place = staging.map_or(place, Into::into);
        mount::grow_mounted(&volume, fs, device, &place).map_err(Refusal::midway)?;
    }
    Ok(NodeExpandVolumeResponse { capacity_bytes })
}

/// Enlarges the volume itself where no controller does.
fn enlarge(driver: &Driver, volume: &Volume, wanted: i64) -> Result<i64, Refusal> {
    let locked = volume.lock()?;
    let volume_id = &volume.meta().volume_id;
    let Some(mut meta) = locked.meta()? else { return Err(super::super::unknown(volume_id)) };
    if wanted <= meta.capacity_bytes {
        return Ok(meta.capacity_bytes);
    }
    if driver.has(Ability::Expand) {
        let message = format!(
            "volume {volume_id:?} has {} bytes, not {wanted}; call ControllerExpandVolume first",
            meta.capacity_bytes
        );
        return Err(Refusal::new(Code::OutOfRange, message));
    }
    if meta.backing == Backing::Image {
        locked.grow(wanted)?;
    }
    meta.capacity_bytes = wanted;
    locked.save_meta(&meta)?;
    Ok(wanted)
}

fn devices(state: &State, node: &str) -> Vec<String> {
    let Some(on) = state.on(node) else { return Vec::new() };
    on.devices().map(str::to_owned).collect()
}
