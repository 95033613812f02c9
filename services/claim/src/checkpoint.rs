//! `claim.release` and `claim.checkpoint`: how a claim goes, one recorded step at a time.

use berth_contract::message::claim::{Checkpoint, Checkpointed, Release, Released};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::proof::Proven;
use berth_domain::volume::{Command, Refusal, State as ClaimState, Write};
use berth_domain::{AllocId, Namespace, VolumeKey, WorkerId};
use tokio::time::Instant;

use crate::locate::locate;
use crate::state::State;
use crate::transact::{Committed, TransactError};
use crate::{deregister, plan, proof};

/// Marks a claim as no longer wanted. When this is answered, the release will happen.
pub async fn release(
    state: &State,
    namespace: Namespace,
    request: Release,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Released, Problem> {
    let volume = VolumeKey::new(namespace, request.volume);
    let reason = match request.reason.as_str() {
        "" => "released",
        reason => reason,
    };
    let command = Command::Release {
        alloc: request.alloc.clone(),
        epoch: request.epoch,
        reason: reason.to_owned(),
    };
    match state.transact_until(&volume, trace, deadline, |_| Ok(command.clone())).await {
        Ok(_) => Ok(Released { state: standing(state, &volume, &request.alloc).state }),
        // What is gone is released: asking again is harmless.
        Err(TransactError::Refused(Refusal::NoSuchClaim(_))) => Ok(Released { state: None }),
        Err(error) => Err(state.problem(error, "claim.release", &volume)),
    }
}

/// Records what came of a worker's call, and gives it the next.
pub async fn checkpoint(
    state: &State,
    namespace: Namespace,
    request: Checkpoint,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Checkpointed, Problem> {
    let volume = VolumeKey::new(namespace, request.volume);
    let alloc = request.alloc;
    let fail = |error: TransactError| state.problem(error, "claim.checkpoint", &volume);
    state.check_readable(&volume).map_err(fail)?;
    locate(state, &volume, &alloc, "claim.checkpoint", trace).await?;
    if let Some(report) = request.report {
        let answer = Command::Answer {
            alloc: alloc.clone(),
            attempt: report.attempt.clone(),
            outcome: report.into_outcome(),
            worker: (!request.report_only).then(|| request.worker.clone()),
        };
        match state.transact(&volume, trace, |_| Ok(answer.clone())).await {
            // The write that ended one step named the next attempt too, if there is one.
            Ok(done) if done.step.call.is_some() || done.step.write.is_some() => {
                return Ok(checkpointed(state, &volume, &alloc, done, trace).await);
            }
            // An old answer changes nothing (safety rule 7); the worker learns what is so now.
            Ok(_) | Err(TransactError::Refused(Refusal::StaleAttempt)) => {}
            Err(error) => return Err(fail(error)),
        }
    }
    if request.report_only {
        return Ok(standing(state, &volume, &alloc));
    }
    let mut begin = Begin {
        // A claim that is on its way out goes, wanted or not; else the leader is asked.
        wanted: match standing(state, &volume, &alloc).state {
            Some(stands) if is_leaving(stands) => None,
            _ => Some(state.is_surely_wanted(&volume.namespace, &alloc, trace).await?),
        },
        proven: proof::proof_for_claim(state, &volume, &alloc).await?,
        alloc: &alloc,
        worker: &request.worker,
        early: request.early,
    };
    if let Some(proven) = &begin.proven {
        proof::end_alloc_by_proof(state, &volume.namespace, &alloc, proven, trace, deadline)
            .await?;
    }
    let mut done = state.transact(&volume, trace, |_| Ok(begin.command())).await;
    let unsure = |refusal: &Refusal| match refusal {
        Refusal::NotDue { state, .. } => !is_leaving(*state),
        _ => false,
    };
    if begin.wanted.is_none()
        && matches!(&done, Err(TransactError::Refused(refusal)) if unsure(refusal))
    {
        // It is another claim than was known here.
        begin.wanted = Some(state.is_surely_wanted(&volume.namespace, &alloc, trace).await?);
        done = state.transact(&volume, trace, |_| Ok(begin.command())).await;
    }
    match done {
        Ok(done) => Ok(checkpointed(state, &volume, &alloc, done, trace).await),
        Err(TransactError::Refused(Refusal::NoSuchClaim(_))) => {
            Ok(Checkpointed { state: None, call: None, next_try: None })
        }
        Err(TransactError::Refused(Refusal::NotDue { state, next_try })) => {
            Ok(Checkpointed { state: Some(state), call: None, next_try })
        }
        Err(error) => Err(fail(error)),
    }
}

/// What a worker asks for.
struct Begin<'a> {
    alloc: &'a AllocId,
    worker: &'a WorkerId,
    /// None while it does not matter.
    wanted: Option<bool>,
    early: bool,
    proven: Option<Proven>,
}

impl Begin<'_> {
    fn command(&self) -> Command {
        Command::Begin {
            alloc: self.alloc.clone(),
            worker: self.worker.clone(),
            // Nothing is taken from an alloc that may be there.
            wanted: self.wanted.unwrap_or(true),
            early: self.early,
            proven: self.proven.clone(),
        }
    }
}

fn is_leaving(state: ClaimState) -> bool {
    matches!(state, ClaimState::Unpublishing | ClaimState::NodeDetached)
}

/// Where the claim stands, with nothing to call.
fn standing(state: &State, volume: &VolumeKey, alloc: &AllocId) -> Checkpointed {
    state.volumes.mirror.read(|volumes| {
        let claim = volumes.get(volume).and_then(|subtree| subtree.volume.claims.get(alloc));
        Checkpointed {
            state: claim.map(|claim| claim.state),
            call: None,
            next_try: claim.and_then(|claim| claim.next_try),
        }
    })
}

async fn checkpointed(
    state: &State,
    volume: &VolumeKey,
    alloc: &AllocId,
    done: Committed,
    trace: TraceContext,
) -> Checkpointed {
    if matches!(done.step.write, Some(Write::DeleteClaim(_))) {
        deregister::finish_closing(state, volume, trace).await;
    }
    let namespace = &volume.namespace;
    let record =
        state.allocs.mirror.read(|allocs| allocs.get(namespace, alloc).map(|a| a.1.clone()));
    state.volumes.mirror.read(|volumes| {
        let subtree = volumes.get(volume);
        let claim = subtree.and_then(|subtree| subtree.volume.claims.get(alloc));
        let call = done.step.call.as_ref().zip(subtree).and_then(|(attempt, subtree)| {
            let call = plan::call(volume, subtree, alloc, record.as_ref(), attempt, done.revision)?;
            Some(state.with_controller(state.with_external_node(call), &subtree.volume))
        });
        Checkpointed {
            state: claim.map(|claim| claim.state),
            call,
            next_try: claim.and_then(|claim| claim.next_try),
        }
    })
}
