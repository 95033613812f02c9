//! Creating and deleting a volume.
//!
//! Owns: `CreateVolume` and `DeleteVolume`. Promises: the id is made from the name, so a repeated
//! call finds what a killed call made. A volume exists only while it is complete. Never: deletes a
//! volume that is in use anywhere.

use berth_csi::Code;
use berth_csi::v1::volume_content_source::Type;
use berth_csi::v1::{
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
};

use super::kind::{choose_kind, read_capabilities};
use super::modify::merge_mutable;
use super::origin::CopySource;
use super::parameters::{VolumeParameters, mutable_faults};
use super::{answer, capacity, origin};
use crate::ability::Ability;
use crate::backend::{
    CallSlot, ContentSource, CreationRequest, LockedVolume, VolumeMeta, directory,
};
use crate::capability::Capability;
use crate::driver::node::device;
use crate::driver::refusal::Refusal;
use crate::driver::request::RequestFields;
use crate::driver::size;
use crate::driver::{Driver, handle};
use crate::topology::{self, Segments};

pub(in crate::driver) fn create(
    driver: &Driver,
    request: &CreateVolumeRequest,
) -> Result<CreateVolumeResponse, Refusal> {
    let bound_to = driver.profile.bound.then(|| driver.node_id());
    let volume_id = handle::make_id("vol", bound_to, &request.name);
    let (parameters, capabilities) = read(driver, request)?;
    let source = request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref());
    let source = source.map(|source| match source.clone() {
        Type::Snapshot(source) => ContentSource::Snapshot(source.snapshot_id),
        Type::Volume(source) => ContentSource::Volume(source.volume_id),
    });
    let creation = CreationRequest {
        name: request.name.clone(),
        parameters: request.parameters.clone(),
        mutable_parameters: request.mutable_parameters.clone(),
        source,
    };
    let node = driver.profile.bound.then(|| driver.node_id().to_owned());
    if let Some(volume) = driver.backend.volume(&volume_id)? {
        return repeated(driver, volume.meta(), &creation, request, &capabilities);
    }

    let origin = creation.source.as_ref().map(|source| origin::find(driver, source)).transpose()?;
    let (backing, fs) = choose_kind(&parameters, &capabilities, origin.as_ref());
    let least =
        origin.as_ref().map_or(0, |origin| origin.size_bytes).max(size::smallest(backing, fs));
    let meta = VolumeMeta {
        volume_id,
        capacity_bytes: size::choose(request.capacity_range.as_ref(), backing, least)?,
        volume_context: parameters.context,
        backing,
        fs,
        mutable_parameters: merge_mutable(parameters.mutable, &request.mutable_parameters),
        topology: choose_topology(driver, request)?,
        node,
        asked: Some(creation.clone()),
    };
    check_kind(driver, &meta, &capabilities, origin.as_ref())?;
    let _reserved = capacity::reserve(driver, meta.capacity_bytes)?;
    let _kept = origin.as_ref().map(|origin| directory::lock(&origin.dir)).transpose()?;
    let from = origin.as_ref().map(|origin| &*origin.dir);
    match driver.backend.make_volume(&meta, from)? {
        // A concurrent call with this name created it first.
        Some(existing) => repeated(driver, &existing, &creation, request, &capabilities),
        None => Ok(CreateVolumeResponse { volume: Some(answer::volume(driver, &meta)) }),
    }
}

/// Checks the request on its own.
fn read(
    driver: &Driver,
    request: &CreateVolumeRequest,
) -> Result<(VolumeParameters, Vec<Capability>), Refusal> {
    let mut fields = RequestFields::default();
    if request.name.chars().any(char::is_control) {
        fields.faults(["name has control characters".to_owned()]);
    }
    let capabilities = read_capabilities(&mut fields, &request.volume_capabilities);
    let mut faults = Vec::new();
    let parameters = VolumeParameters::read(&request.parameters, &mut faults);
    let source = request.volume_content_source.as_ref();
    let kind = source.and_then(|source| source.r#type.as_ref());
    if source.is_some() && kind.is_none() {
        faults.push("volume_content_source has no type".to_owned());
    }
    let needs = [
        (Ability::Snapshot, "a snapshot as source", matches!(kind, Some(Type::Snapshot(_)))),
        (Ability::Clone, "a volume as source", matches!(kind, Some(Type::Volume(_)))),
        (
            Ability::Topology,
            "accessibility_requirements",
            request.accessibility_requirements.is_some(),
        ),
        (Ability::Modify, "mutable_parameters", !request.mutable_parameters.is_empty()),
    ];
    for (ability, what, _) in needs.iter().filter(|need| need.2 && !driver.has(need.0)) {
        faults.push(format!("{what}: {ability} is not among the capabilities of this plugin"));
    }
    faults.extend(mutable_faults(&request.mutable_parameters));
    fields.faults(faults);
    fields.finish()?;
    Ok((parameters, capabilities))
}

/// Refuses capabilities that this kind of volume, or its source, does not have.
fn check_kind(
    driver: &Driver,
    meta: &VolumeMeta,
    capabilities: &[Capability],
    origin: Option<&CopySource>,
) -> Result<(), Refusal> {
    let mut fields = RequestFields::default();
    for (index, capability) in capabilities.iter().enumerate() {
        let faults = driver.unfit(meta, capability).into_iter();
        fields.faults(faults.map(|fault| format!("volume_capabilities[{index}].{fault}")));
    }
    let other_kind = origin.filter(|origin| origin.backing != meta.backing);
    if let Some(origin) = other_kind {
        let (backing, own) = (meta.backing, origin.backing);
        fields.faults([format!("volume_content_source: a {own:?} cannot become a {backing:?}")]);
    }
    fields.finish()
}

/// The topology of the new volume.
fn choose_topology(driver: &Driver, request: &CreateVolumeRequest) -> Result<Segments, Refusal> {
    let Some(requirements) = &request.accessibility_requirements else {
        return Ok(Segments::new());
    };
    if driver.profile.bound {
        return Ok(driver.profile.topology());
    }
    let nodes: Vec<_> = driver.backend.nodes()?.into_iter().map(|node| node.topology).collect();
    let areas = topology::areas(requirements);
    topology::choose(&areas, &nodes).ok_or_else(|| {
        let message = format!("accessibility_requirements: no node is within any of {areas:?}");
        Refusal::new(Code::ResourceExhausted, message)
    })
}

/// The answer if the name is taken: the volume, if the same request created it.
fn repeated(
    driver: &Driver,
    meta: &VolumeMeta,
    creation: &CreationRequest,
    request: &CreateVolumeRequest,
    capabilities: &[Capability],
) -> Result<CreateVolumeResponse, Refusal> {
    let mut differs = Vec::new();
    let original = meta.asked.clone().unwrap_or_default();
    if original.name != creation.name {
        differs.push("it was provisioned beforehand");
    }
    if original.parameters != creation.parameters {
        differs.push("its parameters");
    }
    if original.mutable_parameters != creation.mutable_parameters {
        differs.push("its mutable_parameters");
    }
    if original.source != creation.source {
        differs.push("its volume_content_source");
    }
    if !size::is_within(meta.capacity_bytes, request.capacity_range.as_ref()) {
        differs.push("its capacity");
    }
    if !capabilities.iter().all(|capability| driver.unfit(meta, capability).is_empty()) {
        differs.push("what it is capable of");
    }
    if let Some(requirements) = &request.accessibility_requirements
        && !meta.topology.is_empty()
        && !topology::areas(requirements)
            .iter()
            .any(|area| topology::is_within(&meta.topology, area))
    {
        differs.push("where it is accessible from");
    }
    if differs.is_empty() {
        return Ok(CreateVolumeResponse { volume: Some(answer::volume(driver, meta)) });
    }
    let message = format!(
        "volume {:?} was made otherwise ({}); repeat the call as it was, or use another name",
        meta.volume_id,
        differs.join(", ")
    );
    Err(Refusal::new(Code::AlreadyExists, message))
}

pub(in crate::driver) fn delete(
    driver: &Driver,
    request: &DeleteVolumeRequest,
) -> Result<DeleteVolumeResponse, Refusal> {
    let volume_id = &request.volume_id;
    let Some(volume) = driver.backend.volume(volume_id)? else {
        driver.backend.clear_leftovers(volume_id)?;
        return Ok(DeleteVolumeResponse {});
    };
    let node = volume.meta().node.as_deref();
    if driver.overlooks(node) {
        return Ok(DeleteVolumeResponse {});
    }
    driver.check_home(volume_id, node)?;
    let locked = volume.lock()?;
    let state = locked.state()?;
    let users = users(driver, &locked)?;
    if (state.is_in_use() || !users.is_empty()) && !driver.profile.lenient {
        let message = format!(
            "volume {volume_id:?}: still in use on {}; unpublish, unstage and detach it there \
             first",
            users.join(", ")
        );
        return Err(Refusal::new(Code::FailedPrecondition, message));
    }
    // A killed stage may have left a device. A mounted one stays until it is unmounted.
    let released = device::release(&volume, &state, &[]);
    if !driver.profile.lenient {
        released?;
    }
    locked.remove().map_err(Refusal::from).map_err(Refusal::midway)?;
    Ok(DeleteVolumeResponse {})
}

/// The nodes that use the volume, or have a call about it in flight.
fn users(driver: &Driver, locked: &LockedVolume<'_>) -> Result<Vec<String>, Refusal> {
    let state = locked.state()?;
    let mut users: Vec<String> =
        state.attachments.into_keys().chain(state.nodes.into_keys()).collect();
    for node in driver.backend.nodes()? {
        if locked.running(&CallSlot::Node(node.node_id.clone()))?.is_some() {
            users.push(node.node_id);
        }
    }
    users.sort();
    users.dedup();
    Ok(users)
}
