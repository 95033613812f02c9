//! Creating and deleting a snapshot.
//!
//! Owns: `CreateSnapshot` and `DeleteSnapshot`. Promises: a snapshot has everything written before
//! the call. The id is made from the name, so a repeated call finds what a killed call made. Never:
//! deletes a single member of a group.

use std::collections::BTreeMap;

use berth_csi::Code;
use berth_csi::v1::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
};

use super::parameters::ready_after_ms;
use super::{answer, capacity};
use crate::backend::{SnapshotMeta, Volume, directory};
use crate::driver::refusal::Refusal;
use crate::driver::request::RequestFields;
use crate::driver::{Driver, handle};

pub(in crate::driver) fn create(
    driver: &Driver,
    request: &CreateSnapshotRequest,
) -> Result<CreateSnapshotResponse, Refusal> {
    let bound_to = driver.profile.bound.then(|| driver.node_id());
    let snapshot_id = handle::make_id("snap", bound_to, &request.name);
    let CreateSnapshotRequest { source_volume_id: source, name, parameters, .. } = request;
    let mut fields = RequestFields::default();
    let ready_after_ms = read_parameters(&mut fields, parameters);
    fields.finish()?;

    if let Some(snapshot) = driver.backend.snapshot(&snapshot_id)? {
        return repeated(driver, snapshot.meta(), source);
    }
    let volume = driver.volume(source)?;
    let meta = describe(&volume, snapshot_id, name, ready_after_ms);
    let _reserved = capacity::reserve(driver, meta.size_bytes)?;
    let _kept = directory::lock(volume.dir())?;
    match driver.backend.take_snapshot(&volume, &meta)? {
        // A concurrent call with this name created it first.
        Some(existing) => repeated(driver, &existing, source),
        None => Ok(CreateSnapshotResponse { snapshot: Some(answer::snapshot(driver, &meta)) }),
    }
}

/// Reads how long a snapshot takes to become ready, in milliseconds.
pub(crate) fn read_parameters(fields: &mut RequestFields, given: &BTreeMap<String, String>) -> u64 {
    let mut faults = Vec::new();
    let ready_after_ms = ready_after_ms(given, &mut faults);
    fields.faults(faults);
    ready_after_ms
}

/// The record of a snapshot taken now.
pub(crate) fn describe(
    volume: &Volume,
    snapshot_id: String,
    name: &str,
    ready_after_ms: u64,
) -> SnapshotMeta {
    let (meta, created_us) = (volume.meta(), answer::now_us());
    SnapshotMeta {
        snapshot_id,
        name: name.to_owned(),
        source_volume_id: meta.volume_id.clone(),
        size_bytes: meta.capacity_bytes,
        created_us,
        ready_us: created_us + ready_after_ms * 1000,
        backing: meta.backing,
        fs: meta.fs,
        node: meta.node.clone(),
        group_id: None,
    }
}

/// The answer if the name is taken.
fn repeated(
    driver: &Driver,
    meta: &SnapshotMeta,
    source: &str,
) -> Result<CreateSnapshotResponse, Refusal> {
    if meta.source_volume_id == *source && meta.group_id.is_none() {
        return Ok(CreateSnapshotResponse { snapshot: Some(answer::snapshot(driver, meta)) });
    }
    let message = format!(
        "snapshot {:?} exists and is of volume {:?}; use another name",
        meta.snapshot_id, meta.source_volume_id
    );
    Err(Refusal::new(Code::AlreadyExists, message))
}

pub(in crate::driver) fn delete(
    driver: &Driver,
    request: &DeleteSnapshotRequest,
) -> Result<DeleteSnapshotResponse, Refusal> {
    let snapshot_id = &request.snapshot_id;
    if let Some(snapshot) = driver.backend.snapshot(snapshot_id)? {
        let meta = snapshot.meta();
        if driver.overlooks(meta.node.as_deref()) {
            return Ok(DeleteSnapshotResponse {});
        }
        driver.check_home(&meta.source_volume_id, meta.node.as_deref())?;
        if let Some(group) = &meta.group_id {
            let message = format!(
                "snapshot {snapshot_id:?} is a member of the group {group:?}; call \
                 DeleteVolumeGroupSnapshot for that"
            );
            return Err(Refusal::new(Code::InvalidArgument, message));
        }
    }
    driver.backend.remove_snapshot(snapshot_id)?;
    Ok(DeleteSnapshotResponse {})
}
