//! One transition of one volume: load, step, commit under the guard, apply to the mirror.
//!
//! **Owns** the order of these steps, and what the stream's leader is asked before a caller is
//! answered.
//!
//! **Promises**
//!
//! - A committed transition is stored, and the next decision of this replica sees it.
//! - After a lost race the command is decided again, on the volume's new state.
//! - An answer without a write, such as a refusal, does not rest on an outdated mirror: first the
//!   leader is asked whether this replica lags.
//! - The answer that a volume or a claim does not exist is given only after a leader with a quorum
//!   has confirmed it.
//! - Nothing is decided for a caller whose [deadline] has passed.
//!
//! **Never** calls a plugin: the volume's lock is held only for a decision and its write.
//!
//! # Why this is not `record_table::retry_lost_races`
//!
//! All other records are read at the leader and written one key at a time. A volume is not:
//!
//! - It is a subtree of thousands of keys. A transition is decided from the mirror, and the leader
//!   is only asked for a revision.
//! - A lost race is not the only reason to decide again. A refusal, a step without a write, an
//!   unreadable record, and a handle that another volume may have are decided again after the
//!   leader was asked; its answer guards the next try.
//! - A transition may write several keys, each under a guard of its own.

mod batch;
mod places;
mod together;

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::{
    Ask, Change, CommitError, Guard, MirrorError, ReadError, Write as BusWrite, caller,
};
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_domain::volume::{
    Command, Context, Handle, Refusal, Step, Volume, VolumeSpec, Write, step,
};
use berth_domain::{AllocId, PluginId, VolumeKey};
use berth_service::deadline;
use berth_service::projection::{Subtree, Volumes};
use thiserror::Error;
use tokio::time::Instant;

use crate::store::class_guard;
use crate::store::events::StoredTransition;
use crate::store::handle;
use crate::store::measure::{self, AnsweredChange};
use crate::store::refuse;
use crate::store::state::StateInner;
use crate::store::trail::{ClaimChange, TrailedClaim};
use batch::{Batch, GuardedWrite, Heads};

/// Races lost in a row before the caller is told that the volume is too busy. Each lost race means
/// that another transition was stored.
const RACES_MAX: u32 = 32;
/// How long this replica may take to catch up with the leader.
pub const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// A transition that is stored, or that needed no write.
#[derive(Debug)]
pub struct Committed {
    pub step: Step,
    /// The revision of its write; without a write, the volume's newest revision.
    pub revision: u64,
}

/// Why a transition was not stored.
#[derive(Debug, Error)]
pub enum TransactError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The volume's state does not allow the command.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// A record of the volume is unreadable: a newer version wrote it, or it is damaged. It may be
    /// a claim that holds the volume.
    #[error("{0}")]
    Unreadable(UnreadableRecord),
    #[error("the transition could not be stored")]
    Commit(#[source] CommitError),
    #[error("the volume's newest revision could not be read")]
    Head(#[source] ReadError),
    #[error("this replica is behind the bus")]
    Behind(#[source] MirrorError),
    /// The volume kept changing, so that no consistent state of it could be read.
    #[error("the volume could not be read at one moment")]
    Unsettled,
    /// Earlier transitions held the volume's lock until the caller's deadline.
    #[error("changes of the volume that came before it are still under way")]
    Queued,
    #[error("{RACES_MAX} races in a row were lost")]
    Contended,
    #[error("the record could not be written")]
    Record(#[from] serde_json::Error),
}

impl TransactError {
    /// Whether the volume is unchanged for certain. After other errors the write may be stored.
    pub fn is_not_written(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Problem(_))
    }

    fn into_problem(self, volume: &VolumeKey) -> Problem {
        let problem = match self {
            Self::Refused(refusal) => refuse::to_problem(volume, &refusal),
            Self::Problem(problem) => problem,
            Self::Unreadable(record) => record.problem(),
            Self::Commit(error) => Problem::from(error),
            Self::Head(error) => Problem::from(error),
            Self::Behind(error) => Problem::from(error),
            Self::Queued | Self::Unsettled | Self::Contended => {
                Problem::new(Code::Overloaded, self).retryable()
            }
            Self::Record(error) => Problem::new(Code::Internal, error),
        };
        problem.volume(volume)
    }
}

impl StateInner {
    /// The problem for the caller, with the volume, and the plugin if it is known.
    pub fn problem(&self, error: TransactError, volume: &VolumeKey) -> Problem {
        let plugin = self.volumes.mirror.read(|volumes| {
            let spec = volumes.get(volume).and_then(|subtree| subtree.volume.spec.as_ref());
            spec.map(|spec| spec.plugin.clone())
        });
        let problem = error.into_problem(volume);
        match plugin {
            Some(plugin) => problem.plugin(plugin),
            None => problem,
        }
    }

    /// Decides and stores a command that follows from an event. It has no deadline.
    pub async fn transact(
        &self,
        volume: &VolumeKey,
        trace: TraceContext,
        command: impl Fn(&Volume) -> Result<Command, Problem>,
    ) -> Result<Committed, TransactError> {
        self.decide_and_store(volume, trace, command, || Ok(())).await
    }

    /// Decides and stores the request of a caller that waits until then.
    pub async fn transact_until(
        &self,
        volume: &VolumeKey,
        trace: TraceContext,
        until: Instant,
        command: impl Fn(&Volume) -> Result<Command, Problem>,
    ) -> Result<Committed, TransactError> {
        self.decide_and_store(volume, trace, command, || deadline::check(until)).await
    }

    /// Decides and stores. `command` is called for each state of the volume. `check_wanted` refuses
    /// a write that the caller no longer waits for.
    async fn decide_and_store(
        &self,
        volume: &VolumeKey,
        trace: TraceContext,
        command: impl Fn(&Volume) -> Result<Command, Problem>,
        check_wanted: impl Fn() -> Result<(), Problem>,
    ) -> Result<Committed, TransactError> {
        let lock = caller::wait_until_deadline(self.volume_locks.lock(volume));
        let _lock = lock.await.ok_or(TransactError::Queued)?;
        let own = key::subtree(volume);
        let mut heads = Heads::default();
        for _ in 0..RACES_MAX {
            let context = self.decision_context();
            let now = context.now;
            let decided = self.decide(volume, &command, context);
            if matches!(decided, Err(TransactError::Unreadable(_)))
                && !heads.known.contains_key(&own)
            {
                // The record may have been repaired since.
                heads.known.insert(own.clone(), self.catch_up(volume).await?);
                continue;
            }
            if matches!(decided, Err(TransactError::Problem(_))) && !heads.were_asked(true) {
                // The records that the command is checked against may have changed since.
                heads = self.ask_heads(volume, &Batch::default(), true).await?;
                continue;
            }
            let Decision { command, step, batch, before, spec_before, plugin, answered } = decided?;
            let step = match step {
                Ok(step) => step,
                Err(refusal) => {
                    if self.is_confirmed(volume, &command, &refusal, &heads, trace).await? {
                        return Err(refusal.into());
                    }
                    // The volume that has the handle may be deregistered by now.
                    heads = self.ask_heads(volume, &batch, is_of_other_volumes(&refusal)).await?;
                    continue;
                }
            };
            let Some(write) = &step.write else {
                let Some(revision) = heads.known.get(&own).copied() else {
                    // Without a write, no guard shows whether this replica lags.
                    heads = self.ask_heads(volume, &batch, false).await?;
                    continue;
                };
                return Ok(Committed { step, revision });
            };
            // No guard covers the handles of other volumes: an older version may have written a
            // spec without the key of its handle. The guards take the mirror's revisions, which are
            // the leader's then. If a marker was purged there, the write is refused, and the leader
            // is asked for each of them.
            if batch.takes_handle() && !heads.all {
                self.catch_up_with_all().await?;
                heads = Heads { known: BTreeMap::new(), all: true };
                continue;
            }
            check_wanted()?;
            let (command, before) = (&command, before.as_ref());
            let change = claim_passage(volume, write, before);
            let trail = change.map(|change| change.trail(trace, now));
            let writes = batch.guarded_writes(volume, (write, trail), &heads, trace)?;
            let Some(revision) = self.store_all(&writes, trace).await? else {
                heads = self.ask_heads(volume, &batch, batch.takes_handle()).await?;
                continue;
            };
            if let (Some(change), Some(trail)) = (change, &trail) {
                change.emit(trail, &self.policy);
                measure::count_write(&change, command, plugin.as_ref(), now);
            }
            if let Some(answered) = answered {
                answered.count(write, now);
            }
            let by = self.who_wants(volume, write);
            let spec_before = spec_before.as_ref();
            let transition = StoredTransition {
                volume,
                command,
                write,
                before,
                spec_before,
                trail,
                trace,
                now,
                by,
            };
            if transition.has_event() {
                let event = transition.event(&self.policy);
                self.events.publish(&event.subject(), &event, transition.context());
            }
            return Ok(Committed { step, revision });
        }
        Err(TransactError::Contended)
    }

    /// Who registered or adopted the alloc of the claim that is written, as far as this replica
    /// knows.
    fn who_wants(&self, volume: &VolumeKey, write: &Write) -> Option<String> {
        let (Write::PutClaim(alloc, _) | Write::DeleteClaim(alloc)) = write else { return None };
        self.allocs.mirror.read(|allocs| allocs.get(&volume.namespace, alloc)?.1.by.clone())
    }

    /// Decides the command on the mirror's state of the volume.
    fn decide(
        &self,
        volume: &VolumeKey,
        command: impl Fn(&Volume) -> Result<Command, Problem>,
        mut context: Context,
    ) -> Result<Decision, TransactError> {
        let empty = Volume::default();
        self.volumes.mirror.read(|volumes| {
            let subtree = volumes.get(volume);
            if let Some(record) = subtree.and_then(Subtree::first_unreadable) {
                return Err(TransactError::Unreadable(record.clone()));
            }
            let now = subtree.map_or(&empty, |subtree| &subtree.volume);
            let command = command(now)?;
            class_guard::check_command(volumes, volume, now, &command)?;
            context.handle = handle::handle_use(volumes, volume, &command);
            context.copies = class_guard::copies_of(volumes, volume, &command);
            context.mounts = self.mounts_for(volume, now, &command);
            let step = step(now, &command, &context);
            let (mut before, mut spec_before, mut beside) = (None, None, Vec::new());
            if let Ok(Step { write: Some(write), .. }) = &step {
                self.level.check(volumes, batch::schema_of(write))?;
                before = claim_before(subtree, write);
                if matches!(write, Write::PutSpec(_) | Write::DeleteSpec) {
                    spec_before.clone_from(&now.spec);
                }
                beside = handle::beside(volumes, volume, &command, write)
                    .map_err(TransactError::Unreadable)?;
                if let Ok(step) = &step {
                    beside.extend(class_guard::quota_guard(volumes, volume, &command, step));
                }
            }
            let beside = beside.into_iter().map(|write| (write.revision(volumes), write)).collect();
            let batch = Batch { head: subtree.map_or(0, |subtree| subtree.head), beside };
            let plugin = now.spec.as_ref().map(|spec| spec.plugin.clone());
            let answered = AnsweredChange::answered_by(now, &command);
            Ok(Decision { command, step, batch, before, spec_before, plugin, answered })
        })
    }

    /// Whether the leader was asked for everything that the refusal rests on. That something does
    /// not exist is confirmed at a quorum.
    async fn is_confirmed(
        &self,
        volume: &VolumeKey,
        command: &Command,
        refusal: &Refusal,
        heads: &Heads,
        trace: TraceContext,
    ) -> Result<bool, TransactError> {
        if !heads.were_asked(is_of_other_volumes(refusal)) {
            return Ok(false);
        }
        if !is_of_absence(command, refusal) {
            return Ok(true);
        }
        match heads.known.get(&key::subtree(volume)) {
            Some(head) => self.confirm_head(volume, *head, trace).await,
            None => Ok(false),
        }
    }

    /// Whether the command would have an effect now: a write that does more than keep a place in
    /// line, a plugin call, or a refusal for another reason than a call under way. It is decided
    /// from the mirror; the leader is not asked.
    pub fn would_act(&self, volume: &VolumeKey, command: impl FnOnce(&Volume) -> Command) -> bool {
        let mut context = self.decision_context();
        self.volumes.mirror.read(|volumes| {
            let readable = |subtree: &&Subtree| subtree.first_unreadable().is_none();
            let Some(subtree) = volumes.get(volume).filter(readable) else { return true };
            let command = command(&subtree.volume);
            context.handle = handle::handle_use(volumes, volume, &command);
            match step(&subtree.volume, &command, &context) {
                Ok(step) => {
                    let can_wait = |write| subtree.volume.is_early_renewal(write, &context);
                    step.call.is_some() || step.write.as_ref().is_some_and(|to| !can_wait(to))
                }
                Err(refusal) => {
                    !matches!(refusal, Refusal::Busy { .. }) && !refusal.is_of_creation()
                }
            }
        })
    }

    /// Refuses if this replica has an unreadable record of the volume. It may be a claim that holds
    /// the volume.
    pub fn check_readable(&self, volume: &VolumeKey) -> Result<(), TransactError> {
        self.volumes.mirror.read(|volumes| {
            let record = volumes.get(volume).and_then(Subtree::first_unreadable);
            record.map_or(Ok(()), |record| Err(TransactError::Unreadable(record.clone())))
        })
    }

    /// Waits until the mirror has the leader's newest revision of all volumes.
    pub async fn catch_up_with_all(&self) -> Result<(), TransactError> {
        let head =
            self.volumes.bucket.newest_together(Ask::ByWrite).await.map_err(TransactError::Head)?;
        let deadline = caller::earlier_deadline(Instant::now() + CATCH_UP_TIMEOUT);
        self.volumes.mirror.reach(head, deadline).await.map_err(TransactError::Behind)
    }

    /// Asks the leader for the newest revision below each guard, and waits until the mirror has it;
    /// with `all`, until it has everything of the bucket.
    async fn ask_heads(
        &self,
        volume: &VolumeKey,
        batch: &Batch,
        all: bool,
    ) -> Result<Heads, TransactError> {
        let mut heads = Heads { known: BTreeMap::new(), all };
        heads.known.insert(key::subtree(volume), self.catch_up(volume).await?);
        for (_, write) in &batch.beside {
            let mirrored = |volumes: &Volumes| write.revision(volumes);
            let filter = write.filter();
            let head = self.catch_up_below(&filter, mirrored).await?;
            heads.known.insert(filter, head);
        }
        if all {
            self.catch_up_with_all().await?;
        }
        Ok(heads)
    }

    /// Waits until the mirror has the leader's newest revision of the volume, and returns it. If it
    /// is lower than the mirror's, this replica may have missed a delete: then the volume is read
    /// again at the leader.
    pub async fn catch_up(&self, volume: &VolumeKey) -> Result<u64, TransactError> {
        let mirrored = |volumes: &Volumes| volumes.get(volume).map_or(0, |subtree| subtree.head);
        self.catch_up_below(&key::subtree(volume), mirrored).await
    }

    /// As [`catch_up`](Self::catch_up), at a leader with a quorum: then this replica has everything
    /// that was acknowledged before the call. Nothing is written, so the loop repeats the
    /// confirmation, not a decision.
    pub async fn catch_up_surely(
        &self,
        volume: &VolumeKey,
        trace: TraceContext,
    ) -> Result<(), TransactError> {
        for _ in 0..RACES_MAX {
            let head = self.catch_up(volume).await?;
            if self.confirm_head(volume, head, trace).await? {
                return Ok(());
            }
        }
        Err(TransactError::Contended)
    }

    /// Whether this is still the volume's newest revision, according to a leader with a quorum.
    async fn confirm_head(
        &self,
        volume: &VolumeKey,
        head: u64,
        trace: TraceContext,
    ) -> Result<bool, TransactError> {
        let guard = Guard { filter: &key::subtree(volume), revision: head };
        let stored = self.volumes.bucket.confirm_absence(&key::barrier(volume), guard, trace).await;
        stored.map(|stored| stored.is_some()).map_err(TransactError::Commit)
    }

    /// As [`catch_up`](Self::catch_up), below any guard. `mirrored` reads the newest revision there
    /// from the mirror.
    async fn catch_up_below(
        &self,
        filter: &str,
        mirrored: impl FnOnce(&Volumes) -> u64,
    ) -> Result<u64, TransactError> {
        let mirrored = self.volumes.mirror.read(mirrored);
        let head = self.volumes.bucket.head(filter).await.map_err(TransactError::Head)?;
        if head < mirrored {
            let read = self.volumes.mirror.read_again(filter).await;
            return read.map_err(TransactError::Head)?.ok_or(TransactError::Unsettled);
        }
        let deadline = caller::earlier_deadline(Instant::now() + CATCH_UP_TIMEOUT);
        self.volumes.mirror.reach(head, deadline).await.map_err(TransactError::Behind)?;
        Ok(head)
    }

    /// Stores one guarded write that `step` did not decide; none if the race was lost.
    pub async fn store(
        &self,
        volume: &VolumeKey,
        write: &Write,
        trail: Option<Trail>,
        head: u64,
        trace: TraceContext,
    ) -> Result<Option<u64>, TransactError> {
        let batch = Batch { head, beside: Vec::new() };
        let writes = batch.guarded_writes(volume, (write, trail), &Heads::default(), trace)?;
        self.store_all(&writes, trace).await
    }

    /// Deletes the key of a handle if it names a volume that is not registered with the handle.
    pub async fn release_handle(
        &self,
        handle: &Handle,
        owner: &VolumeKey,
    ) -> Result<(), TransactError> {
        let _lock = caller::wait_until_deadline(self.volume_locks.lock(owner))
            .await
            .ok_or(TransactError::Queued)?;
        let trace = berth_service::clock::begin_trace();
        let mut heads = self.ask_heads(owner, &Batch::default(), true).await?;
        let side_writes = self.volumes.mirror.read(|volumes| {
            let entry = volumes.handles().get(handle)?;
            let named = entry.guard().is_some_and(|guard| guard.owner == Ok(owner));
            let released = handle::released(volumes, handle, owner);
            (named && entry.registered().is_empty()).then_some(released)
        });
        let Some(side_writes) = side_writes else { return Ok(()) };
        let mut writes = Vec::new();
        for (revision, beside) in &side_writes.map_err(TransactError::Unreadable)? {
            let mut guarded = GuardedWrite::beside(owner, beside, *revision, trace)?;
            guarded.revision = heads.known.remove(&guarded.filter).unwrap_or(guarded.revision);
            writes.push(guarded);
        }
        self.store_all(&writes, trace).await.map(drop)
    }

    /// Stores all of the writes or none. Returns the revision of the first; none if a race was
    /// lost.
    async fn store_all(
        &self,
        guarded_writes: &[GuardedWrite],
        trace: TraceContext,
    ) -> Result<Option<u64>, TransactError> {
        let operation = berth_service::clock::new_attempt();
        let writes = guarded_writes.iter().map(|guarded| BusWrite {
            key: &guarded.key,
            change: match &guarded.value {
                Some(value) => Change::Put(value.clone()),
                None => Change::Delete,
            },
            guard: Guard { filter: &guarded.filter, revision: guarded.revision },
            operation: operation.as_str(),
            trace,
        });
        match self.volumes.bucket.commit_together(writes.collect()).await {
            Ok(last) => {
                let first = last + 1 - guarded_writes.len() as u64;
                for (revision, guarded) in (first..).zip(guarded_writes) {
                    match &guarded.value {
                        Some(value) => self.volumes.mirror.put(&guarded.key, revision, value).await,
                        None => self.volumes.mirror.delete(&guarded.key, revision).await,
                    }
                }
                Ok(Some(first))
            }
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(error) => Err(TransactError::Commit(error)),
        }
    }
}

/// A command that was decided on one state of the volume.
struct Decision {
    command: Command,
    step: Result<Step, Refusal>,
    batch: Batch,
    /// The claim before the write, if the step writes a claim.
    before: Option<TrailedClaim>,
    /// The spec before the write, if the step writes the spec.
    spec_before: Option<VolumeSpec>,
    plugin: Option<PluginId>,
    /// The change of the storage whose answer the command brings.
    answered: Option<AnsweredChange>,
}

/// Whether a refusal rests on the registration of another volume.
fn is_of_other_volumes(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::HandleTaken { .. } | Refusal::RegisteredTwice { .. })
}

/// Whether a caller is refused, or told that its request is done, because something does not exist.
/// A worker repeats its request, and an agent's report then changes nothing, so neither needs a
/// confirmation.
fn is_of_absence(command: &Command, refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoSuchVolume | Refusal::NoSuchClaim(_) | Refusal::NoSuchSnapshot(_))
        && !matches!(
            command,
            Command::Begin(_) | Command::Answer { .. } | Command::Observe { .. } | Command::Reserve
        )
}

/// The alloc of the claim that a write changes.
fn claim_of_write(write: &Write) -> Option<&AllocId> {
    match write {
        Write::PutClaim(alloc, _) | Write::DeleteClaim(alloc) => Some(alloc),
        Write::PutSpec(_)
        | Write::DeleteSpec
        | Write::PutSnapshot(..)
        | Write::DeleteSnapshot(_) => None,
    }
}

/// The claim before the write.
fn claim_before(subtree: Option<&Subtree>, write: &Write) -> Option<TrailedClaim> {
    let (subtree, alloc) = (subtree?, claim_of_write(write)?);
    let claim = subtree.volume.claims.get(alloc)?.clone();
    Some(TrailedClaim { claim, trail: subtree.trail(alloc) })
}

/// The claim before and after the write; none for a write of a spec.
fn claim_passage<'a>(
    volume: &'a VolumeKey,
    write: &'a Write,
    before: Option<&'a TrailedClaim>,
) -> Option<ClaimChange<'a>> {
    let after = match write {
        Write::PutClaim(_, claim) => Some(claim),
        _ => None,
    };
    Some(ClaimChange { volume, alloc: claim_of_write(write)?, before, after })
}

#[cfg(test)]
mod tests;
