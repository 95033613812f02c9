//! One transition of one volume: load, step, commit under the guard, apply.
//!
//! **Owns** the order of these, and what is asked of the stream's leader before a caller is
//! answered.
//!
//! **Promises** that what is returned as committed is stored and seen by the next decision here;
//! that a lost race is decided anew; and that an answer without a write, a refusal too, was not
//! made on old news: before one is given, the stream's leader is asked whether this replica is
//! behind. That a volume or a claim is not there is answered only by a leader with a quorum. What a
//! caller asked for is decided no more once its [deadline] has passed.
//!
//! **Never** calls a plugin: the volume's lock is held for a decision and its write only.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::{Change, CommitError, Guard, MirrorError, ReadError, Write as BusWrite, caller};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_contract::{key, record};
use berth_domain::volume::{Command, Handle, HandleOwner, Refusal, Step, Volume, Write, step};
use berth_domain::{AllocId, VolumeKey};
use berth_service::deadline;
use berth_service::projection::{Subtree, Volumes};
use bytes::Bytes;
use thiserror::Error;
use tokio::time::Instant;

use crate::events::StoredTransition;
use crate::handle::{self, Beside};
use crate::state::StateInner;
use crate::trail::{Passage, Trailed};
use crate::{measure, refuse};

/// Races lost in a row before the caller is told that the volume is too busy. Each lost race means
/// that somebody else's transition was stored.
const RACES_MAX: u32 = 32;
/// How long this replica may need to catch up with the leader.
const CATCH_UP: Duration = Duration::from_secs(3);

/// A transition that is stored, or that had nothing to store.
#[derive(Debug)]
pub struct Committed {
    /// What was decided.
    pub step: Step,
    /// The revision of its write; the volume's newest when there was none.
    pub revision: u64,
}

/// Why nothing was stored.
#[derive(Debug, Error)]
pub enum TransactError {
    /// The decision was no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The command could not be made of the volume as it is.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// A record of the volume cannot be read: a newer version wrote it, or it is damaged. It may be
    /// a claim that holds the volume.
    #[error("{0}")]
    Unreadable(UnreadableRecord),
    /// The write.
    #[error("the transition could not be stored")]
    Commit(#[source] CommitError),
    /// The leader's view.
    #[error("the volume's newest revision could not be read")]
    Head(#[source] ReadError),
    /// The projection.
    #[error("this replica is behind the bus")]
    Behind(#[source] MirrorError),
    /// Others write to the volume all the time, so that it could not be read at one moment.
    #[error("the volume could not be read at one moment")]
    Unsettled,
    /// Others came before, for as long as the caller waits.
    #[error("changes of the volume that came before it are still under way")]
    Queued,
    /// Others were always faster.
    #[error("{RACES_MAX} races in a row were lost")]
    Contended,
    /// A record could not be written as JSON.
    #[error("the record could not be written")]
    Record(#[source] serde_json::Error),
}

impl TransactError {
    fn into_problem(self, step: &str, volume: &VolumeKey) -> Problem {
        let problem = match self {
            Self::Refused(refusal) => refuse::problem(volume, &refusal),
            Self::Problem(problem) => problem,
            Self::Unreadable(record) => record.problem(),
            Self::Commit(error) => error.into_problem(step),
            Self::Head(error) => error.into_problem(step),
            Self::Behind(error) => error.into_problem(step),
            Self::Queued | Self::Unsettled | Self::Contended => {
                Problem::new(Code::Overloaded, self).retryable()
            }
            Self::Record(error) => Problem::new(Code::Internal, error),
        };
        problem.at(step).volume(volume)
    }
}

impl StateInner {
    /// What the caller is told: the step, the volume, and the plugin where it is known.
    pub fn problem(&self, error: TransactError, step: &str, volume: &VolumeKey) -> Problem {
        let plugin = self.volume_mirror.read(|volumes| {
            let spec = volumes.get(volume).and_then(|subtree| subtree.volume.spec.as_ref());
            spec.map(|spec| spec.plugin.clone())
        });
        let problem = error.into_problem(step, volume);
        match plugin {
            Some(plugin) => problem.plugin(plugin),
            None => problem,
        }
    }

    /// Decides and stores what follows from something that happened, however late.
    pub async fn transact(
        &self,
        volume: &VolumeKey,
        trace: TraceContext,
        command: impl Fn(&Volume) -> Result<Command, Problem>,
    ) -> Result<Committed, TransactError> {
        self.decide(volume, trace, command, || Ok(())).await
    }

    /// Decides and stores what somebody wants who waits for the answer until then.
    pub async fn transact_until(
        &self,
        volume: &VolumeKey,
        trace: TraceContext,
        until: Instant,
        command: impl Fn(&Volume) -> Result<Command, Problem>,
    ) -> Result<Committed, TransactError> {
        self.decide(volume, trace, command, || deadline::check(until)).await
    }

    /// Decides and stores. `command` is made anew for each look at the volume, and `still` asked
    /// after each whether the decision is still wanted.
    async fn decide(
        &self,
        volume: &VolumeKey,
        trace: TraceContext,
        command: impl Fn(&Volume) -> Result<Command, Problem>,
        still: impl Fn() -> Result<(), Problem>,
    ) -> Result<Committed, TransactError> {
        let _turn = caller::wait_until_deadline(self.locks.lock(volume))
            .await
            .ok_or(TransactError::Queued)?;
        let empty = Volume::default();
        let mut heads = Heads::default();
        for _ in 0..RACES_MAX {
            let mut context = self.context();
            let seen = self.volume_mirror.read(|volumes| {
                let subtree = volumes.get(volume);
                if let Some(record) = subtree.and_then(Subtree::first_unreadable) {
                    return Err(TransactError::Unreadable(record.clone()));
                }
                let now = subtree.map_or(&empty, |subtree| &subtree.volume);
                let command = command(now)?;
                context.handle = handle::handle_use(volumes, volume, &command);
                let decided = step(now, &command, &context);
                let (mut before_write, mut beside) = (None, Vec::new());
                if let Ok(Step { write: Some(write), .. }) = &decided {
                    before_write = before(subtree, write);
                    beside = handle::beside(volumes, volume, &command, write)
                        .map_err(TransactError::Unreadable)?;
                }
                let plugin = now.spec.as_ref().map(|spec| spec.plugin.clone());
                let head = subtree.map_or(0, |subtree| subtree.head);
                let beside = beside.into_iter().map(|write| (write.revision(volumes), write));
                Ok((
                    Batch { head, beside: beside.collect() },
                    command,
                    decided,
                    before_write,
                    plugin,
                ))
            });
            let own = key::subtree(volume);
            if matches!(seen, Err(TransactError::Unreadable(_))) && !heads.known.contains_key(&own)
            {
                // The record may have been mended since.
                heads.known.insert(own, self.catch_up(volume).await?);
                continue;
            }
            let (batch, command, decided, before, plugin) = seen?;
            let decided = match decided {
                Ok(decided) => decided,
                Err(refusal) => {
                    // What another volume is registered for may be free by now.
                    let all = is_of_others(&refusal);
                    let is_known = heads.asked(all);
                    if is_known && !is_of_absence(&command, &refusal) {
                        return Err(refusal.into());
                    }
                    let head = heads.known.get(&own).filter(|_| is_known);
                    if let Some(head) = head
                        && self.stands(volume, *head, trace).await?
                    {
                        return Err(refusal.into());
                    }
                    heads = self.heads(volume, &batch, all).await?;
                    continue;
                }
            };
            let Some(write) = &decided.write else {
                let Some(revision) = heads.known.get(&own).copied() else {
                    // Nothing is written, so no guard tells whether what is known here still holds.
                    heads = self.heads(volume, &batch, false).await?;
                    continue;
                };
                return Ok(Committed { step: decided, revision });
            };
            // No guard covers what other volumes are registered for: an older version may have
            // written one without the key of its handle.
            if batch.takes_handle() && !heads.asked(true) {
                heads = self.heads(volume, &batch, true).await?;
                continue;
            }
            still()?;
            let passage = passage(volume, write, before.as_ref());
            let trail = passage.map(|passage| passage.trail(trace, context.now));
            match self.store_batch(volume, write, trail, &batch, &heads, trace).await? {
                Some(revision) => {
                    if let (Some(passage), Some(trail)) = (passage, &trail) {
                        passage.emit(trail, &self.policy);
                        measure::stored(&passage, &command, plugin.as_ref(), context.now);
                    }
                    let (before, now) = (before.as_ref(), context.now);
                    let command = &command;
                    let told =
                        StoredTransition { volume, command, write, before, trail, trace, now };
                    if told.is_news() {
                        let event = told.event(&self.policy);
                        self.events.publish(&event.subject(), &event, told.context());
                    }
                    return Ok(Committed { step: decided, revision });
                }
                None => heads = self.heads(volume, &batch, batch.takes_handle()).await?,
            }
        }
        Err(TransactError::Contended)
    }

    /// Whether the command would do anything now, as far as this replica knows: write, call a
    /// plugin, or be refused otherwise than by a call that is under way. The leader is not asked.
    pub fn would_act(&self, volume: &VolumeKey, command: impl FnOnce(&Volume) -> Command) -> bool {
        let mut context = self.context();
        self.volume_mirror.read(|volumes| {
            let Some(subtree) = volumes.get(volume) else { return true };
            let command = command(&subtree.volume);
            context.handle = handle::handle_use(volumes, volume, &command);
            match step(&subtree.volume, &command, &context) {
                Ok(step) => step.write.is_some() || step.call.is_some(),
                Err(refusal) => !matches!(refusal, Refusal::Busy { .. }),
            }
        })
    }

    /// Refuses unless every record of the volume can be read, as far as this replica knows them.
    /// Without one of them it is not known who holds the volume.
    pub fn check_readable(&self, volume: &VolumeKey) -> Result<(), TransactError> {
        self.volume_mirror.read(|volumes| {
            let record = volumes.get(volume).and_then(Subtree::first_unreadable);
            record.map_or(Ok(()), |record| Err(TransactError::Unreadable(record.clone())))
        })
    }

    /// Applies everything up to the leader's newest revision of all volumes.
    pub async fn catch_up_with_all(&self) -> Result<(), TransactError> {
        let head = self.volumes.head(">").await.map_err(TransactError::Head)?;
        let deadline = caller::earlier_deadline(Instant::now() + CATCH_UP);
        self.volume_mirror.reach(head, deadline).await.map_err(TransactError::Behind)
    }

    /// Asks the leader for the newest revision below each guard, and applies everything up to it;
    /// with `all`, everything of the bucket.
    async fn heads(
        &self,
        volume: &VolumeKey,
        batch: &Batch,
        all: bool,
    ) -> Result<Heads, TransactError> {
        let mut heads = Heads { known: BTreeMap::new(), all };
        heads.known.insert(key::subtree(volume), self.catch_up(volume).await?);
        for (_, write) in &batch.beside {
            let seen = |volumes: &Volumes| write.revision(volumes);
            let filter = write.filter();
            let head = self.catch_up_below(&filter, seen).await?;
            heads.known.insert(filter, head);
        }
        if all {
            self.catch_up_with_all().await?;
        }
        Ok(heads)
    }

    /// Applies everything up to the leader's newest revision of the volume, and returns that. When
    /// it is lower than what was seen here, this replica may have missed a delete: then the volume
    /// is read again at the leader.
    pub async fn catch_up(&self, volume: &VolumeKey) -> Result<u64, TransactError> {
        let seen = |volumes: &Volumes| volumes.get(volume).map_or(0, |subtree| subtree.head);
        self.catch_up_below(&key::subtree(volume), seen).await
    }

    /// As [`catch_up`](Self::catch_up), and the leader has a quorum: what this replica knows then
    /// is all that was acknowledged before.
    pub async fn catch_up_surely(
        &self,
        volume: &VolumeKey,
        trace: TraceContext,
    ) -> Result<(), TransactError> {
        for _ in 0..RACES_MAX {
            let head = self.catch_up(volume).await?;
            if self.stands(volume, head, trace).await? {
                return Ok(());
            }
        }
        Err(TransactError::Contended)
    }

    /// Whether that is still the volume's newest revision, at a leader with a quorum.
    async fn stands(
        &self,
        volume: &VolumeKey,
        head: u64,
        trace: TraceContext,
    ) -> Result<bool, TransactError> {
        let guard = Guard { filter: &key::subtree(volume), revision: head };
        let stored = self.volumes.confirm_absence(&key::barrier(volume), guard, trace).await;
        stored.map(|stored| stored.is_some()).map_err(TransactError::Commit)
    }

    /// The same below any guard; `seen` is the newest revision below it that is known here.
    async fn catch_up_below(
        &self,
        filter: &str,
        seen: impl FnOnce(&Volumes) -> u64,
    ) -> Result<u64, TransactError> {
        let seen = self.volume_mirror.read(seen);
        let head = self.volumes.head(filter).await.map_err(TransactError::Head)?;
        if head < seen {
            let read = self.volume_mirror.read_again(filter).await;
            return read.map_err(TransactError::Head)?.ok_or(TransactError::Unsettled);
        }
        let deadline = caller::earlier_deadline(Instant::now() + CATCH_UP);
        self.volume_mirror.reach(head, deadline).await.map_err(TransactError::Behind)?;
        Ok(head)
    }

    /// One guarded write of what is not decided by `step`; none when the race was lost.
    pub(crate) async fn store(
        &self,
        volume: &VolumeKey,
        write: &Write,
        trail: Option<Trail>,
        head: u64,
        trace: TraceContext,
    ) -> Result<Option<u64>, TransactError> {
        let batch = Batch { head, beside: Vec::new() };
        self.store_batch(volume, write, trail, &batch, &Heads::default(), trace).await
    }

    /// Stores a transition's write, with what goes beside it; none when a race was lost.
    async fn store_batch(
        &self,
        volume: &VolumeKey,
        write: &Write,
        trail: Option<Trail>,
        batch: &Batch,
        heads: &Heads,
        trace: TraceContext,
    ) -> Result<Option<u64>, TransactError> {
        let id = || Some(trace.trace_id());
        let mut all = vec![Stored::own(volume, write, trail, batch.head, id)?];
        for (revision, beside) in &batch.beside {
            all.push(Stored::beside(volume, beside, *revision, id)?);
        }
        for one in &mut all {
            one.revision = heads.known.get(&one.filter).copied().unwrap_or(one.revision);
        }
        self.store_all(&all, trace).await
    }

    /// Has the key of a handle go that names a volume which is not registered with it.
    pub async fn release_handle(
        &self,
        handle: &Handle,
        owner: &VolumeKey,
    ) -> Result<(), TransactError> {
        let _turn = caller::wait_until_deadline(self.locks.lock(owner))
            .await
            .ok_or(TransactError::Queued)?;
        let trace = berth_service::clock::begin_trace();
        let nothing = Batch::default();
        let mut heads = self.heads(owner, &nothing, true).await?;
        let found = self.volume_mirror.read(|volumes| {
            let entry = volumes.handles().get(handle)?;
            let named = entry.guard.as_ref().is_some_and(|it| it.owner.as_ref() == Ok(owner));
            let released = handle::released(volumes, handle, owner);
            (named && entry.registered.is_empty()).then_some(released)
        });
        let Some(found) = found else { return Ok(()) };
        let mut all = Vec::new();
        for (revision, beside) in &found.map_err(TransactError::Unreadable)? {
            let mut one = Stored::beside(owner, beside, *revision, || Some(trace.trace_id()))?;
            one.revision = heads.known.remove(&one.filter).unwrap_or(one.revision);
            all.push(one);
        }
        self.store_all(&all, trace).await.map(drop)
    }

    /// Writes all of them or none; none when a race was lost. Answers the revision of the first.
    async fn store_all(
        &self,
        all: &[Stored],
        trace: TraceContext,
    ) -> Result<Option<u64>, TransactError> {
        let operation = berth_service::clock::new_attempt();
        let writes = all.iter().map(|one| BusWrite {
            key: &one.key,
            change: match &one.value {
                Some(value) => Change::Put(value.clone()),
                None => Change::Delete,
            },
            guard: Guard { filter: &one.filter, revision: one.revision },
            operation: operation.as_str(),
            trace,
        });
        match self.volumes.commit_together(writes.collect()).await {
            Ok(last) => {
                let first = last + 1 - all.len() as u64;
                for (revision, one) in (first..).zip(all) {
                    match &one.value {
                        Some(value) => self.volume_mirror.put(&one.key, revision, value).await,
                        None => self.volume_mirror.delete(&one.key, revision).await,
                    }
                }
                Ok(Some(first))
            }
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(error) => Err(TransactError::Commit(error)),
        }
    }
}

/// What a transition writes besides its own write, and what guards it, as far as is known here.
#[derive(Debug, Default)]
struct Batch {
    /// The volume's newest revision.
    head: u64,
    /// What goes beside its write, each with the revision of its guard.
    beside: Vec<(u64, Beside)>,
}

impl Batch {
    fn takes_handle(&self) -> bool {
        self.beside.iter().any(|(_, write)| matches!(write, Beside::Own(_)))
    }
}

/// The leader's idea of the newest revisions, once asked. They may be lower than ours when a marker
/// was purged; then what is below was read again, and the guard is compared with what is left.
#[derive(Debug, Default)]
struct Heads {
    /// By the filter of the guard; of the volume, once this replica has caught up with it.
    known: BTreeMap<String, u64>,
    /// Whether it has caught up with all volumes.
    all: bool,
}

impl Heads {
    fn asked(&self, all: bool) -> bool {
        self.all || (!self.known.is_empty() && !all)
    }
}

/// One write of a batch.
struct Stored {
    key: String,
    value: Option<Bytes>,
    filter: String,
    revision: u64,
}

impl Stored {
    fn own(
        volume: &VolumeKey,
        write: &Write,
        trail: Option<Trail>,
        revision: u64,
        trace: impl Fn() -> Option<String>,
    ) -> Result<Self, TransactError> {
        let (key, value) = match write {
            Write::PutSpec(spec) => (key::spec(volume), Some(record::write(spec, trace()))),
            Write::DeleteSpec => (key::spec(volume), None),
            Write::PutClaim(alloc, claim) => {
                let value = match trail {
                    Some(trail) => record::write_claim(claim, trail),
                    None => record::write(claim, trace()),
                };
                (key::claim(volume, alloc), Some(value))
            }
            Write::DeleteClaim(alloc) => (key::claim(volume, alloc), None),
        };
        let value = value.transpose().map_err(TransactError::Record)?.map(Bytes::from);
        Ok(Self { key, value, filter: key::subtree(volume), revision })
    }

    fn beside(
        volume: &VolumeKey,
        write: &Beside,
        revision: u64,
        trace: impl Fn() -> Option<String>,
    ) -> Result<Self, TransactError> {
        let (key, value) = match write {
            Beside::Fence(other, spec) => {
                let spec = spec.as_ref().map(|spec| record::write(spec, trace()));
                (key::spec(other), spec)
            }
            Beside::Free(handle) => (key::handle(handle), None),
            Beside::Own(handle) => {
                let VolumeKey { namespace, volume } = volume.clone();
                let owner = HandleOwner { namespace, volume };
                (key::handle(handle), Some(record::write(owner, trace())))
            }
        };
        let value = value.transpose().map_err(TransactError::Record)?.map(Bytes::from);
        Ok(Self { key, value, filter: write.filter(), revision })
    }
}

/// Whether a refusal is by what other volumes are registered for.
fn is_of_others(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::HandleTaken { .. } | Refusal::RegisteredTwice { .. })
}

/// Whether a caller is refused, or told that it is done, because something is not there. Nothing
/// follows of it for a worker, which looks again, or for a report of an agent.
fn is_of_absence(command: &Command, refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoSuchVolume | Refusal::NoSuchClaim(_))
        && !matches!(
            command,
            Command::Begin { .. }
                | Command::Answer { .. }
                | Command::Observe { .. }
                | Command::Reserve
        )
}

/// The claim that a write is about.
fn subject(write: &Write) -> Option<&AllocId> {
    match write {
        Write::PutClaim(alloc, _) | Write::DeleteClaim(alloc) => Some(alloc),
        Write::PutSpec(_) | Write::DeleteSpec => None,
    }
}

/// That claim as it stands.
fn before(subtree: Option<&Subtree>, write: &Write) -> Option<Trailed> {
    let (subtree, alloc) = (subtree?, subject(write)?);
    let claim = subtree.volume.claims.get(alloc)?.clone();
    Some(Trailed { claim, trail: subtree.trail(alloc) })
}

/// What a write does to it.
fn passage<'a>(
    volume: &'a VolumeKey,
    write: &'a Write,
    before: Option<&'a Trailed>,
) -> Option<Passage<'a>> {
    let after = match write {
        Write::PutClaim(_, claim) => Some(claim),
        _ => None,
    };
    Some(Passage { volume, alloc: subject(write)?, before, after })
}

#[cfg(test)]
mod tests;
