//! Snapshots of several volumes at once.
//!
//! Owns: the work of the group controller service. Promises: a group exists completely or not at
//! all. It is recorded before its first member is taken and until its last member is removed.
//! Never: snapshots volumes that may be written to: the copies are made one after the other, so
//! they would be of different moments.

use std::collections::BTreeMap;

use berth_csi::Code;
use berth_csi::v1::group_controller_service_capability::rpc::Type;
use berth_csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse,
    DeleteVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotResponse,
    GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesResponse, GroupControllerServiceCapability, VolumeGroupSnapshot,
    group_controller_service_capability,
};

use super::controller::{answer, capacity, snapshot};
use super::refusal::Refusal;
use super::request::RequestFields;
use super::{Driver, handle};
use crate::backend::{GroupMeta, SnapshotMeta, Volume};

pub(super) fn capabilities() -> GroupControllerGetCapabilitiesResponse {
    let kind = Type::CreateDeleteGetVolumeGroupSnapshot.into();
    let rpc = group_controller_service_capability::Rpc { r#type: kind };
    let r#type = Some(group_controller_service_capability::Type::Rpc(rpc));
    let capabilities = vec![GroupControllerServiceCapability { r#type }];
    GroupControllerGetCapabilitiesResponse { capabilities }
}

pub(super) fn create(
    driver: &Driver,
    request: &CreateVolumeGroupSnapshotRequest,
) -> Result<CreateVolumeGroupSnapshotResponse, Refusal> {
    let CreateVolumeGroupSnapshotRequest { name, source_volume_ids: sources, parameters, .. } =
        request;
    let mut fields = RequestFields::default();
    for source in sources {
        fields.required("source_volume_ids", source);
    }
    let ready_after_ms = snapshot::read_parameters(&mut fields, parameters);
    fields.finish()?;

    let node = driver.profile.bound.then(|| driver.node_id());
    let group_id = handle::make_id("group", node, name);
    let members: BTreeMap<_, _> = sources
        .iter()
        .map(|source| (source.clone(), handle::make_id("snap", node, &format!("{name}/{source}"))))
        .collect();
    let _lock = driver.backend.lock_groups()?;
    let group = match driver.backend.group(&group_id)? {
        Some(group) if group.members != members => return Err(exists_otherwise(&group)),
        Some(group) if group.whole => return answer_created(driver, &group),
        // A killed call had begun to create or delete it.
        Some(_) | None => {
            GroupMeta { group_id, created_us: answer::now_us(), members, whole: false }
        }
    };
    let volumes = sources.iter().map(|source| driver.volume(source));
    let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
    let bytes = volumes.iter().map(|volume| volume.meta().capacity_bytes);
    let _reserved = capacity::reserve(driver, bytes.fold(0, i64::saturating_add))?;
    driver.backend.save_group(&group)?;
    take_snapshots(driver, &group, name, &volumes, ready_after_ms)?;
    let group = GroupMeta { whole: true, ..group };
    driver.backend.save_group(&group)?;
    answer_created(driver, &group)
}

/// Takes a snapshot of each volume, under the locks of all of them.
fn take_snapshots(
    driver: &Driver,
    group: &GroupMeta,
    name: &str,
    volumes: &[Volume],
    ready_after_ms: u64,
) -> Result<(), Refusal> {
    let mut volumes: Vec<_> = volumes.iter().collect();
    // Sorted, with each volume once, so that two calls cannot deadlock.
    volumes.sort_by_key(|volume| &volume.meta().volume_id);
    volumes.dedup_by_key(|volume| &volume.meta().volume_id);
    let mut locks = Vec::new();
    for volume in &volumes {
        let locked = volume.lock()?;
        check_not_written(volume, &locked.state()?)?;
        locks.push(locked);
    }
    for volume in volumes {
        let Some(snapshot_id) = group.members.get(&volume.meta().volume_id) else { continue };
        let meta = snapshot::describe(volume, snapshot_id.clone(), name, ready_after_ms);
        let group_id = Some(group.group_id.clone());
        // A snapshot that a killed call left is of another moment.
        driver.backend.remove_snapshot(snapshot_id)?;
        let meta = SnapshotMeta { group_id, created_us: group.created_us, ..meta };
        driver.backend.take_snapshot(volume, &meta)?;
    }
    Ok(())
}

/// Refuses a volume that a workload may be writing to.
fn check_not_written(volume: &Volume, state: &crate::backend::VolumeState) -> Result<(), Refusal> {
    let published = state
        .nodes
        .iter()
        .flat_map(|(node, on)| on.published.values().map(move |publication| (node, publication)));
    let mut writers = published.filter(|(node, publication)| {
        let attached = state.attachments.get(*node);
        let reads = publication.readonly || publication.capability.mode.is_reader_only();
        !reads && !attached.is_some_and(|attached| attached.readonly)
    });
    let Some((node, _)) = writers.next() else { return Ok(()) };
    let message = format!(
        "volume {:?}: published on {node} for writing, and this driver copies one volume after the \
         other, so a group would not be of one moment; unpublish it first",
        volume.meta().volume_id
    );
    Err(Refusal::new(Code::FailedPrecondition, message))
}

fn exists_otherwise(group: &GroupMeta) -> Refusal {
    let volumes: Vec<_> = group.members.keys().map(String::as_str).collect();
    let message = format!(
        "group {:?} exists and is of the volumes {}; use another name",
        group.group_id,
        volumes.join(", ")
    );
    Refusal::new(Code::AlreadyExists, message)
}

fn answer_created(
    driver: &Driver,
    group: &GroupMeta,
) -> Result<CreateVolumeGroupSnapshotResponse, Refusal> {
    let group_snapshot = Some(to_wire(driver, group)?);
    Ok(CreateVolumeGroupSnapshotResponse { group_snapshot })
}

fn to_wire(driver: &Driver, group: &GroupMeta) -> Result<VolumeGroupSnapshot, Refusal> {
    let mut snapshots = Vec::new();
    for snapshot_id in group.members.values() {
        if let Some(snapshot) = driver.backend.snapshot(snapshot_id)? {
            snapshots.push(answer::snapshot(driver, snapshot.meta()));
        }
    }
    let ready_to_use = snapshots.len() == group.members.len()
        && snapshots.iter().all(|snapshot| snapshot.ready_to_use);
    Ok(VolumeGroupSnapshot {
        group_snapshot_id: group.group_id.clone(),
        snapshots,
        creation_time: Some(answer::timestamp(group.created_us)),
        ready_to_use,
    })
}

pub(super) fn get(
    driver: &Driver,
    request: &GetVolumeGroupSnapshotRequest,
) -> Result<GetVolumeGroupSnapshotResponse, Refusal> {
    let GetVolumeGroupSnapshotRequest { group_snapshot_id: id, snapshot_ids, .. } = request;
    let Some(group) = driver.backend.group(id)?.filter(|group| group.whole) else {
        let message = format!("group {id:?} does not exist; check the id");
        return Err(Refusal::new(Code::NotFound, message));
    };
    check_members(&group, snapshot_ids)?;
    Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(to_wire(driver, &group)?) })
}

pub(super) fn delete(
    driver: &Driver,
    request: &DeleteVolumeGroupSnapshotRequest,
) -> Result<DeleteVolumeGroupSnapshotResponse, Refusal> {
    let DeleteVolumeGroupSnapshotRequest { group_snapshot_id: id, snapshot_ids, .. } = request;
    let _lock = driver.backend.lock_groups()?;
    let Some(group) = driver.backend.group(id)? else {
        return Ok(DeleteVolumeGroupSnapshotResponse {});
    };
    check_members(&group, snapshot_ids)?;
    let group = GroupMeta { whole: false, ..group };
    driver.backend.save_group(&group)?;
    for snapshot_id in group.members.values() {
        driver
            .backend
            .remove_snapshot(snapshot_id)
            .map_err(Refusal::from)
            .map_err(Refusal::midway)?;
    }
    driver.backend.remove_group(id)?;
    Ok(DeleteVolumeGroupSnapshotResponse {})
}

/// Refuses snapshot ids other than exactly those of the group.
fn check_members(group: &GroupMeta, given_ids: &[String]) -> Result<(), Refusal> {
    let mut given_ids: Vec<_> = given_ids.iter().collect();
    let mut members: Vec<_> = group.members.values().collect();
    given_ids.sort();
    members.sort();
    if given_ids == members {
        return Ok(());
    }
    let members: Vec<_> = members.into_iter().map(String::as_str).collect();
    let message = format!(
        "snapshot_ids are not those of the group {:?}, which has {}",
        group.group_id,
        members.join(", ")
    );
    Err(Refusal::new(Code::InvalidArgument, message))
}
