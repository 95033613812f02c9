//! Attaching and detaching a volume.
//!
//! Owns: `ControllerPublishVolume` and `ControllerUnpublishVolume`. Promises: an attachment is one
//! record, written atomically, so a killed call has attached or not. Never: touches the node
//! itself.

use berth_csi::Code;
use berth_csi::v1::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse,
};

use crate::ability::Ability;
use crate::backend::{Attachment, Backend, BackendError, CallSlot, NodeRecord};
use crate::driver::Driver;
use crate::driver::refusal::Refusal;
use crate::driver::request::{check_context, read_capability};
use crate::rules;

pub(in crate::driver) fn publish(
    driver: &Driver,
    request: &ControllerPublishVolumeRequest,
) -> Result<ControllerPublishVolumeResponse, Refusal> {
    let ControllerPublishVolumeRequest { volume_id, node_id, readonly, .. } = request;
    let capability = read_capability(request.volume_capability.as_ref())?;

    let volume = driver.volume(volume_id)?;
    driver.check_fit(Code::InvalidArgument, volume.meta(), &capability)?;
    if *readonly && !driver.has(Ability::PublishReadonly) {
        return Err(not_readonly(volume_id));
    }
    check_context(volume.meta(), &request.volume_context)?;
    let node = driver.backend.node(node_id)?.filter(|node| driver.is_home(Some(&node.node_id)));
    let node = node.ok_or_else(|| unknown_node(volume_id, node_id))?;
    driver.check_reach(volume.meta(), node_id, &node.topology)?;
    // Held until the attachment is recorded, so that two calls together cannot exceed a node's
    // limit.
    let _counting = if node.max_volumes > 0 { Some(driver.backend.lock()?) } else { None };

    let locked = volume.lock()?;
    let mut state = locked.state()?;
    if let Some(attachment) = state.attachments.get(node_id) {
        if attachment.capability == capability && attachment.readonly == *readonly {
            let publish_context = driver.publish_context(attachment);
            return Ok(ControllerPublishVolumeResponse { publish_context });
        }
        return Err(incompatible(volume_id, node_id, attachment));
    }
    let checked = rules::check_attach(&state, node_id, capability.mode, *readonly);
    driver.insist(volume_id, checked)?;
    check_limit(&driver.backend, &node, volume_id)?;

    state.attached_so_far += 1;
    let attachment = Attachment { capability, readonly: *readonly, number: state.attached_so_far };
    let publish_context = driver.publish_context(&attachment);
    state.attachments.insert(node_id.clone(), attachment);
    locked.save(&state)?;
    Ok(ControllerPublishVolumeResponse { publish_context })
}

fn not_readonly(volume_id: &str) -> Refusal {
    let message =
        format!("volume {volume_id:?}: readonly has to be false, PUBLISH_READONLY is not offered");
    Refusal::new(Code::InvalidArgument, message)
}

fn unknown_node(volume_id: &str, node_id: &str) -> Refusal {
    let message = format!(
        "volume {volume_id:?}: node {node_id:?} is not known; an instance of this driver has to \
         serve it first, and node_id has to be what its NodeGetInfo returns"
    );
    Refusal::new(Code::NotFound, message)
}

fn incompatible(volume_id: &str, node_id: &str, attachment: &Attachment) -> Refusal {
    let Attachment { capability, readonly, .. } = attachment;
    let message = format!(
        "volume {volume_id:?}: attached to {node_id} otherwise ({}, readonly {readonly}); repeat \
         the call with those, or call ControllerUnpublishVolume first",
        capability.mode
    );
    Refusal::new(Code::AlreadyExists, message)
}

/// Refuses an attachment beyond the limit of the node. The caller holds the backend's lock.
fn check_limit(backend: &Backend, node: &NodeRecord, volume_id: &str) -> Result<(), Refusal> {
    if node.max_volumes <= 0 {
        return Ok(());
    }
    let attached = count_attached(backend, &node.node_id)?;
    if attached < node.max_volumes {
        return Ok(());
    }
    let message = format!(
        "volume {volume_id:?}: node {} has {attached} volumes attached, which is its limit; detach \
         one, or use another node",
        node.node_id
    );
    Err(Refusal::new(Code::ResourceExhausted, message))
}

fn count_attached(backend: &Backend, node_id: &str) -> Result<i64, BackendError> {
    let mut count = 0;
    for volume in backend.volumes()? {
        count += i64::from(volume.read_state()?.attachments.contains_key(node_id));
    }
    Ok(count)
}

pub(in crate::driver) fn unpublish(
    driver: &Driver,
    request: &ControllerUnpublishVolumeRequest,
) -> Result<ControllerUnpublishVolumeResponse, Refusal> {
    let ControllerUnpublishVolumeRequest { volume_id, node_id, .. } = request;
    // Attachments are records of a volume, so an unknown volume has none.
    let Some(volume) = driver.backend.volume(volume_id)? else {
        return Ok(ControllerUnpublishVolumeResponse {});
    };
    driver.check_home(volume_id, volume.meta().node.as_deref())?;
    let locked = volume.lock()?;
    let mut state = locked.state()?;
    // An empty node id means all nodes (CSI).
    let mut nodes: Vec<String> = state.attachments.keys().cloned().collect();
    if !node_id.is_empty() {
        nodes.retain(|attached| attached == node_id);
    }
    for node in &nodes {
        // Calls on a fenced node do not reach the storage.
        let running = if driver.backend.is_fenced(node)? {
            None
        } else {
            locked.running(&CallSlot::Node(node.clone()))?
        };
        driver.insist(volume_id, rules::check_detach(&state, node, running.as_ref()))?;
    }
    if !nodes.is_empty() {
        state.attachments.retain(|node, _| !nodes.contains(node));
        locked.save(&state)?;
    }
    Ok(ControllerUnpublishVolumeResponse {})
}
