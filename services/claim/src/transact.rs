//! One transition of one volume: load, step, commit under the guard, apply.
//!
//! **Promises** that what is returned as committed is stored and seen by the next decision here;
//! that a lost race is decided anew; and that an answer without a write, a refusal too, was not
//! made on old news: before one is given, the stream's leader is asked whether this replica is
//! behind. What a caller asked for is decided no more once its [deadline] has passed.

use std::time::Duration;

use berth_bus::{Change, CommitError, Guard, MirrorError, ReadError, Write as BusWrite};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_contract::{key, record};
use berth_domain::volume::{Command, Refusal, Step, Volume, Write, step};
use berth_domain::{AllocId, VolumeKey};
use berth_service::deadline;
use berth_service::projection::{Subtree, Volumes};
use thiserror::Error;
use tokio::time::Instant;

use crate::events::Told;
use crate::state::Shared;
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
            Self::Refused(refusal) => refuse::problem(&refusal),
            Self::Problem(problem) => problem,
            Self::Unreadable(record) => record.problem(),
            Self::Commit(error) => error.into_problem(step),
            Self::Head(error) => error.into_problem(step),
            Self::Behind(error) => error.into_problem(step),
            Self::Unsettled | Self::Contended => Problem::new(Code::Overloaded, self).retryable(),
            Self::Record(error) => Problem::new(Code::Internal, error),
        };
        problem.at(step).volume(volume)
    }
}

impl Shared {
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
        let _turn = self.locks.lock(volume).await;
        let empty = Volume::default();
        // The leader's idea of the newest revision, once asked. It may be lower than ours when a
        // marker was purged; then the volume was read again, and the guard is compared with what is
        // left.
        let mut leader_head = None;
        for _ in 0..RACES_MAX {
            let context = self.context();
            let (head, command, decided, before, plugin) = self.volume_mirror.read(|volumes| {
                let subtree = volumes.get(volume);
                if let Some(record) = subtree.and_then(Subtree::first_unreadable) {
                    return Err(TransactError::Unreadable(record.clone()));
                }
                let now = subtree.map_or(&empty, |subtree| &subtree.volume);
                let command = command(now)?;
                let decided = step(now, &command, &context);
                let before = match &decided {
                    Ok(Step { write: Some(write), .. }) => before(subtree, write),
                    _ => None,
                };
                let plugin = now.spec.as_ref().map(|spec| spec.plugin.clone());
                let head = subtree.map_or(0, |subtree| subtree.head);
                Ok((head, command, decided, before, plugin))
            })?;
            let decided = match decided {
                Ok(decided) => decided,
                Err(refusal) if leader_head.is_some() => return Err(refusal.into()),
                Err(_) => {
                    leader_head = Some(self.catch_up(volume).await?);
                    continue;
                }
            };
            let Some(write) = &decided.write else {
                let Some(revision) = leader_head else {
                    // Nothing is written, so no guard tells whether what is known here still holds.
                    leader_head = Some(self.catch_up(volume).await?);
                    continue;
                };
                return Ok(Committed { step: decided, revision });
            };
            still()?;
            let passage = passage(volume, write, before.as_ref());
            let trail = passage.map(|passage| passage.trail(trace, context.now));
            match self.store(volume, write, trail, leader_head.unwrap_or(head), trace).await? {
                Some(revision) => {
                    if let (Some(passage), Some(trail)) = (passage, &trail) {
                        passage.emit(trail, &self.policy);
                        measure::stored(&passage, &command, plugin.as_ref(), context.now);
                    }
                    let (before, now) = (before.as_ref(), context.now);
                    let command = &command;
                    let told = Told { volume, command, write, before, trail, trace, now };
                    if told.is_news() {
                        let event = told.event(&self.policy);
                        self.events.publish(&event.subject(), &event, told.context());
                    }
                    return Ok(Committed { step: decided, revision });
                }
                None => leader_head = Some(self.catch_up(volume).await?),
            }
        }
        Err(TransactError::Contended)
    }

    /// Refuses unless every record of the volume can be read, as far as this replica knows them.
    /// Without one of them it is not known who holds the volume.
    pub fn check_readable(&self, volume: &VolumeKey) -> Result<(), TransactError> {
        self.volume_mirror.read(|volumes| {
            let record = volumes.get(volume).and_then(Subtree::first_unreadable);
            record.map_or(Ok(()), |record| Err(TransactError::Unreadable(record.clone())))
        })
    }

    /// Applies everything up to the leader's newest revision of the volume, and returns that. When
    /// it is lower than what was seen here, this replica may have missed a delete: then the volume
    /// is read again at the leader.
    pub async fn catch_up(&self, volume: &VolumeKey) -> Result<u64, TransactError> {
        let filter = key::subtree(volume);
        let seen = |volumes: &Volumes| volumes.get(volume).map_or(0, |subtree| subtree.head);
        let seen = self.volume_mirror.read(seen);
        let head = self.volumes.head(&filter).await.map_err(TransactError::Head)?;
        if head < seen {
            let read = self.volume_mirror.read_again(&filter).await;
            return read.map_err(TransactError::Head)?.ok_or(TransactError::Unsettled);
        }
        let deadline = Instant::now() + CATCH_UP;
        self.volume_mirror.reach(head, deadline).await.map_err(TransactError::Behind)?;
        Ok(head)
    }

    /// One guarded write; none when the race was lost.
    pub(crate) async fn store(
        &self,
        volume: &VolumeKey,
        write: &Write,
        trail: Option<Trail>,
        head: u64,
        trace: TraceContext,
    ) -> Result<Option<u64>, TransactError> {
        let id = Some(trace.trace_id());
        let (key, value) = match write {
            Write::PutSpec(spec) => (key::spec(volume), Some(record::write(spec, id))),
            Write::DeleteSpec => (key::spec(volume), None),
            Write::PutClaim(alloc, claim) => {
                let value = match trail {
                    Some(trail) => record::write_claim(claim, trail),
                    None => record::write(claim, id),
                };
                (key::claim(volume, alloc), Some(value))
            }
            Write::DeleteClaim(alloc) => (key::claim(volume, alloc), None),
        };
        let value = value.transpose().map_err(TransactError::Record)?;
        let operation = berth_service::clock::new_attempt();
        let _committing = self.volume_mirror.committing().await;
        let stored = self
            .volumes
            .commit(BusWrite {
                key: &key,
                change: match &value {
                    Some(value) => Change::Put(value.clone().into()),
                    None => Change::Delete,
                },
                guard: Guard { filter: &key::subtree(volume), revision: head },
                operation: operation.as_str(),
                trace,
            })
            .await;
        match stored {
            Ok(revision) => {
                match value {
                    Some(value) => self.volume_mirror.put(&key, revision, &value),
                    None => self.volume_mirror.delete(&key, revision),
                }
                Ok(Some(revision))
            }
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(error) => Err(TransactError::Commit(error)),
        }
    }
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
