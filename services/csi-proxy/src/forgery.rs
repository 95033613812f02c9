//! Wrong answers that need more than the answer.
//!
//! Owns: each [`WrongAnswer`] that changes a request before the driver gets it, calls the driver
//! once more, or puts tokens into lists that this proxy must recognise again. Promises: what such
//! an answer reports as done is done. Never: decides when; the fault file does.

use std::any::Any;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use berth_csi::rpc::Unary;
use berth_csi::{Rpc, v1};

use crate::faults::WrongAnswer;
use crate::log::CallEffect;
use crate::pass::{Carried, Driver, FailedCall, Verdict, pass_on};

/// The size of an image is a multiple of this.
const BLOCK_BYTES: i64 = 4096;
/// Prefix of a token that starts a list again.
const AGAIN: &str = "berth-again-";
/// Pages of a list that are read to find another id, at most.
const PAGES_MAX: usize = 100;

type Answered<R> = (Result<Carried<<R as Unary>::Response>, FailedCall>, bool);

/// Passes a request on so that its answer is wrong in this way. Returns whether it is wrong; false
/// also if another module has to make it wrong.
pub(crate) async fn pass_on_wrongly<S: Driver, R: Unary>(
    driver: &S,
    wrong: Option<WrongAnswer>,
    mut request: Carried<R>,
) -> Answered<R> {
    // Tokens are recognised even after the fault is gone.
    request.change(|request| begin_again(request));
    let is_less =
        wrong == Some(WrongAnswer::LessCapacity) && require_less_of(driver, &mut request).await;
    let mut answer = match pass_on(driver, &request).await {
        Ok(answer) => answer,
        Err(failed) => return (Err(failed), false),
    };
    let is_changed = match wrong {
        Some(WrongAnswer::OtherId) => {
            let is_renamed = request.change(|request| name_otherwise(request));
            if is_renamed {
                answer = match pass_on(driver, &request).await {
                    Ok(answer) => answer,
                    Err(failed) => return (Err(midway(failed)), false),
                };
            }
            is_renamed
        }
        Some(WrongAnswer::IdOfAnother) => {
            let other_ids = match R::RPC {
                Rpc::CreateVolume => volume_ids(driver, &request).await,
                Rpc::CreateSnapshot => snapshot_ids(driver, &request).await,
                _ => Vec::new(),
            };
            answer.change(|answer| take_id_of_another(answer, &other_ids))
        }
        Some(WrongAnswer::EndlessPages) => answer.change(|answer| {
            change_token(answer, |token| {
                if token.is_empty() {
                    *token = format!("{AGAIN}{}", now_us());
                }
            })
        }),
        Some(WrongAnswer::EndlessToken) => {
            answer.change(|answer| change_token(answer, |token| AGAIN.clone_into(token)))
        }
        _ => false,
    };
    (Ok(answer), is_less || is_changed)
}

/// The error of a call after an earlier call for the same request changed something.
fn midway(failed: FailedCall) -> FailedCall {
    let rule = failed.verdict.and_then(|verdict| verdict.rule);
    FailedCall { verdict: Some(Verdict { effect: CallEffect::Unknown, rule }), ..failed }
}

/// Removes a token of this proxy from a request for a list.
fn begin_again(request: &mut dyn Any) -> bool {
    let token = if let Some(list) = request.downcast_mut::<v1::ListVolumesRequest>() {
        &mut list.starting_token
    } else if let Some(list) = request.downcast_mut::<v1::ListSnapshotsRequest>() {
        &mut list.starting_token
    } else {
        return false;
    };
    let is_ours = token.starts_with(AGAIN);
    if is_ours {
        token.clear();
    }
    is_ours
}

/// Requires less of the driver than the caller did. False if the request requires no size.
async fn require_less_of<S: Driver, R: Unary>(driver: &S, request: &mut Carried<R>) -> bool {
    let before = match expanded(&request.message) {
        Some(id) => capacity(driver, &id, request).await.unwrap_or(i64::MAX),
        None => 0,
    };
    request.change(|request| {
        let request: &mut dyn Any = request;
        if let Some(create) = request.downcast_mut::<v1::CreateVolumeRequest>() {
            require_less(create.capacity_range.as_mut(), before)
        } else if let Some(expand) = request.downcast_mut::<v1::ControllerExpandVolumeRequest>() {
            require_less(expand.capacity_range.as_mut(), before)
        } else {
            false
        }
    })
}

/// Halves what is to be added to `before`, in whole blocks. False if nothing is added.
fn require_less(range: Option<&mut v1::CapacityRange>, before: i64) -> bool {
    let Some(range) = range.filter(|range| range.required_bytes > before) else { return false };
    // A driver may answer with a negative size.
    let before = before.max(0);
    let half = before + (range.required_bytes - before) / 2;
    let whole = half / BLOCK_BYTES * BLOCK_BYTES;
    range.required_bytes = if whole > before { whole } else { half };
    true
}

/// Gives the object to be made another name. False if the request makes nothing.
fn name_otherwise(request: &mut dyn Any) -> bool {
    let name = if let Some(create) = request.downcast_mut::<v1::CreateVolumeRequest>() {
        &mut create.name
    } else if let Some(cut) = request.downcast_mut::<v1::CreateSnapshotRequest>() {
        &mut cut.name
    } else {
        return false;
    };
    // Unique, also if other proxies do the same.
    write!(name, "-{}-{}", std::process::id(), now_us()).is_ok()
}

/// The volume that a request expands.
fn expanded(request: &dyn Any) -> Option<String> {
    let expand = request.downcast_ref::<v1::ControllerExpandVolumeRequest>()?;
    Some(expand.volume_id.clone())
}

fn take_id_of_another(answer: &mut dyn Any, others: &[String]) -> bool {
    let own = if let Some(created) = answer.downcast_mut::<v1::CreateVolumeResponse>() {
        created.volume.as_mut().map(|volume| &mut volume.volume_id)
    } else if let Some(created) = answer.downcast_mut::<v1::CreateSnapshotResponse>() {
        created.snapshot.as_mut().map(|snapshot| &mut snapshot.snapshot_id)
    } else {
        None
    };
    let Some(own) = own else { return false };
    let Some(other_id) = others.iter().find(|id| *id != own) else { return false };
    other_id.clone_into(own);
    true
}

/// Changes the token of the next page. False if the answer is no list, or did not change.
fn change_token(answer: &mut dyn Any, change: impl FnOnce(&mut String)) -> bool {
    let token = if let Some(list) = answer.downcast_mut::<v1::ListVolumesResponse>() {
        &mut list.next_token
    } else if let Some(list) = answer.downcast_mut::<v1::ListSnapshotsResponse>() {
        &mut list.next_token
    } else {
        return false;
    };
    change(token);
    true
}

async fn volume_ids<S: Driver, R: Unary>(driver: &S, by: &Carried<R>) -> Vec<String> {
    volumes(driver, by).await.into_iter().map(|volume| volume.volume_id).collect()
}

/// The ids of the driver's snapshots; none if the driver does not list them.
async fn snapshot_ids<S: Driver, R: Unary>(driver: &S, by: &Carried<R>) -> Vec<String> {
    let list = |starting_token| v1::ListSnapshotsRequest { starting_token, ..Default::default() };
    let (mut ids, mut token) = (Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let Ok(page) = pass_on(driver, &beside(list(token), by)).await else { break };
        let entries = page.message.entries.into_iter().filter_map(|entry| entry.snapshot);
        ids.extend(entries.map(|snapshot| snapshot.snapshot_id));
        token = page.message.next_token;
        if token.is_empty() {
            break;
        }
    }
    ids
}

async fn capacity<S: Driver, R: Unary>(driver: &S, id: &str, by: &Carried<R>) -> Option<i64> {
    let volumes = volumes(driver, by).await;
    volumes.iter().find(|volume| volume.volume_id == id).map(|volume| volume.capacity_bytes)
}

/// The driver's volumes; none if the driver does not list them.
async fn volumes<S: Driver, R: Unary>(driver: &S, by: &Carried<R>) -> Vec<v1::Volume> {
    let list = |starting_token| v1::ListVolumesRequest { starting_token, ..Default::default() };
    let (mut volumes, mut token) = (Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let Ok(page) = pass_on(driver, &beside(list(token), by)).await else { break };
        volumes.extend(page.message.entries.into_iter().filter_map(|entry| entry.volume));
        token = page.message.next_token;
        if token.is_empty() {
            break;
        }
    }
    volumes
}

/// A request of this proxy's own, with the caller's metadata.
fn beside<A: Unary, R: Unary>(request: A, by: &Carried<R>) -> Carried<A> {
    Carried { metadata: by.metadata.clone(), ..Carried::encode(request) }
}

fn now_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
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
            (i64::MIN, i64::MAX, i64::MAX / 2 / BLOCK_BYTES * BLOCK_BYTES),
        ] {
            let mut range = v1::CapacityRange { required_bytes: required, limit_bytes: 0 };
            assert!(require_less(Some(&mut range), before));
            assert_eq!(range.required_bytes, less, "{before} {required}");
        }
        let mut range = v1::CapacityRange { required_bytes: 5, limit_bytes: 0 };
        assert!(!require_less(Some(&mut range), 5) && !require_less(None, 0));
    }
}
