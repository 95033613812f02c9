//! Wrong answers about what there is at the storage.
//!
//! Owns: the [`WrongAnswer`]s that need the backend: they change the request before its work, or
//! the answer after it. Promises: what such an answer says was done is done. Never: decides when;
//! that is the fault file.

use std::any::Any;

use berth_csi::v1;

use super::Driver;
use super::controller::{create, page, snapshot};
use super::refusal::Refusal;
use crate::backend::content::BLOCK_BYTES;
use crate::backend::{Snapshot, Volume};
use crate::faults::WrongAnswer;

/// Changes the request, so that its work is wrong. False if this is not the kind of request.
pub(super) fn forge_request(
    driver: &Driver,
    wrong: WrongAnswer,
    request: &mut dyn Any,
) -> Result<bool, Refusal> {
    if wrong != WrongAnswer::LessCapacity {
        return Ok(false);
    }
    if let Some(create) = request.downcast_mut::<v1::CreateVolumeRequest>() {
        return Ok(require_less(create.capacity_range.as_mut(), 0));
    }
    let Some(expand) = request.downcast_mut::<v1::ControllerExpandVolumeRequest>() else {
        return Ok(false);
    };
    let volume = driver.backend.volume(&expand.volume_id)?;
    let bytes = volume.map_or(i64::MAX, |volume| volume.meta().capacity_bytes);
    Ok(require_less(expand.capacity_range.as_mut(), bytes))
}

/// Takes half of what was to be added to `before`, in whole blocks. False if nothing was.
fn require_less(range: Option<&mut v1::CapacityRange>, before: i64) -> bool {
    let Some(range) = range.filter(|range| range.required_bytes > before) else { return false };
    let half = before + (range.required_bytes - before) / 2;
    let whole = half / BLOCK_BYTES * BLOCK_BYTES;
    range.required_bytes = if whole > before { whole } else { half };
    true
}

/// Changes the answer to a request. False if this is not the kind of answer, or nothing was to be
/// changed.
pub(super) fn forge_answer(
    driver: &Driver,
    wrong: WrongAnswer,
    request: &dyn Any,
    answer: &mut dyn Any,
) -> Result<bool, Refusal> {
    match wrong {
        WrongAnswer::OtherId => create_twice(driver, request, answer),
        WrongAnswer::IdOfAnother => take_id_of_another(driver, answer),
        WrongAnswer::EndlessPages => Ok(change_token(answer, |token| {
            if token.is_empty() {
                *token = page::token_of_new_round();
            }
        })),
        WrongAnswer::EndlessToken => {
            Ok(change_token(answer, |token| *token = page::token_of_first_page()))
        }
        _ => Ok(false),
    }
}

fn create_twice(driver: &Driver, request: &dyn Any, answer: &mut dyn Any) -> Result<bool, Refusal> {
    if let Some(request) = request.downcast_ref::<v1::CreateVolumeRequest>()
        && let Some(answer) = answer.downcast_mut::<v1::CreateVolumeResponse>()
    {
        *answer = create::create_another(driver, request).map_err(Refusal::midway)?;
        return Ok(true);
    }
    if let Some(request) = request.downcast_ref::<v1::CreateSnapshotRequest>()
        && let Some(answer) = answer.downcast_mut::<v1::CreateSnapshotResponse>()
    {
        *answer = snapshot::create_another(driver, request).map_err(Refusal::midway)?;
        return Ok(true);
    }
    Ok(false)
}

fn take_id_of_another(driver: &Driver, answer: &mut dyn Any) -> Result<bool, Refusal> {
    if let Some(created) = answer.downcast_mut::<v1::CreateVolumeResponse>() {
        let own = created.volume.as_mut().map(|volume| &mut volume.volume_id);
        let volumes = driver.backend.volumes()?;
        return Ok(replace(own, volumes.iter().map(id_of_volume)));
    }
    if let Some(created) = answer.downcast_mut::<v1::CreateSnapshotResponse>() {
        let own = created.snapshot.as_mut().map(|snapshot| &mut snapshot.snapshot_id);
        let snapshots = driver.backend.snapshots()?;
        return Ok(replace(own, snapshots.iter().map(id_of_snapshot)));
    }
    Ok(false)
}

fn id_of_volume(volume: &Volume) -> &str {
    &volume.meta().volume_id
}

fn id_of_snapshot(snapshot: &Snapshot) -> &str {
    &snapshot.meta().snapshot_id
}

/// Replaces `own` by another one of `all`. False if there is no other.
fn replace<'a>(own: Option<&mut String>, mut all: impl Iterator<Item = &'a str>) -> bool {
    let Some(own) = own else { return false };
    let Some(other) = all.find(|id| id != own) else { return false };
    other.clone_into(own);
    true
}

/// Changes the token of the next page. False if the answer is no list.
fn change_token(answer: &mut dyn Any, change: impl FnOnce(&mut String)) -> bool {
    if let Some(list) = answer.downcast_mut::<v1::ListVolumesResponse>() {
        change(&mut list.next_token);
        return true;
    }
    if let Some(list) = answer.downcast_mut::<v1::ListSnapshotsResponse>() {
        change(&mut list.next_token);
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_to_be_added_is_less_and_more_than_before() {
        for (before, required, less) in [
            (0, 16 << 20, 8 << 20),
            (0, 1000, 500),
            (4096, 12_288, 8192),
            (4096, 8192, 6144),
            (100, 200, 150),
        ] {
            let mut range = v1::CapacityRange { required_bytes: required, limit_bytes: 0 };
            assert!(require_less(Some(&mut range), before));
            assert_eq!(range.required_bytes, less, "{before} {required}");
        }
        let mut range = v1::CapacityRange { required_bytes: 5, limit_bytes: 0 };
        assert!(!require_less(Some(&mut range), 5) && !require_less(None, 0));
    }
}
