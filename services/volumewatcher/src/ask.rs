//! The request to the claim service: it reports the result of the last call, and asks for the next
//! one.
//!
//! **Promises** that a claim service of an older version, which does not know `work.checkpoint`,
//! gets the older requests. Such a service gets failures in words only.

use berth_bus::{Bus, Call as BusCall, RequestError};
use berth_contract::message::claim::{CallReport, Checkpoint};
use berth_contract::message::work::{
    StorageCheckpoint, StorageReport, WorkCheckpoint, WorkCheckpointed,
};
use berth_contract::verb;
use berth_domain::volume::CallOwner;
use berth_domain::{AllocId, Namespace, SnapshotId};

/// Sends the request once.
pub async fn ask_claim_service(
    bus: &Bus,
    namespace: &Namespace,
    question: &WorkCheckpoint,
    call: &BusCall,
) -> Result<WorkCheckpointed, RequestError> {
    match bus.ask_service::<verb::WorkCheckpoint>(namespace, question, call).await {
        // No service got it: every claim service is older, or this identity is.
        Err(RequestError::NoResponder { .. } | RequestError::NotAllowed { .. }) => {
            ask_older(bus, namespace, question, call).await
        }
        answer => answer,
    }
}

async fn ask_older(
    bus: &Bus,
    namespace: &Namespace,
    question: &WorkCheckpoint,
    call: &BusCall,
) -> Result<WorkCheckpointed, RequestError> {
    match &question.owner {
        CallOwner::Claim(alloc) => {
            let question = of_claim(question.clone(), alloc.clone());
            let answer = bus.ask_service::<verb::ClaimCheckpoint>(namespace, &question, call);
            let answer = answer.await?;
            Ok(WorkCheckpointed {
                pending: answer.state.is_some() || answer.call.is_some(),
                state: answer.state,
                call: answer.call.map(Into::into),
                next_try: answer.next_try,
            })
        }
        CallOwner::Volume => ask_of_storage(bus, namespace, question, None, call).await,
        CallOwner::Snapshot(id) => ask_of_storage(bus, namespace, question, Some(id), call).await,
    }
}

fn of_claim(question: WorkCheckpoint, alloc: AllocId) -> Checkpoint {
    let WorkCheckpoint { volume, worker, report, early, report_only, .. } = question;
    let report = report.map(|made| CallReport::new(made.attempt.clone(), made.into_outcome()));
    Checkpoint { alloc, volume, worker, report, early, report_only }
}

async fn ask_of_storage(
    bus: &Bus,
    namespace: &Namespace,
    question: &WorkCheckpoint,
    snapshot: Option<&SnapshotId>,
    call: &BusCall,
) -> Result<WorkCheckpointed, RequestError> {
    let WorkCheckpoint { volume, worker, report, early, report_only, .. } = question.clone();
    let report = report.map(|made| StorageReport::new(made.attempt.clone(), made.into_outcome()));
    let snapshot = snapshot.cloned();
    let question = StorageCheckpoint { volume, snapshot, worker, report, early, report_only };
    let answer = bus.ask_service::<verb::VolumeCheckpoint>(namespace, &question, call).await?;
    Ok(WorkCheckpointed {
        pending: answer.pending,
        state: None,
        call: answer.call.map(Into::into),
        next_try: answer.next_try,
    })
}
