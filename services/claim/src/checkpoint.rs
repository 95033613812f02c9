//! `claim.release`, and `work.checkpoint` of a claim: a claim is released in recorded steps.
//!
//! A volumewatcher repeats one loop: it reports its last call, gets the next one, makes it.

use berth_contract::message::call::Call;
use berth_contract::message::claim::{Release, Released};
use berth_contract::message::work::{WorkCheckpoint, WorkCheckpointed};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::proof::Proven;
use berth_domain::volume::{
    Begin, CallOwner, Claim, Command, Refusal, State as ClaimState, Volume, Write,
};
use berth_domain::{AllocId, Namespace, NodeId, VolumeKey, WorkerId};
use tokio::time::Instant;

use crate::locate::store_missing_node;
use crate::state::State;
use crate::transact::{Committed, TransactError};
use crate::{deregister, plan, proof};

const STEP: &str = verb::WorkCheckpoint::STEP;

/// Records that a claim is no longer wanted. Once this is answered, the release will happen.
pub async fn release(
    state: &State,
    namespace: Namespace,
    request: Release,
    sender: Option<NodeId>,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Released, Problem> {
    let volume = VolumeKey::new(namespace, request.volume);
    let reason = match request.reason.as_str() {
        "" => "released",
        reason => reason,
    };
    let command = |now: &Volume| {
        let (alloc, reason) = (request.alloc.clone(), reason.to_owned());
        let is_of = |node: &NodeId| now.claims.get(&alloc).is_none_or(|claim| claim.node == *node);
        // An agent gives up what it took for an alloc of its own node. A claim on another node is
        // answered as one that is gone: no claim has this epoch (G1).
        let epoch = if sender.as_ref().is_none_or(is_of) { request.epoch } else { Some(0) };
        Ok(Command::Release { alloc, epoch, reason })
    };
    match state.transact_until(&volume, trace, deadline, command).await {
        Ok(_) => Ok(Released { state: show_claim(state, &volume, &request.alloc).state }),
        // A claim that is gone is released, so the request may be repeated.
        Err(TransactError::Refused(Refusal::NoSuchClaim(_))) => Ok(Released { state: None }),
        Err(error) => Err(state.problem(error, "claim.release", &volume)),
    }
}

/// Records the outcome of a worker's call, and returns the next call.
pub async fn checkpoint(
    state: &State,
    namespace: Namespace,
    alloc: AllocId,
    request: WorkCheckpoint,
    trace: TraceContext,
    deadline: Instant,
) -> Result<WorkCheckpointed, Problem> {
    let volume = VolumeKey::new(namespace, request.volume);
    let fail = |error: TransactError| state.problem(error, STEP, &volume);
    state.check_readable(&volume).map_err(fail)?;
    store_missing_node(state, &volume, &alloc, STEP, trace).await?;
    if let Some(report) = request.report {
        let reported = Command::Answer {
            owner: CallOwner::Claim(alloc.clone()),
            attempt: report.attempt.clone(),
            outcome: report.into_outcome(),
            worker: (!request.report_only).then(|| request.worker.clone()),
        };
        match state.transact(&volume, trace, |_| Ok(reported.clone())).await {
            // The write that ended one step also recorded the next attempt, if there is one.
            Ok(done) if done.step.call.is_some() || done.step.write.is_some() => {
                return Ok(finish(state, &volume, &alloc, done, trace).await);
            }
            // An answer of an old attempt changes nothing (safety rule 7). The worker gets the
            // present state.
            Ok(_) | Err(TransactError::Refused(Refusal::StaleAttempt)) => {}
            Err(error) => return Err(fail(error)),
        }
    }
    if request.report_only {
        return Ok(show_claim(state, &volume, &alloc));
    }
    let mut begin = NextCall {
        // The release of a claim goes on, wanted or not. For other claims the leader is asked.
        wanted: match show_claim(state, &volume, &alloc).state {
            Some(claim_state) if is_leaving(claim_state) => None,
            _ => Some(state.is_surely_wanted(&volume.namespace, &alloc, trace).await?),
        },
        proven: proof::proof_for_claim(state, &volume, &alloc).await?,
        alloc: &alloc,
        worker: &request.worker,
        early: request.early,
    };
    if begin.wanted == Some(true)
        && begin.proven.is_none()
        && is_attach_held(state, &volume, &alloc)
    {
        return Ok(show_claim(state, &volume, &alloc));
    }
    if let Some(proven) = &begin.proven {
        proof::end_alloc_by_proof(state, &volume.namespace, &alloc, proven, trace, deadline)
            .await?;
    }
    let mut done = state.transact(&volume, trace, |_| Ok(begin.command())).await;
    if begin.wanted.is_none()
        && let Err(TransactError::Refused(Refusal::NotDue { state: now, .. })) = &done
        && !is_leaving(*now)
    {
        // The mirror was behind: the claim is a new one, and may be wanted.
        begin.wanted = Some(state.is_surely_wanted(&volume.namespace, &alloc, trace).await?);
        done = state.transact(&volume, trace, |_| Ok(begin.command())).await;
    }
    match done {
        Ok(done) => Ok(finish(state, &volume, &alloc, done, trace).await),
        Err(TransactError::Refused(Refusal::NoSuchClaim(_))) => Ok(WorkCheckpointed::default()),
        Err(TransactError::Refused(Refusal::NotDue { state, next_try })) => {
            let state = Some(state);
            Ok(WorkCheckpointed { pending: true, state, next_try, ..WorkCheckpointed::default() })
        }
        Err(error) => Err(fail(error)),
    }
}

/// Whether the claim is to be attached, and the call would go beside a mount on another node that
/// no claim covers: after a restore, one that is younger than the backup.
fn is_attach_held(state: &State, volume: &VolumeKey, alloc: &AllocId) -> bool {
    let publishing = state.volumes.mirror.read(|volumes| {
        let claim = volumes.get(volume)?.volume.claims.get(alloc)?;
        (claim.state == ClaimState::Publishing).then(|| claim.node.clone())
    });
    let held = publishing.map(|node| state.check_mounts_elsewhere(volume, &node));
    let Some(Err(problem)) = held else { return false };
    tracing::debug!(%volume, %alloc, %problem, "the attach waits");
    true
}

/// A worker's request for the next call.
struct NextCall<'a> {
    alloc: &'a AllocId,
    worker: &'a WorkerId,
    /// None for a claim whose release goes on in any case.
    wanted: Option<bool>,
    early: bool,
    proven: Option<Proven>,
}

impl NextCall<'_> {
    fn command(&self) -> Command {
        Command::Begin(Begin {
            owner: CallOwner::Claim(self.alloc.clone()),
            worker: self.worker.clone(),
            // A claim of an alloc that may be live is not released.
            wanted: self.wanted.unwrap_or(true),
            early: self.early,
            proven: self.proven.clone(),
            executor: None,
        })
    }
}

fn is_leaving(state: ClaimState) -> bool {
    matches!(state, ClaimState::Unpublishing | ClaimState::NodeDetached)
}

/// The claim's state, without a call.
fn show_claim(state: &State, volume: &VolumeKey, alloc: &AllocId) -> WorkCheckpointed {
    state.volumes.mirror.read(|volumes| {
        let claim = volumes.get(volume).and_then(|subtree| subtree.volume.claims.get(alloc));
        answer(claim, None)
    })
}

fn answer(claim: Option<&Claim>, call: Option<Call>) -> WorkCheckpointed {
    WorkCheckpointed {
        pending: claim.is_some(),
        state: claim.map(|claim| claim.state),
        call,
        next_try: claim.and_then(|claim| claim.progress.next_try),
    }
}

async fn finish(
    state: &State,
    volume: &VolumeKey,
    alloc: &AllocId,
    done: Committed,
    trace: TraceContext,
) -> WorkCheckpointed {
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
            let call = state.with_controller(state.with_external_node(call), &subtree.volume);
            Some(call.into())
        });
        answer(claim, call)
    })
}
