//! Expanding a volume on a node.
//!
//! Owns: `NodeExpandVolume`. Promises: a device gets the size of its image, and a file system the
//! size of its device. Idempotent. Never: shrinks anything.

use std::path::{Path, PathBuf};

use berth_csi::Code;
use berth_csi::v1::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};

use super::{device, mount, stage};
use crate::ability::Ability;
use crate::backend::{Volume, VolumeState};
use crate::backing::Backing;
use crate::driver::Driver;
use crate::driver::refusal::Refusal;
use crate::driver::request::read_capability;
use crate::driver::size;
use crate::loops;
use crate::mounts::{self, Presence};

pub(in crate::driver) fn expand(
    driver: &Driver,
    request: &NodeExpandVolumeRequest,
) -> Result<NodeExpandVolumeResponse, Refusal> {
    let NodeExpandVolumeRequest { volume_id, volume_path: path, .. } = request;
    if request.volume_capability.is_some() {
        read_capability(request.volume_capability.as_ref())?;
    }

    let volume = driver.volume(volume_id)?;
    let node = driver.node_id();
    let state = volume.read_state()?;
    let mount_point = find(&volume, &state, node, path)?;
    let wanted = size::choose_grown(volume.meta(), request.capacity_range.as_ref())?;
    let capacity_bytes = enlarge(driver, &volume, wanted)?;
    if volume.meta().backing == Backing::Directory {
        return Ok(NodeExpandVolumeResponse { capacity_bytes });
    }
    for device in devices(&state, node) {
        if device::current(&volume, Some(&device))?.is_some() {
            loops::refresh_size(&volume.data(), &device)?;
        }
    }
    let is_block = is_block(&state, node, &mount_point);
    if let (Some(fs), Some(device), false) = (volume.meta().fs, state.device_on(node), is_block) {
        // The stage is grown, because a target may be read-only.
        let staging = state.staged_on(node).map(|staged| staged.path.clone());
        let mount_point = staging.map_or(mount_point, Into::into);
        mount::grow_mounted(&volume, fs, device, &mount_point).map_err(Refusal::midway)?;
    }
    Ok(NodeExpandVolumeResponse { capacity_bytes })
}

/// Resolves `path` if the volume is mounted there; otherwise `NOT_FOUND`.
pub(super) fn find(
    volume: &Volume,
    state: &VolumeState,
    node: &str,
    path: &str,
) -> Result<PathBuf, Refusal> {
    let volume_id = &volume.meta().volume_id;
    let nowhere = || {
        let message = format!("volume {volume_id:?} is not at {path:?} on {node}; check the path");
        Refusal::new(Code::NotFound, message)
    };
    let mount_point = mounts::resolve_place(path).ok().flatten().ok_or_else(nowhere)?;
    let presence = mounts::find_presence(&mount_point, &device::content(volume)?);
    if presence.map_err(|error| Refusal::mount(volume_id, &error))? == Presence::Volume {
        return Ok(mount_point);
    }
    // A staged block device has no mount.
    let is_stage = state.staged_on(node).is_some_and(|on| on.path == path && on.capability.block);
    if is_stage && stage::is_staged(volume, state, node, &mount_point)? {
        return Ok(mount_point);
    }
    Err(nowhere())
}

/// Whether the volume is a block device at that path. A staged block device has no mount.
fn is_block(state: &VolumeState, node: &str, mount_point: &Path) -> bool {
    !mount_point.is_dir() || state.staged_on(node).is_some_and(|staged| staged.capability.block)
}

/// Enlarges the volume itself, for plugins without a controller expansion.
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

fn devices(state: &VolumeState, node: &str) -> Vec<String> {
    let Some(on) = state.on(node) else { return Vec::new() };
    on.devices().map(str::to_owned).collect()
}
