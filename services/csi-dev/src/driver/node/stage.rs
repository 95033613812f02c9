//! Making a volume available on a node, once.
//!
//! Owns: `NodeStageVolume` and `NodeUnstageVolume`. Promises: a note that says "may be there" is
//! written before the mount table changes, and settled after; so whatever a killed call left is
//! found by the next. Never: creates or removes the staging directory, which is the CO's.

use std::collections::BTreeSet;

use berth_csi::Code;
use berth_csi::v1::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
};

use crate::backend::Staged;
use crate::driver::refusal::Refusal;
use crate::driver::request::{Fields, check_context};
use crate::driver::{Driver, change};
use crate::mounts::{self, Presence};
use crate::rules;

pub(super) fn stage(
    driver: &Driver,
    request: &NodeStageVolumeRequest,
) -> Result<NodeStageVolumeResponse, Refusal> {
    let NodeStageVolumeRequest { volume_id, staging_target_path: path, .. } = request;
    let mut fields = Fields::default();
    fields.id("volume_id", volume_id);
    fields.required("staging_target_path", path);
    let capability = fields.capability("volume_capability", request.volume_capability.as_ref());
    let capability = fields.check(capability)?;

    let volume = driver.volume(volume_id)?;
    check_context(volume.meta(), &request.volume_context)?;
    let (node, data) = (driver.node_id(), volume.data());
    let failed = |error| Refusal::mount(volume_id, &error);
    let place = mounts::place(path).map_err(failed)?.filter(|place| place.is_dir());
    let place = place.ok_or_else(|| not_a_directory(volume_id, path))?;

    let locked = volume.lock()?;
    let mut state = locked.state()?;
    driver.check_attached(volume.meta(), &state, &request.publish_context)?;
    // A stage writes nothing by itself.
    rules::use_on(&state, node, capability.mode, true)
        .and_then(|()| rules::stage(&state, node, path))
        .map_err(|broken| Refusal::violation(volume_id, broken))?;
    let before = state.staged_on(node).cloned();
    if let Some(staged) = before.as_ref().filter(|staged| staged.settled) {
        if staged.capability != capability {
            return Err(incompatible(volume_id, node, staged));
        }
        if mounts::presence(&place, &data).map_err(failed)? == Presence::Volume {
            return Ok(NodeStageVolumeResponse {});
        }
    }
    let staged = Staged { path: path.clone(), capability, settled: false };
    state.stage(node, staged.clone());
    locked.save(&state)?;
    drop(locked);

    if let Err(error) = mounts::bind(&data, &data, &place, &BTreeSet::new()) {
        if error.is_refusal() {
            // Nothing was changed, so nothing new may be there.
            change(&volume, |state| match before {
                Some(before) => state.stage(node, before),
                None => state.unstage(node),
            })?;
        }
        return Err(failed(error));
    }
    change(&volume, |state| state.stage(node, Staged { settled: true, ..staged }))?;
    Ok(NodeStageVolumeResponse {})
}

fn not_a_directory(volume_id: &str, path: &str) -> Refusal {
    let message = format!(
        "volume {volume_id:?}: staging_target_path {path:?} is not a directory; the CO has to make \
         it before it calls"
    );
    Refusal::new(Code::InvalidArgument, message)
}

fn incompatible(volume_id: &str, node: &str, staged: &Staged) -> Refusal {
    let message = format!(
        "volume {volume_id:?}: staged on {node} at {} otherwise ({}); repeat the call with that \
         capability, or call NodeUnstageVolume first",
        staged.path, staged.capability.mode
    );
    Refusal::new(Code::AlreadyExists, message)
}

pub(super) fn unstage(
    driver: &Driver,
    request: &NodeUnstageVolumeRequest,
) -> Result<NodeUnstageVolumeResponse, Refusal> {
    let NodeUnstageVolumeRequest { volume_id, staging_target_path: path } = request;
    let mut fields = Fields::default();
    fields.id("volume_id", volume_id);
    fields.required("staging_target_path", path);
    fields.check(Some(()))?;

    let volume = driver.volume(volume_id)?;
    let node = driver.node_id();
    let failed = |error| Refusal::mount(volume_id, &error);
    let place = mounts::place(path).map_err(failed)?;

    let locked = volume.lock()?;
    let mut state = locked.state()?;
    rules::unstage(&state, node).map_err(|broken| Refusal::violation(volume_id, broken))?;
    let staged = state.staged_on(node).filter(|staged| staged.path == *path).cloned();
    if let Some(staged) = &staged {
        state.stage(node, Staged { settled: false, ..staged.clone() });
        locked.save(&state)?;
    }
    drop(locked);

    // Also without a note: what is mounted is what counts.
    if let Some(place) = place {
        mounts::unbind(&place, &volume.data()).map_err(failed)?;
    }
    if staged.is_some() {
        change(&volume, |state| state.unstage(node))?;
    }
    Ok(NodeUnstageVolumeResponse {})
}
