//! One turn of a worker: the outcome of its last call is stored, and then its next call, before the
//! worker gets that call (rule 2).
//!
//! **Owns** this order, for claims, for changes of a volume at its storage and for snapshots.
//!
//! **Promises** that an outcome of an old attempt changes nothing (safety rule 7), that a group
//! advances as one, and that a worker without a call learns when to ask again.
//!
//! **Never** decides: the domain does, on what is stored and on the [facts besides
//! it](super::owner).

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::call::Call;
use berth_contract::message::work::{WorkCheckpoint, WorkCheckpointed, WorkReport};
use berth_contract::problem::Problem;
use berth_domain::volume::{
    Attempt, Begin, CallOwner, Command, Outcome, Progress, Refusal, State as ClaimState, Volume,
};
use berth_domain::{Namespace, SecretsId, Timestamp, VolumeKey, WorkerId};
use berth_service::clock;

use super::owner::{KnownBeside, OwnerWork};
use crate::caller::Caller;
use crate::claim::locate::store_missing_node;
use crate::read::plan;
use crate::storage::{self, GroupCommitted};
use crate::store::secrets;
use crate::store::state::State;
use crate::store::transact::TransactError;
use crate::volume::deregister;

/// When the worker asks again for a volume whose controller no agent reports.
const CONTROLLER_AWAITED: Duration = Duration::from_secs(1);
/// When the worker asks again for the volume of a run that is over, if something still needs the
/// volume.
const KEPT_INTERVAL: Duration = Duration::from_secs(10);

/// A worker that makes calls for one owner.
pub(super) struct Turn<'a> {
    work: OwnerWork<'a>,
    worker: WorkerId,
}

impl<'a> Turn<'a> {
    /// The turn of the worker that sent this request.
    pub fn new(
        state: &'a State,
        namespace: &Namespace,
        request: &WorkCheckpoint,
        caller: &Caller,
    ) -> Self {
        let volume = VolumeKey::new(namespace.clone(), request.volume.clone());
        let members = match &request.owner {
            CallOwner::Snapshot(id) => storage::members_of(state, &volume, id),
            CallOwner::Claim(_) | CallOwner::Volume => vec![volume.clone()],
        };
        let owner = request.owner.clone();
        let (trace, deadline) = (caller.trace, caller.deadline);
        let work = OwnerWork { state, volume, owner, members, trace, deadline };
        Self { work, worker: request.worker.clone() }
    }

    /// Records the outcome of the worker's call, and returns the next call.
    pub async fn checkpoint(
        &self,
        report: Option<WorkReport>,
        report_only: bool,
        early: bool,
    ) -> Result<WorkCheckpointed, Problem> {
        let readable = self.work.state.check_readable(&self.work.volume);
        readable.map_err(|error| self.work.problem((self.work.volume.clone(), error)))?;
        if let CallOwner::Claim(alloc) = &self.work.owner {
            store_missing_node(self.work.state, &self.work.volume, alloc, self.work.trace).await?;
        }
        let is_claim = matches!(self.work.owner, CallOwner::Claim(_));
        let secrets = self.named_secrets();
        if let Some(report) = report {
            let recorded = self.record(report, !report_only).await?;
            self.clean_up(&recorded, secrets.as_ref()).await;
            // The write that ends a claim's call also begins the next one, if it is due.
            if recorded.call.is_some() || (is_claim && recorded.written) {
                return Ok(self.progress(recorded.call, None));
            }
        }
        if report_only {
            return Ok(self.progress(None, None));
        }
        let Some(beside) = self.work.look_beside().await? else {
            return Ok(self.progress(None, None));
        };
        let mut begun = self.begin(&beside, early).await;
        if beside.wanted.is_none()
            && let Err((_, TransactError::Refused(Refusal::NotDue { .. }))) = &begun
            && !self.work.is_leaving()
        {
            // The mirror lagged: the claim is a new one, and may be wanted.
            let wanted = Some(self.work.is_surely_wanted().await?);
            begun = self.begin(&KnownBeside { wanted, ..beside }, early).await;
        }
        match begun {
            Ok(begun) => {
                self.clean_up(&begun, secrets.as_ref()).await;
                Ok(self.progress(begun.call, None))
            }
            Err(error) => self.wait_or_fail(error),
        }
    }

    /// Stores the outcome. A claim's next call begins with it, if it may.
    async fn record(&self, report: WorkReport, begins: bool) -> Result<GroupCommitted, Problem> {
        let attempt = report.attempt.clone();
        let mut outcome = report.into_outcome();
        if let CallOwner::Snapshot(id) = &self.work.owner {
            let checked =
                storage::check_ids(self.work.state, &self.work.members, id, outcome).await;
            outcome =
                checked.map_err(|error| self.work.problem((self.work.volume.clone(), error)))?;
        }
        let command = |_: &Volume| {
            Ok(Command::Answer {
                owner: self.work.owner.clone(),
                attempt: attempt.clone(),
                outcome: outcome.clone(),
                worker: begins.then(|| self.worker.clone()),
            })
        };
        let recorded = self.transact(command).await;
        if self.work.owner == CallOwner::Volume && matches!(outcome, Outcome::Exhausted(_)) {
            self.work.state.doubt_room(&self.work.volume);
        }
        match recorded {
            // An answer of an old attempt changes nothing. The worker gets the present state.
            Err((_, TransactError::Refused(Refusal::StaleAttempt))) => {
                Ok(GroupCommitted::default())
            }
            recorded => recorded.map_err(|error| self.work.problem(error)),
        }
    }

    async fn begin(
        &self,
        beside: &KnownBeside,
        early: bool,
    ) -> Result<GroupCommitted, (VolumeKey, TransactError)> {
        let command = |now: &Volume| {
            Ok(Command::Begin(Begin {
                owner: self.work.owner.clone(),
                worker: self.worker.clone(),
                wanted: beside.is_wanted(now),
                early,
                proven: beside.proven.clone(),
                executor: self.work.executor(now)?,
            }))
        };
        self.transact(command).await
    }

    /// Decides the command on each volume of the group, and stores all writes together.
    async fn transact(
        &self,
        command: impl Fn(&Volume) -> Result<Command, Problem>,
    ) -> Result<GroupCommitted, (VolumeKey, TransactError)> {
        let OwnerWork { state, members, trace, .. } = &self.work;
        let command = |_: &VolumeKey, now: &Volume| {
            storage::check_members(now, self.work.snapshot(), members)?;
            command(now)
        };
        storage::transact_members(state, members, *trace, None, command).await
    }

    /// The answer to a worker whose call does not begin.
    fn wait_or_fail(&self, error: (VolumeKey, TransactError)) -> Result<WorkCheckpointed, Problem> {
        match error {
            (_, TransactError::Refused(Refusal::NotDue { next_try })) => {
                Ok(self.progress(None, next_try))
            }
            // This is not on the record: the worker asks again as soon as the node may be back.
            (_, TransactError::Problem(problem)) if problem.code == Code::NotDue => {
                Ok(self.progress(None, Some(clock::now().after(CONTROLLER_AWAITED))))
            }
            // Something still needs the volume of a run that is over.
            (_, TransactError::Refused(refusal)) if is_kept(&refusal) => {
                let trace = self.work.trace.trace_id();
                tracing::info!(volume = %self.work.volume, %refusal, trace, "not deleted yet");
                let next_try = Some(clock::now().after(KEPT_INTERVAL));
                Ok(WorkCheckpointed { pending: true, next_try, ..WorkCheckpointed::default() })
            }
            (_, TransactError::Refused(refusal)) if is_gone(&refusal) => {
                Ok(WorkCheckpointed::default())
            }
            error => Err(self.work.problem(error)),
        }
    }

    /// After a write: the volume may have been waiting for its last claim, and nothing may need its
    /// secrets any more.
    async fn clean_up(&self, done: &GroupCommitted, secrets: Option<&SecretsId>) {
        match &self.work.owner {
            CallOwner::Claim(_) if done.written => {
                deregister::finish_closing(self.work.state, &self.work.volume, self.work.trace)
                    .await;
            }
            CallOwner::Claim(_) => {}
            CallOwner::Volume | CallOwner::Snapshot(_) => {
                storage::remove_secrets(
                    self.work.state,
                    &self.work.volume,
                    secrets,
                    self.work.trace,
                )
                .await;
            }
        }
    }

    /// The present state of the work, and the call of an attempt that was stored.
    fn progress(
        &self,
        begun: Option<(VolumeKey, Attempt, u64)>,
        next_try: Option<Timestamp>,
    ) -> WorkCheckpointed {
        let call = begun.and_then(|(leader, attempt, at)| self.call(&leader, &attempt, at));
        let (state, calls) = self.work.state.volumes.mirror.read(|volumes| {
            let now = volumes.get(&self.work.volume).map(|subtree| &subtree.volume);
            let read = |now: &Volume| read_progress(now, &self.work.owner);
            now.and_then(read).map_or((None, None), |(state, calls)| (state, Some(calls)))
        });
        let next_try = next_try.or(ahead(calls.as_ref(), clock::now()));
        WorkCheckpointed { pending: call.is_some() || calls.is_some(), state, next_try, call }
    }

    /// The call of an attempt; none if the attempt was replaced.
    fn call(&self, leader: &VolumeKey, attempt: &Attempt, revision: u64) -> Option<Call> {
        let CallOwner::Claim(alloc) = &self.work.owner else {
            let call =
                self.work.state.storage_call(leader, self.work.snapshot(), attempt, revision);
            return call.map(Into::into);
        };
        let state = self.work.state;
        let namespace = &self.work.volume.namespace;
        let record =
            state.allocs.mirror.read(|all| all.get(namespace, alloc).map(|entry| entry.1.clone()));
        state.volumes.mirror.read(|volumes| {
            let subtree = volumes.get(&self.work.volume)?;
            let record = record.as_ref();
            let call = plan::call(&self.work.volume, subtree, alloc, record, attempt, revision)?;
            let call = state.with_controller(state.with_external_node(call), &subtree.volume);
            Some(call.into())
        })
    }

    /// The secrets of the owner's calls.
    fn named_secrets(&self) -> Option<SecretsId> {
        match &self.work.owner {
            CallOwner::Claim(_) => None,
            CallOwner::Volume => secrets::current_secrets(self.work.state, &self.work.volume),
            CallOwner::Snapshot(id) => self.work.state.volumes.mirror.read(|volumes| {
                volumes.get(&self.work.volume)?.volume.snapshots.get(id)?.secrets.clone()
            }),
        }
    }
}

/// When the next call is due, if that time is ahead. A call that is due, and does not begin, waits
/// for something else: the worker would ask again and again.
fn ahead(calls: Option<&Progress>, now: Timestamp) -> Option<Timestamp> {
    calls?.next_try.filter(|next_try| *next_try > now)
}

/// The calls of this owner, as long as it needs one; for a claim, also its state.
fn read_progress(now: &Volume, owner: &CallOwner) -> Option<(Option<ClaimState>, Progress)> {
    match owner {
        CallOwner::Claim(alloc) => {
            let claim = now.claims.get(alloc)?;
            Some((Some(claim.state), claim.progress.clone()))
        }
        CallOwner::Volume => Some((None, now.spec.as_ref()?.operation()?.progress.calls.clone())),
        CallOwner::Snapshot(id) => {
            let snapshot = now.snapshots.get(id)?;
            snapshot.call().map(|_| (None, snapshot.progress.calls.clone()))
        }
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

fn is_gone(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoSuchVolume | Refusal::NoSuchClaim(_) | Refusal::NoSuchSnapshot(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found in practice: a deletion that had failed once, and then waited for an unmount, was
    /// asked about every 2 ms.
    #[test]
    fn a_try_that_was_due_says_nothing_of_when_to_ask_again() {
        let at = Timestamp::from_unix_ms;
        let calls = |next_try| Progress { next_try, tries: 1, ..Progress::default() };
        assert_eq!(ahead(Some(&calls(Some(at(11)))), at(10)), Some(at(11)));
        for over in [None, Some(at(9)), Some(at(10))] {
            assert_eq!(ahead(Some(&calls(over)), at(10)), None, "{over:?}");
        }
        assert_eq!(ahead(None, at(10)), None);
    }
}
