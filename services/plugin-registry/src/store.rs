//! Reading at the leader and writing one key at a time.
//!
//! **Promises** that each write is guarded by the revision at which its key was read, so that a
//! lost race stores nothing, and that a record of a newer version is never written over.

use std::collections::{BTreeSet, HashMap};

use berth_bus::{Bucket, Change, CommitError, Fold, Guard, Mirror, ReadError, Write as BusWrite};
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::problem::Problem;
use berth_contract::record::{self, RecordError, UnreadableRecord};
use berth_contract::trace::TraceContext;
use berth_domain::NodeId;
use berth_domain::plugin::Job;
use serde::Serialize;
use thiserror::Error;

use crate::decide::{InstanceKey, NodeRecords, Write};
use crate::state::StateInner;

/// How often a lost race is run again before the caller is told to come back.
const RACES_MAX: u32 = 5;

/// Counts the races that a read-modify-write lost. Its caller loops over the attempts: an async
/// closure's future is not `Send` as an endpoint needs it.
#[derive(Default)]
pub struct LostRaces(u32);

impl LostRaces {
    /// The outcome of the attempt; none when it lost a race and is to be run again.
    pub fn outcome<T>(
        &mut self,
        step: &str,
        attempt: Result<T, StoreError>,
    ) -> Option<Result<T, Problem>> {
        match attempt {
            Err(error) if error.is_lost_race() => {
                self.0 += 1;
                (self.0 >= RACES_MAX).then(|| Err(StoreError::Contended.into_problem(step)))
            }
            done => Some(done.map_err(|error| error.into_problem(step))),
        }
    }
}

/// Why a record was not written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A newer version wrote the record, or it is damaged and says what nobody reports again.
    #[error("{0}")]
    Unreadable(UnreadableRecord),
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be stored, or somebody was faster.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Other writers were faster too often.
    #[error("others changed the records {RACES_MAX} times in a row")]
    Contended,
    /// The records do not allow it.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// It could not be written as JSON.
    #[error("the record could not be written")]
    Record(#[from] serde_json::Error),
}

impl StoreError {
    /// Whether looking again is all that is needed.
    pub fn is_lost_race(&self) -> bool {
        matches!(self, Self::Commit(CommitError::Conflict { .. }))
    }

    /// What the caller is told.
    pub fn into_problem(self, step: &str) -> Problem {
        let problem = match self {
            Self::Unreadable(record) => record.problem(),
            Self::Read(error) => error.into_problem(step),
            Self::Commit(error) => error.into_problem(step),
            Self::Refused(problem) => problem,
            Self::Contended => Problem::new(Code::Overloaded, self).retryable(),
            Self::Record(_) => Problem::new(Code::Internal, berth_service::process::chain(&self)),
        };
        problem.at(step)
    }
}

/// The records that were read at the leader, each with its revision.
#[derive(Debug, Default)]
pub struct RecordSnapshot {
    /// What stands.
    pub standing: NodeRecords,
    revisions: HashMap<String, u64>,
}

impl RecordSnapshot {
    /// What a write of the key is guarded with; 0 where nothing is.
    pub fn revision(&self, key: &str) -> u64 {
        self.revisions.get(key).copied().unwrap_or(0)
    }
}

impl StateInner {
    /// Reads these instances of the node at the leader, and then the node's own record: a report
    /// that was worked in meanwhile has written it before any instance (see [`crate::decide`]).
    pub async fn look(
        &self,
        node: &NodeId,
        places: BTreeSet<InstanceKey>,
    ) -> Result<RecordSnapshot, StoreError> {
        let mut seen = RecordSnapshot::default();
        for place in places {
            let key = key::instance(&place.0, node, place.1);
            if let Some(instance) = read(&self.plugins, key, &mut seen.revisions).await? {
                seen.standing.instances.insert(place, instance);
            }
        }
        seen.standing.node = read(&self.nodes, key::node(node), &mut seen.revisions).await?;
        Ok(seen)
    }

    /// Writes one key, if it still stands as it was seen.
    pub async fn store(
        &self,
        node: &NodeId,
        seen: &RecordSnapshot,
        write: &Write,
        trace: TraceContext,
    ) -> Result<(), StoreError> {
        let instance = |(plugin, half): &InstanceKey| key::instance(plugin, node, *half);
        match write {
            Write::Node(record) => {
                let slot = Slot::new(&self.nodes, &self.node_mirror, key::node(node));
                slot.put(seen, record, trace).await
            }
            Write::Put(place, record) => {
                let slot = Slot::new(&self.plugins, &self.plugin_mirror, instance(place));
                slot.put(seen, record, trace).await
            }
            Write::Delete(place) => {
                let slot = Slot::new(&self.plugins, &self.plugin_mirror, instance(place));
                slot.delete(seen, trace).await
            }
        }
    }

    /// Reads what a job says at the leader.
    pub async fn look_at_job(
        &self,
        key: &str,
    ) -> Result<(Option<Job>, RecordSnapshot), StoreError> {
        let mut seen = RecordSnapshot::default();
        let job = read(&self.plugins, key.to_owned(), &mut seen.revisions).await?;
        Ok((job, seen))
    }

    /// Writes what a job says, or deletes it, if it still stands as it was seen.
    pub async fn store_job(
        &self,
        key: &str,
        seen: &RecordSnapshot,
        job: Option<&Job>,
        trace: TraceContext,
    ) -> Result<(), StoreError> {
        let slot = Slot::new(&self.plugins, &self.plugin_mirror, key.to_owned());
        match job {
            Some(job) => slot.put(seen, job, trace).await,
            None => slot.delete(seen, trace).await,
        }
    }

    /// Deletes the node's own record, if it still stands as it was seen.
    pub async fn delete_node(
        &self,
        node: &NodeId,
        seen: &RecordSnapshot,
        trace: TraceContext,
    ) -> Result<(), StoreError> {
        Slot::new(&self.nodes, &self.node_mirror, key::node(node)).delete(seen, trace).await
    }
}

/// Reads one record and notes its revision, also that of a delete marker.
async fn read<T: record::Body>(
    bucket: &Bucket,
    key: String,
    revisions: &mut HashMap<String, u64>,
) -> Result<Option<T>, StoreError> {
    let Some(entry) = bucket.get(&key).await? else { return Ok(None) };
    revisions.insert(key.clone(), entry.revision);
    let Some(value) = entry.value else { return Ok(None) };
    match record::read::<T>(&value) {
        Ok(record) => Ok(Some(record.body)),
        Err(error @ RecordError::Unreadable(_)) if T::IS_REPORTED_AGAIN => {
            tracing::error!(key, error = berth_service::process::chain(&error), "written over");
            Ok(None)
        }
        Err(error) => Err(StoreError::Unreadable(error.at(&key))),
    }
}

/// One key, in its bucket and in the mirror of it.
struct Slot<'a, F> {
    bucket: &'a Bucket,
    mirror: &'a Mirror<F>,
    key: String,
}

impl<'a, F: Fold> Slot<'a, F> {
    fn new(bucket: &'a Bucket, mirror: &'a Mirror<F>, key: String) -> Self {
        Self { bucket, mirror, key }
    }

    async fn put<T: Serialize>(
        &self,
        seen: &RecordSnapshot,
        body: &T,
        trace: TraceContext,
    ) -> Result<(), StoreError> {
        let value = record::write(body, Some(trace.trace_id()))?;
        let revision = self.commit(seen, Change::Put(value.clone().into()), trace).await?;
        self.mirror.put(&self.key, revision, &value).await;
        Ok(())
    }

    async fn delete(&self, seen: &RecordSnapshot, trace: TraceContext) -> Result<(), StoreError> {
        let revision = self.commit(seen, Change::Delete, trace).await?;
        self.mirror.delete(&self.key, revision).await;
        Ok(())
    }

    async fn commit(
        &self,
        seen: &RecordSnapshot,
        change: Change,
        trace: TraceContext,
    ) -> Result<u64, StoreError> {
        let write = BusWrite {
            key: &self.key,
            change,
            guard: Guard { filter: &self.key, revision: seen.revision(&self.key) },
            operation: &trace.trace_id(),
            trace,
        };
        Ok(self.bucket.commit(write).await?)
    }
}
