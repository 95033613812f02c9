//! All snapshots, and one of them.
//!
//! Owns: `ListSnapshots` and `GetSnapshot`. Promises: a list is ordered by id, in pages; members of
//! an incomplete group are hidden. Never: changes anything.

use berth_csi::Code;
use berth_csi::v1::list_snapshots_response::Entry;
use berth_csi::v1::{
    GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse,
};

use super::{answer, page};
use crate::backend::{Snapshot, SnapshotMeta};
use crate::driver::Driver;
use crate::driver::refusal::Refusal;

pub(in crate::driver) fn list(
    driver: &Driver,
    request: &ListSnapshotsRequest,
) -> Result<ListSnapshotsResponse, Refusal> {
    let ListSnapshotsRequest { max_entries, starting_token, source_volume_id, snapshot_id, .. } =
        request;
    let is_asked_for = |meta: &SnapshotMeta| {
        (source_volume_id.is_empty() || meta.source_volume_id == *source_volume_id)
            && (snapshot_id.is_empty() || meta.snapshot_id == *snapshot_id)
    };
    let mut snapshots = Vec::new();
    for snapshot in driver.backend.snapshots()? {
        if is_asked_for(snapshot.meta()) && is_there(driver, snapshot.meta())? {
            snapshots.push(snapshot);
        }
    }
    let asked = (starting_token.as_str(), *max_entries);
    let (snapshots, next_token) = page::page(snapshots, id, asked, driver.profile.list_pages)?;
    let entry =
        |snapshot: &Snapshot| Entry { snapshot: Some(answer::snapshot(driver, snapshot.meta())) };
    Ok(ListSnapshotsResponse { entries: snapshots.iter().map(entry).collect(), next_token })
}

pub(in crate::driver) fn get(
    driver: &Driver,
    request: &GetSnapshotRequest,
) -> Result<GetSnapshotResponse, Refusal> {
    let id = &request.snapshot_id;
    match driver.backend.snapshot(id)? {
        Some(snapshot) if is_there(driver, snapshot.meta())? => {
            Ok(GetSnapshotResponse { snapshot: Some(answer::snapshot(driver, snapshot.meta())) })
        }
        _ => {
            let message = format!("snapshot {id:?} does not exist; check the id");
            Err(Refusal::new(Code::NotFound, message))
        }
    }
}

fn id(snapshot: &Snapshot) -> &str {
    &snapshot.meta().snapshot_id
}

fn is_there(driver: &Driver, meta: &SnapshotMeta) -> Result<bool, Refusal> {
    if !driver.is_home(meta.node.as_deref()) {
        return Ok(false);
    }
    let Some(group) = &meta.group_id else { return Ok(true) };
    Ok(driver.backend.group(group)?.is_some_and(|group| group.whole))
}
