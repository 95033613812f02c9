//! `work.checkpoint`, and the two verbs that an older volumewatcher sends instead.
//!
//! **Promises** that all three have the same effect.

mod owner;
mod turn;

use berth_contract::message::call::Call;
use berth_contract::message::claim::{Checkpoint, Checkpointed};
use berth_contract::message::work::{
    StorageCheckpoint, StorageCheckpointed, WorkCheckpoint, WorkCheckpointed, WorkReport,
};
use berth_contract::problem::Problem;
use berth_domain::Namespace;
use berth_domain::volume::CallOwner;

use crate::caller::Caller;
use crate::store::state::State;
use turn::Turn;

/// Records the outcome of a worker's call, and returns the next call.
pub async fn work_checkpoint(
    state: &State,
    namespace: &Namespace,
    request: WorkCheckpoint,
    caller: &Caller,
) -> Result<WorkCheckpointed, Problem> {
    let turn = Turn::new(state, namespace, &request, caller);
    turn.checkpoint(request.report, request.report_only, request.early).await
}

/// `claim.checkpoint`.
pub async fn claim_checkpoint(
    state: &State,
    namespace: &Namespace,
    older: Checkpoint,
    caller: &Caller,
) -> Result<Checkpointed, Problem> {
    let Checkpoint { alloc, volume, worker, report, early, report_only } = older;
    let report =
        report.map(|report| WorkReport::new(report.attempt.clone(), report.into_outcome()));
    let owner = CallOwner::Claim(alloc);
    let request = WorkCheckpoint { volume, owner, worker, report, early, report_only };
    let WorkCheckpointed { state, call, next_try, .. } =
        work_checkpoint(state, namespace, request, caller).await?;
    Ok(Checkpointed { state, call: call.and_then(Call::for_claim), next_try })
}

/// `volume.checkpoint`.
pub async fn volume_checkpoint(
    state: &State,
    namespace: &Namespace,
    older: StorageCheckpoint,
    caller: &Caller,
) -> Result<StorageCheckpointed, Problem> {
    let StorageCheckpoint { volume, snapshot, worker, report, early, report_only } = older;
    let report =
        report.map(|report| WorkReport::new(report.attempt.clone(), report.into_outcome()));
    let owner = CallOwner::of_storage(snapshot);
    let request = WorkCheckpoint { volume, owner, worker, report, early, report_only };
    let WorkCheckpointed { pending, call, next_try, .. } =
        work_checkpoint(state, namespace, request, caller).await?;
    let call = call.and_then(Call::for_storage);
    let trace = call.is_some().then_some(caller.trace);
    Ok(StorageCheckpointed { pending, call, next_try, trace })
}
