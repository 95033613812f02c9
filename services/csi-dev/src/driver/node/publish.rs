//! Publishing a volume to a workload on a node.
//!
//! Owns: `NodePublishVolume` and `NodeUnpublishVolume`. Promises: the target (a directory, or a
//! file for a block device) is created and removed here. State and mount table change in the same
//! order as in a stage. Never: removes a target that has files or another mount.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use berth_csi::Code;
use berth_csi::v1::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
};
use berth_csi_proxy::log::CallEffect;

use super::mount::Preparation;
use super::{device, mount, stage};
use crate::ability::Ability;
use crate::backend::{Attachment, PublishedVolume, Volume, VolumeState};
use crate::backing::Backing;
use crate::capability::READ_ONLY;
use crate::driver::profile::IgnoredField;
use crate::driver::refusal::Refusal;
use crate::driver::request::{check_context, read_capability};
use crate::driver::{Driver, update_state};
use crate::loops::LoopError;
use crate::mounts::{self, MountPointKind, MountSource, Presence};
use crate::rules;

pub(in crate::driver) fn publish(
    driver: &Driver,
    request: &NodePublishVolumeRequest,
) -> Result<NodePublishVolumeResponse, Refusal> {
    let NodePublishVolumeRequest { volume_id, target_path: target, readonly, .. } = request;
    let capability = read_capability(request.volume_capability.as_ref())?;

    let volume = driver.volume(volume_id)?;
    driver.check_fit(Code::FailedPrecondition, volume.meta(), &capability)?;
    check_context(volume.meta(), &request.volume_context)?;
    let node = driver.node_id();
    let failed = |error| Refusal::mount(volume_id, &error);
    let mount_point = mounts::resolve_place(target).map_err(failed)?;
    let mount_point = mount_point.ok_or_else(|| no_parent(volume_id, target))?;

    let locked = volume.lock()?;
    let mut state = locked.state()?;
    driver.check_own_reach(&volume)?;
    driver.check_fence(volume_id)?;
    let attached = driver.check_attached(volume.meta(), &state, &request.publish_context)?;
    driver.insist(volume_id, rules::check_use(&state, node, capability.mode, *readonly))?;
    let staging = staging(driver, &volume, &state, &request.staging_target_path)?;
    let wanted = PublishedVolume { capability, readonly: *readonly, settled: true };
    let flags = flags(driver, &wanted, attached);
    let before = state.on(node).and_then(|on| on.published.get(target)).cloned();
    if let Some(published) = before.as_ref().filter(|published| published.settled) {
        if *published != wanted {
            return Err(incompatible(volume_id, target, published));
        }
        let content = device::content(&volume)?;
        if mounts::find_presence(&mount_point, &content).map_err(failed)? == Presence::Volume {
            return Ok(NodePublishVolumeResponse {});
        }
    }
    check_other_targets(driver, volume_id, &state, target, &wanted)?;
    state.publish(node, target, PublishedVolume { settled: false, ..wanted.clone() });
    locked.save(&state)?;
    let device = bind_device(driver, &volume, &mut state, target, &wanted, &flags);
    if device.is_err() {
        // The state names no device, so the next call finds one that was bound.
        put_back(&mut state, node, target, before.clone());
    }
    locked.save(&state)?;
    let device = device?;
    drop(locked);

    let how = Preparation::new(driver, state.targets_on(node).len() == 1);
    let mounted = mount_at(&volume, staging, device.as_deref(), &mount_point, &wanted, &flags, how);
    if let Err(error) = mounted {
        if error.effect == CallEffect::None {
            // Nothing was changed, so the old state still holds.
            undo(&volume, node, target, before)?;
        }
        return Err(error);
    }
    if let Some(group) = wanted.capability.group {
        mount::give_to_group(volume_id, &mount_point, group)?;
    }
    update_state(&volume, |state| state.publish(node, target, wanted))?;
    Ok(NodePublishVolumeResponse {})
}

/// The staging path without links; `None` if volumes are not staged.
fn staging(
    driver: &Driver,
    volume: &Volume,
    state: &VolumeState,
    staging: &str,
) -> Result<Option<PathBuf>, Refusal> {
    if !driver.has(Ability::Stage) {
        return Ok(None);
    }
    let volume_id = &volume.meta().volume_id;
    // A lenient instance refuses, too: there is nothing to publish.
    rules::check_publish(state, driver.node_id(), staging)
        .map_err(|broken| Refusal::violation(volume_id, broken))?;

    let mount_point =
        mounts::resolve_place(staging).map_err(|error| Refusal::mount(volume_id, &error))?;
    if let Some(mount_point) = mount_point
        && stage::is_staged(volume, state, driver.node_id(), &mount_point)?
    {
        return Ok(Some(mount_point));
    }
    // The CO is not to blame: the volume was unmounted by hand.
    let gone = format!(
        "volume {volume_id:?}: no longer mounted at the staging path {staging:?}; call \
         NodeStageVolume again"
    );
    Err(Refusal::new(Code::FailedPrecondition, gone))
}

/// Binds the device for this target and puts it into `state`. `None` if a stage or a directory is
/// bind-mounted. The caller holds the volume's lock.
fn bind_device(
    driver: &Driver,
    volume: &Volume,
    state: &mut VolumeState,
    target: &str,
    wanted: &PublishedVolume,
    flags: &BTreeSet<String>,
) -> Result<Option<String>, Refusal> {
    let (node, block) = (driver.node_id(), wanted.capability.block);
    let is_staged = driver.has(Ability::Stage);
    if volume.meta().backing == Backing::Directory || (is_staged && !block) {
        return Ok(None);
    }
    if block && flags.contains(READ_ONLY) {
        // A read-only mount of a device node does not make the device read-only.
        let recorded = state.on(node).and_then(|on| on.readonly_devices.get(target));
        let device = device::acquire_readonly(volume, recorded.map(String::as_str))?;
        state.set_readonly_device(node, target, device.clone());
        return Ok(Some(device));
    }
    if let Some(device) = state.device_on(node).filter(|_| is_staged) {
        return Ok(Some(device.to_owned()));
    }
    let readonly = wanted.capability.mode.is_reader_only();
    let device = device::acquire(volume, state, state.device_on(node), readonly)?;
    state.set_device(node, Some(device.clone()));
    Ok(Some(device))
}

/// Mounts the volume at its target.
fn mount_at(
    volume: &Volume,
    staging: Option<PathBuf>,
    device: Option<&str>,
    mount_point: &Path,
    wanted: &PublishedVolume,
    flags: &BTreeSet<String>,
    how: Preparation,
) -> Result<(), Refusal> {
    let meta = volume.meta();
    let kind =
        if wanted.capability.block { MountPointKind::File } else { MountPointKind::Directory };
    mounts::make_place(mount_point, kind)
        .map_err(|error| Refusal::mount(&meta.volume_id, &error))?;
    let data = staging.unwrap_or_else(|| volume.data());
    let source = match (device, meta.fs) {
        (Some(device), _) if wanted.capability.block => MountSource::Bind(Path::new(device)),
        (Some(device), Some(fs)) => {
            let readonly = wanted.capability.mode.is_reader_only();
            MountSource::Device { device, fs, readonly }
        }
        _ => MountSource::Bind(&data),
    };
    mount::mount_volume(volume, source, mount_point, flags, how)
}

/// Restores the earlier state. Releases the devices if the volume was not published before.
fn undo(
    volume: &Volume,
    node: &str,
    target: &str,
    before: Option<PublishedVolume>,
) -> Result<(), Refusal> {
    let locked = volume.lock()?;
    let mut state = locked.state()?;
    if before.is_none() {
        forget(volume, &mut state, node, target)?;
    }
    put_back(&mut state, node, target, before);
    Ok(locked.save(&state)?)
}

fn put_back(state: &mut VolumeState, node: &str, target: &str, before: Option<PublishedVolume>) {
    match before {
        Some(before) => state.publish(node, target, before),
        None => state.unpublish(node, target),
    }
}

/// Removes the publication from `state`, and releases the devices that only it needed.
fn forget(
    volume: &Volume,
    state: &mut VolumeState,
    node: &str,
    target: &str,
) -> Result<(), LoopError> {
    let own = state.on(node).and_then(|on| on.readonly_devices.get(target)).cloned();
    state.unpublish(node, target);
    let is_last = state.staged_on(node).is_none() && state.targets_on(node).is_empty();
    let shared_device = state.device_on(node).filter(|_| is_last).map(str::to_owned);
    let released: Vec<_> = own.iter().chain(&shared_device).map(String::as_str).collect();
    device::release(volume, state, &released)?;
    if is_last {
        state.set_device(node, None);
    }
    Ok(())
}

/// The mount flags. Read-only if the request, the access mode or the attachment is.
fn flags(
    driver: &Driver,
    wanted: &PublishedVolume,
    attached: Option<&Attachment>,
) -> BTreeSet<String> {
    let mut flags = wanted.capability.flags.clone();
    if driver.profile.ignores(IgnoredField::MountFlags) {
        flags.clear();
    }
    let readonly = wanted.readonly
        || wanted.capability.mode.is_reader_only()
        || attached.is_some_and(|attachment| attachment.readonly);
    if readonly && !driver.profile.ignores(IgnoredField::Readonly) {
        flags.insert(READ_ONLY.to_owned());
    }
    flags
}

/// CSI's table for a second `NodePublishVolume` at another target.
fn check_other_targets(
    driver: &Driver,
    volume_id: &str,
    state: &VolumeState,
    target: &str,
    wanted: &PublishedVolume,
) -> Result<(), Refusal> {
    let Some(on) = state.on(driver.node_id()) else { return Ok(()) };
    let one_only = |published: &PublishedVolume| !published.capability.mode.allows_many_targets();
    let in_the_way = on.published.iter().find(|(other_target, published)| {
        *other_target != target && (one_only(wanted) || one_only(published))
    });
    let Some((other_target, published)) = in_the_way else { return Ok(()) };
    let message = format!(
        "volume {volume_id:?}: published on {} at {other_target} ({}), and this mode allows one \
         target; call NodeUnpublishVolume for it first, or use SINGLE_NODE_MULTI_WRITER",
        driver.node_id(),
        published.capability.mode
    );
    Err(Refusal::new(Code::FailedPrecondition, message))
}

fn no_parent(volume_id: &str, target: &str) -> Refusal {
    let message = format!(
        "volume {volume_id:?}: the directory of target_path {target:?} does not exist; the CO has \
         to make it before it calls"
    );
    Refusal::new(Code::InvalidArgument, message)
}

fn incompatible(volume_id: &str, target: &str, published: &PublishedVolume) -> Refusal {
    let message = format!(
        "volume {volume_id:?}: published at {target} otherwise ({}, readonly {}); repeat the call \
         with those, or call NodeUnpublishVolume first",
        published.capability.mode, published.readonly
    );
    Refusal::new(Code::AlreadyExists, message)
}

pub(in crate::driver) fn unpublish(
    driver: &Driver,
    request: &NodeUnpublishVolumeRequest,
) -> Result<NodeUnpublishVolumeResponse, Refusal> {
    let NodeUnpublishVolumeRequest { volume_id, target_path: target } = request;
    let (failed, node) = (|error| Refusal::mount(volume_id, &error), driver.node_id());
    let mount_point = mounts::resolve_place(target).map_err(failed)?;
    let Some(volume) = driver.volume_to_undo(volume_id, mount_point.as_deref())? else {
        mount_point
            .map_or(Ok(()), |mount_point| mounts::remove_place(&mount_point))
            .map_err(failed)?;
        return Ok(NodeUnpublishVolumeResponse {});
    };

    let locked = volume.lock()?;
    let mut state = locked.state()?;
    if state.begin_unpublish(node, target) {
        locked.save(&state)?;
    }
    drop(locked);

    // Also if the state has no publication: a killed call may have mounted.
    if let Some(mount_point) = mount_point {
        mounts::unmount_content(&mount_point, &device::content(&volume)?)
            .and_then(|()| mounts::remove_place(&mount_point))
            .map_err(failed)?;
    }
    let locked = volume.lock()?;
    let mut state = locked.state()?;
    forget(&volume, &mut state, node, target).map_err(Refusal::from).map_err(Refusal::midway)?;
    locked.save(&state)?;
    Ok(NodeUnpublishVolumeResponse {})
}
