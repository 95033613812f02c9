//! Giving a volume to a workload on a node.
//!
//! Owns: `NodePublishVolume` and `NodeUnpublishVolume`. Promises: the target directory is made and
//! removed here; notes are written before and settled after the mount table changes, as for a
//! stage. Never: removes a target that has files or another mount.

use std::collections::BTreeSet;
use std::path::PathBuf;

use berth_csi::Code;
use berth_csi::v1::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
};

use crate::backend::{Attachment, Published, State, Volume};
use crate::capability::MountFlag;
use crate::driver::refusal::Refusal;
use crate::driver::request::{Fields, check_context};
use crate::driver::{Driver, change};
use crate::mounts::{self, MountError, Presence};
use crate::rules;

pub(super) fn publish(
    driver: &Driver,
    request: &NodePublishVolumeRequest,
) -> Result<NodePublishVolumeResponse, Refusal> {
    let NodePublishVolumeRequest { volume_id, target_path: target, readonly, .. } = request;
    let mut fields = Fields::default();
    fields.id("volume_id", volume_id);
    fields.required("target_path", target);
    let capability = fields.capability("volume_capability", request.volume_capability.as_ref());
    let capability = fields.check(capability)?;

    let volume = driver.volume(volume_id)?;
    check_context(volume.meta(), &request.volume_context)?;
    let (node, data) = (driver.node_id(), volume.data());
    let failed = |error| Refusal::mount(volume_id, &error);
    let place = mounts::place(target).map_err(failed)?;
    let place = place.ok_or_else(|| no_parent(volume_id, target))?;

    let locked = volume.lock()?;
    let mut state = locked.state()?;
    let attached = driver.check_attached(volume.meta(), &state, &request.publish_context)?;
    rules::use_on(&state, node, capability.mode, *readonly)
        .map_err(|broken| Refusal::violation(volume_id, broken))?;
    let source = source(driver, &volume, &state, &request.staging_target_path)?;
    let wanted = Published { capability, readonly: *readonly, settled: true };
    let flags = flags(&wanted, attached);
    let before = state.on(node).and_then(|on| on.published.get(target)).cloned();
    if let Some(published) = before.as_ref().filter(|published| published.settled) {
        if *published != wanted {
            return Err(incompatible(volume_id, target, published));
        }
        if mounts::presence(&place, &data).map_err(failed)? == Presence::Volume {
            return Ok(NodePublishVolumeResponse {});
        }
    }
    check_other_targets(driver, volume_id, &state, target, &wanted)?;
    state.publish(node, target, Published { settled: false, ..wanted.clone() });
    locked.save(&state)?;
    drop(locked);

    let bound =
        mounts::make_place(&place).and_then(|()| mounts::bind(&source, &data, &place, &flags));
    if let Err(error) = bound {
        if error.is_refusal() {
            // Nothing was changed, so nothing new may be there.
            change(&volume, |state| match before {
                Some(before) => state.publish(node, target, before),
                None => state.unpublish(node, target),
            })?;
        }
        return Err(failed(error));
    }
    change(&volume, |state| state.publish(node, target, wanted))?;
    Ok(NodePublishVolumeResponse {})
}

/// What the target is bound to: the stage, or the volume itself where nothing is staged.
fn source(
    driver: &Driver,
    volume: &Volume,
    state: &State,
    staging: &str,
) -> Result<PathBuf, Refusal> {
    let data = volume.data();
    if !driver.profile.stage {
        return Ok(data);
    }
    let volume_id = &volume.meta().volume_id;
    let asked = Some(staging).filter(|staging| !staging.is_empty());
    rules::publish_from(state, driver.node_id(), asked)
        .map_err(|broken| Refusal::violation(volume_id, broken))?;

    let mounted = |place: &PathBuf| Ok(mounts::presence(place, &data)? == Presence::Volume);
    let place = mounts::place(staging).and_then(|place| match place {
        Some(place) => Ok(mounted(&place)?.then_some(place)),
        None => Ok(None),
    });
    let place = place.map_err(|error: MountError| Refusal::mount(volume_id, &error))?;
    // Not the CO's fault: someone unmounted it behind both our backs.
    let gone = format!(
        "volume {volume_id:?}: no longer mounted at the staging path {staging:?}; call \
         NodeStageVolume again"
    );
    place.ok_or_else(|| Refusal::new(Code::FailedPrecondition, gone))
}

/// The workload may write only where nothing says that it may not.
fn flags(wanted: &Published, attached: Option<&Attachment>) -> BTreeSet<MountFlag> {
    let mut flags = wanted.capability.flags.clone();
    let readonly = wanted.readonly
        || wanted.capability.mode.is_reader_only()
        || attached.is_some_and(|attachment| attachment.readonly);
    if readonly {
        flags.insert(MountFlag::Ro);
    }
    flags
}

/// CSI's table for a second `NodePublishVolume` at another target.
fn check_other_targets(
    driver: &Driver,
    volume_id: &str,
    state: &State,
    target: &str,
    wanted: &Published,
) -> Result<(), Refusal> {
    let Some(on) = state.on(driver.node_id()) else { return Ok(()) };
    let one_only = |published: &Published| !published.capability.mode.allows_many_targets();
    let in_the_way = on
        .published
        .iter()
        .find(|(other, published)| *other != target && (one_only(wanted) || one_only(published)));
    let Some((other, published)) = in_the_way else { return Ok(()) };
    let message = format!(
        "volume {volume_id:?}: published on {} at {other} ({}), and this mode allows one target; \
         call NodeUnpublishVolume for it first, or use SINGLE_NODE_MULTI_WRITER",
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

fn incompatible(volume_id: &str, target: &str, published: &Published) -> Refusal {
    let message = format!(
        "volume {volume_id:?}: published at {target} otherwise ({}, readonly {}); repeat the call \
         with those, or call NodeUnpublishVolume first",
        published.capability.mode, published.readonly
    );
    Refusal::new(Code::AlreadyExists, message)
}

pub(super) fn unpublish(
    driver: &Driver,
    request: &NodeUnpublishVolumeRequest,
) -> Result<NodeUnpublishVolumeResponse, Refusal> {
    let NodeUnpublishVolumeRequest { volume_id, target_path: target } = request;
    let mut fields = Fields::default();
    fields.id("volume_id", volume_id);
    fields.required("target_path", target);
    fields.check(Some(()))?;

    let volume = driver.volume(volume_id)?;
    let node = driver.node_id();
    let failed = |error| Refusal::mount(volume_id, &error);
    let place = mounts::place(target).map_err(failed)?;

    let locked = volume.lock()?;
    let mut state = locked.state()?;
    let published = state.on(node).and_then(|on| on.published.get(target)).cloned();
    if let Some(published) = &published {
        state.publish(node, target, Published { settled: false, ..published.clone() });
        locked.save(&state)?;
    }
    drop(locked);

    // Also without a note: what is mounted is what counts.
    if let Some(place) = place {
        let removed =
            mounts::unbind(&place, &volume.data()).and_then(|()| mounts::remove_place(&place));
        removed.map_err(failed)?;
    }
    if published.is_some() {
        change(&volume, |state| state.unpublish(node, target))?;
    }
    Ok(NodeUnpublishVolumeResponse {})
}
