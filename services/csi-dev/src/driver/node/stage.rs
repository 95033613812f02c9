//! Staging a volume on a node.
//!
//! Owns: `NodeStageVolume` and `NodeUnstageVolume`. Promises: the state is unsettled before the
//! mount table changes and settled afterwards, so the next call finds what a killed call left.
//! Never: creates or removes the staging directory; the CO does.

use std::collections::BTreeSet;
use std::path::Path;

use berth_csi::Code;
use berth_csi::v1::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
};
use berth_csi_proxy::log::CallEffect;

use super::mount::Preparation;
use super::{device, mount};
use crate::backend::{StagedVolume, Volume, VolumeState};
use crate::backing::{Backing, FsType};
use crate::driver::refusal::Refusal;
use crate::driver::request::{check_context, read_capability};
use crate::driver::{Driver, update_state};
use crate::loops::LoopError;
use crate::mounts::{self, MountSource, Presence};
use crate::rules;

pub(in crate::driver) fn stage(
    driver: &Driver,
    request: &NodeStageVolumeRequest,
) -> Result<NodeStageVolumeResponse, Refusal> {
    let NodeStageVolumeRequest { volume_id, staging_target_path: path, .. } = request;
    let capability = read_capability(request.volume_capability.as_ref())?;

    let volume = driver.volume(volume_id)?;
    driver.check_fit(Code::FailedPrecondition, volume.meta(), &capability)?;
    check_context(volume.meta(), &request.volume_context)?;
    let node = driver.node_id();
    let failed = |error| Refusal::mount(volume_id, &error);
    let mount_point =
        mounts::resolve_place(path).map_err(failed)?.filter(|mount_point| mount_point.is_dir());
    let mount_point = mount_point.ok_or_else(|| not_a_directory(volume_id, path))?;

    let locked = volume.lock()?;
    let mut state = locked.state()?;
    driver.check_own_reach(&volume)?;
    driver.check_fence(volume_id)?;
    let attached = driver.check_attached(volume.meta(), &state, &request.publish_context)?;
    let readonly =
        capability.mode.is_reader_only() || attached.is_some_and(|attachment| attachment.readonly);
    // A stage writes nothing by itself, so it counts as a reader.
    driver.insist(volume_id, rules::check_use(&state, node, capability.mode, true))?;
    driver.insist(volume_id, rules::check_stage(&state, node, path))?;
    let before = state.staged_on(node).cloned();
    if let Some(staged) = before.as_ref().filter(|staged| staged.settled) {
        if staged.capability != capability {
            return Err(incompatible(volume_id, node, staged));
        }
        if is_staged(&volume, &state, node, &mount_point)? {
            return Ok(NodeStageVolumeResponse {});
        }
    }
    let staged = StagedVolume { path: path.clone(), capability, settled: false };
    state.stage(node, staged.clone());
    locked.save(&state)?;
    if volume.meta().backing == Backing::Image {
        let device = device::acquire(&volume, &state, state.device_on(node), readonly);
        if let Err(error) = device {
            // The state names no device, so the next call finds one that was bound.
            put_back(&mut state, node, before);
            locked.save(&state)?;
            return Err(error.into());
        }
        state.set_device(node, device.ok());
        locked.save(&state)?;
    }
    drop(locked);

    if !staged.capability.block {
        let mounted = mount_at(driver, &volume, state.device_on(node), &mount_point, readonly);
        if let Err(error) = mounted {
            if error.effect == CallEffect::None {
                // Nothing was changed, so the old state still holds.
                undo(&volume, node, before)?;
            }
            return Err(error);
        }
        // If a fence was set since the state was saved, it found no mount to abort.
        if let Err(fenced) = driver.check_fence(volume_id) {
            if volume.meta().fs == Some(FsType::Ext4) {
                mounts::abort(&mount_point).map_err(|error| Refusal::mount(volume_id, &error))?;
            }
            return Err(fenced);
        }
        if let Some(group) = staged.capability.group {
            mount::give_to_group(volume_id, &mount_point, group)?;
        }
    }
    update_state(&volume, |state| state.stage(node, StagedVolume { settled: true, ..staged }))?;
    Ok(NodeStageVolumeResponse {})
}

/// Whether the state holds: the content is mounted at `mount_point`, or its device is bound.
pub(super) fn is_staged(
    volume: &Volume,
    state: &VolumeState,
    node: &str,
    mount_point: &Path,
) -> Result<bool, Refusal> {
    if state.staged_on(node).is_some_and(|staged| staged.capability.block) {
        return Ok(device::current(volume, state.device_on(node))?.is_some());
    }
    let presence = mounts::find_presence(mount_point, &device::content(volume)?);
    let presence = presence.map_err(|error| Refusal::mount(&volume.meta().volume_id, &error))?;
    Ok(presence == Presence::Volume)
}

/// Mounts the volume's directory, or the file system on its device.
fn mount_at(
    driver: &Driver,
    volume: &Volume,
    device: Option<&str>,
    mount_point: &Path,
    readonly: bool,
) -> Result<(), Refusal> {
    let data = volume.data();
    let source = match (volume.meta().fs, device) {
        (Some(fs), Some(device)) => MountSource::Device { device, fs, readonly },
        _ => MountSource::Bind(&data),
    };
    let how = Preparation::new(driver, true);
    mount::mount_volume(volume, source, mount_point, &BTreeSet::new(), how)
}

/// Restores the earlier state. Releases the device if the volume was not staged before.
fn undo(volume: &Volume, node: &str, before: Option<StagedVolume>) -> Result<(), Refusal> {
    let locked = volume.lock()?;
    let mut state = locked.state()?;
    if before.is_none() {
        release(volume, &mut state, node)?;
    }
    put_back(&mut state, node, before);
    Ok(locked.save(&state)?)
}

fn put_back(state: &mut VolumeState, node: &str, before: Option<StagedVolume>) {
    match before {
        Some(before) => state.stage(node, before),
        None => state.unstage(node),
    }
}

fn release(volume: &Volume, state: &mut VolumeState, node: &str) -> Result<(), LoopError> {
    device::release(volume, state, state.device_on(node).as_slice())?;
    state.set_device(node, None);
    Ok(())
}

fn not_a_directory(volume_id: &str, path: &str) -> Refusal {
    let message = format!(
        "volume {volume_id:?}: staging_target_path {path:?} is not a directory; the CO has to make \
         it before it calls"
    );
    Refusal::new(Code::InvalidArgument, message)
}

fn incompatible(volume_id: &str, node: &str, staged: &StagedVolume) -> Refusal {
    let message = format!(
        "volume {volume_id:?}: staged on {node} at {} otherwise ({}); repeat the call with that \
         capability, or call NodeUnstageVolume first",
        staged.path, staged.capability.mode
    );
    Refusal::new(Code::AlreadyExists, message)
}

pub(in crate::driver) fn unstage(
    driver: &Driver,
    request: &NodeUnstageVolumeRequest,
) -> Result<NodeUnstageVolumeResponse, Refusal> {
    let NodeUnstageVolumeRequest { volume_id, staging_target_path: path } = request;
    let (failed, node) = (|error| Refusal::mount(volume_id, &error), driver.node_id());
    let mount_point = mounts::resolve_place(path).map_err(failed)?;
    let Some(volume) = driver.volume_to_undo(volume_id, mount_point.as_deref())? else {
        return Ok(NodeUnstageVolumeResponse {});
    };

    let locked = volume.lock()?;
    let mut state = locked.state()?;
    driver.insist(volume_id, rules::check_unstage(&state, node))?;
    let staged = state.staged_on(node).filter(|staged| staged.path == *path).cloned();
    if staged.is_some() {
        state.begin_unstage(node);
        locked.save(&state)?;
    }
    drop(locked);

    // Also if the state has no stage: a killed call may have mounted.
    if let Some(mount_point) = mount_point {
        mounts::unmount_content(&mount_point, &device::content(&volume)?).map_err(failed)?;
    }
    let locked = volume.lock()?;
    let mut state = locked.state()?;
    if staged.is_some() {
        state.unstage(node);
    }
    // A stage at another path still needs the device.
    if state.staged_on(node).is_none() {
        release(&volume, &mut state, node).map_err(Refusal::from).map_err(Refusal::midway)?;
    }
    locked.save(&state)?;
    Ok(NodeUnstageVolumeResponse {})
}
