//! `work.checkpoint` of a volume or a snapshot: it goes on in recorded steps, as a release does.
//!
//! **Owns** the turn of a watcher: the outcome of its last call is stored, and then the next call,
//! before the watcher gets it to make it (rule 2).
//!
//! **Promises** that an outcome of an old attempt changes nothing (rule 7), that a group goes on as
//! one, and that who gets no call learns when to ask again.
//!
//! **Never** decides: the domain does, on what is stored.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::work::{WorkCheckpoint, WorkCheckpointed};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::volume::{Begin, CallOwner, Command, Outcome, Refusal, Volume};
use berth_domain::{Namespace, NodeId, SecretsId, SnapshotId, Timestamp, VolumeKey};
use berth_service::clock;
use berth_service::projection::Volumes;

use super::group::{GroupCommitted, check_members, members_of, transact_members};
use super::snapshot_id::check_ids;
use super::{is_gone, remove_secrets};
use crate::secrets;
use crate::state::State;
use crate::transact::TransactError;

/// When the watcher asks again for a volume whose controller no agent reports.
const CONTROLLER_AWAITED: Duration = Duration::from_secs(1);
/// When the watcher asks again for the volume of a run that is over and that something still needs.
const KEPT_INTERVAL: Duration = Duration::from_secs(10);
const STEP: &str = verb::WorkCheckpoint::STEP;

/// Records the outcome of a worker's call, and returns the next call.
pub async fn checkpoint(
    state: &State,
    namespace: Namespace,
    snapshot: Option<&SnapshotId>,
    request: WorkCheckpoint,
    trace: TraceContext,
) -> Result<WorkCheckpointed, Problem> {
    let volume = VolumeKey::new(namespace, request.volume.clone());
    let fail = |(volume, error): (VolumeKey, TransactError)| state.problem(error, STEP, &volume);
    state.check_readable(&volume).map_err(|error| fail((volume.clone(), error)))?;
    let members = match snapshot {
        Some(id) => members_of(state, &volume, id),
        None => vec![volume.clone()],
    };
    let secrets = named_secrets(state, &volume, snapshot);
    if let Some(report) = request.report.clone() {
        let attempt = report.attempt.clone();
        let mut outcome = report.into_outcome();
        if let Some(id) = snapshot {
            let checked = check_ids(state, &members, id, outcome).await;
            outcome = checked.map_err(|error| fail((volume.clone(), error)))?;
        }
        let settled = settle(state, &members, snapshot, &attempt, &outcome, trace).await;
        match settled {
            // An answer of an old attempt changes nothing (safety rule 7).
            Ok(_) | Err((_, TransactError::Refused(Refusal::StaleAttempt))) => {}
            Err(error) => return Err(fail(error)),
        }
        remove_secrets(state, &volume, secrets.as_ref(), trace).await;
    }
    if request.report_only {
        return Ok(show(state, &volume, snapshot, None));
    }
    let judged = judge_run(state, &volume, trace).await?;
    if judged.is_some() || needs_unmounted(state, &volume, snapshot) {
        state.catch_up_with_nodes().await.map_err(|error| fail((volume.clone(), error)))?;
    }
    let drive = |_: &VolumeKey, now: &Volume| {
        check_members(now, snapshot, &members)?;
        // What was read of the run says nothing of a volume that was made since.
        let made = now.spec.as_ref().map(|spec| spec.create_index);
        let wanted = judged.is_none_or(|over| made != Some(over));
        Ok(Command::Begin(Begin {
            owner: CallOwner::of_storage(snapshot.cloned()),
            worker: request.worker.clone(),
            wanted,
            early: request.early,
            proven: None,
            executor: executor_of(state, &members, now, snapshot)?,
        }))
    };
    match transact_members(state, &members, trace, None, drive).await {
        Ok(GroupCommitted { call: Some((leader, attempt, revision)), .. }) => {
            let call = state.storage_call(&leader, snapshot, &attempt, revision);
            let call = call.map(Into::into);
            Ok(WorkCheckpointed { pending: true, call, ..WorkCheckpointed::default() })
        }
        Ok(_) => {
            remove_secrets(state, &volume, secrets.as_ref(), trace).await;
            Ok(show(state, &volume, snapshot, None))
        }
        Err((_, TransactError::Refused(Refusal::OperationNotDue { next_try }))) => {
            Ok(show(state, &volume, snapshot, next_try))
        }
        // It is not on the record: the watcher asks again as soon as its node may be back.
        Err((_, TransactError::Problem(problem))) if problem.code == Code::NotDue => {
            Ok(show(state, &volume, snapshot, Some(clock::now().after(CONTROLLER_AWAITED))))
        }
        // The volume of a run that is over is still needed.
        Err((_, TransactError::Refused(refusal))) if is_kept(&refusal) => {
            tracing::info!(%volume, %refusal, trace = trace.trace_id(), "not deleted yet");
            let next_try = Some(clock::now().after(KEPT_INTERVAL));
            Ok(WorkCheckpointed { pending: true, next_try, ..WorkCheckpointed::default() })
        }
        Err((_, TransactError::Refused(refusal))) if is_gone(&refusal) => {
            Ok(WorkCheckpointed::default())
        }
        Err(error) => Err(fail(error)),
    }
}

/// The node whose controller has to get the call. That of a group is made where its leader is.
fn executor_of(
    state: &State,
    members: &[VolumeKey],
    now: &Volume,
    snapshot: Option<&SnapshotId>,
) -> Result<Option<NodeId>, Problem> {
    match members {
        [leader, _, ..] => state.volumes.mirror.read(|volumes| {
            let leader = volumes.get(leader).map_or(now, |subtree| &subtree.volume);
            state.storage_executor(leader, snapshot)
        }),
        _ => state.storage_executor(now, snapshot),
    }
}

async fn settle(
    state: &State,
    members: &[VolumeKey],
    snapshot: Option<&SnapshotId>,
    attempt: &berth_domain::AttemptId,
    outcome: &Outcome,
    trace: TraceContext,
) -> Result<GroupCommitted, (VolumeKey, TransactError)> {
    let command = |_: &VolumeKey, now: &Volume| {
        check_members(now, snapshot, members)?;
        Ok(Command::Answer {
            owner: CallOwner::of_storage(snapshot.cloned()),
            attempt: attempt.clone(),
            outcome: outcome.clone(),
            worker: None,
        })
    };
    transact_members(state, members, trace, None, command).await
}

/// The volume as it was made for a run that is over; none if the run goes on, or if it was made for
/// no run.
async fn judge_run(
    state: &State,
    volume: &VolumeKey,
    trace: TraceContext,
) -> Result<Option<u64>, Problem> {
    let found = state.volumes.mirror.read(|volumes| {
        let spec = volumes.get(volume)?.volume.spec.as_ref()?;
        Some((spec.create_index, spec.provision()?.for_alloc.clone()?))
    });
    let Some((made, alloc)) = found else { return Ok(None) };
    let record = state.read_alloc_surely(&volume.namespace, &alloc, STEP, trace).await?;
    let is_wanted = match record {
        Some(alloc) => !alloc.state.is_terminal(),
        // The alloc may be about to be registered.
        None => !state.is_older_than_registration(volume),
    };
    Ok((!is_wanted).then_some(made))
}

/// Whether the next call must not be made while the volume may be mounted.
fn needs_unmounted(state: &State, volume: &VolumeKey, snapshot: Option<&SnapshotId>) -> bool {
    let operation = |volumes: &Volumes| {
        let operation = volumes.get(volume)?.volume.spec.as_ref()?.operation()?;
        Some(operation.needs_unmounted())
    };
    snapshot.is_none() && state.volumes.mirror.read(operation).unwrap_or(false)
}

fn named_secrets(
    state: &State,
    volume: &VolumeKey,
    snapshot: Option<&SnapshotId>,
) -> Option<SecretsId> {
    match snapshot {
        None => secrets::current_secrets(state, volume),
        Some(id) => state
            .volumes
            .mirror
            .read(|volumes| volumes.get(volume)?.volume.snapshots.get(id)?.secrets.clone()),
    }
}

fn is_kept(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::BeingCopied { .. }
            | Refusal::SnapshotUnfinished { .. }
            | Refusal::RegisteredTwice { .. }
            | Refusal::ClaimsLive { .. }
            | Refusal::MayBeMounted { .. }
    )
}

/// What is still to be done, without a call.
fn show(
    state: &State,
    volume: &VolumeKey,
    snapshot: Option<&SnapshotId>,
    next_try: Option<Timestamp>,
) -> WorkCheckpointed {
    let progress = state.volumes.mirror.read(|volumes| {
        let now = &volumes.get(volume)?.volume;
        match snapshot {
            Some(id) => {
                let snapshot = now.snapshots.get(id)?;
                snapshot.call().map(|_| snapshot.progress.calls.next_try)
            }
            None => {
                now.spec.as_ref()?.operation().map(|operation| operation.progress.calls.next_try)
            }
        }
    });
    WorkCheckpointed {
        pending: progress.is_some(),
        next_try: next_try.or(progress.flatten()),
        ..WorkCheckpointed::default()
    }
}
