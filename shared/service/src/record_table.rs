//! The records of one bucket: read at the stream's leader, written one at a time under a guard.
//!
//! **Owns** the one loop that reads records, decides, and writes under the revisions that were
//! read. It repeats all of that when another writer was faster ([`retry_lost_races`]).
//!
//! **Promises** that a lost race stores nothing, and that a record of a newer version is never
//! overwritten. The mirror shows a write before the write returns.
//!
//! **Never** decides a write from the mirror: the mirror may be behind the leader.

use std::future::Future;
use std::time::Duration;

use berth_bus::{
    Ask, Bucket, Change, CommitError, Entry, Fold, Guard, Mirror, MirrorOptions, ReadError, Write,
    caller,
};
use berth_contract::bucket::BucketSpec;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::record::{self, RecordError, UnreadableRecord};
use berth_contract::trace::TraceContext;
use serde::Serialize;
use thiserror::Error;
use tokio::time::Instant;

use crate::process::{self, Fatal, Process};

/// Lost races after which the caller gets a retryable error.
const LOST_RACES_MAX: u32 = 8;

/// Runs the attempt until it loses no race. An attempt reads at the leader, decides, and writes
/// under the revisions that it read.
pub async fn retry_lost_races<T, F>(attempt: impl Fn() -> F) -> Result<T, Problem>
where
    F: Future<Output = Result<T, StoreError>>,
{
    for _ in 1..LOST_RACES_MAX {
        match attempt().await {
            Err(StoreError::LostRace) => {}
            done => return done.map_err(Problem::from),
        }
    }
    attempt().await.map_err(Problem::from)
}

/// Why a record was not read or not written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A newer version wrote the record, or it is damaged and no report repeats what it says.
    #[error("{0}")]
    Unreadable(UnreadableRecord),
    /// The leader did not answer.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The write failed, and not because of another writer.
    #[error(transparent)]
    Commit(CommitError),
    /// Another writer changed the record after it was read.
    #[error("other writers changed the records {LOST_RACES_MAX} times in a row")]
    LostRace,
    /// The records do not allow the request.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// The record could not be written as JSON.
    #[error("the record could not be written")]
    Encode(#[from] serde_json::Error),
}

/// The answer to the caller whose request met this error.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unreadable(record) => record.problem(),
            StoreError::Read(error) => Problem::from(error),
            StoreError::Commit(error) => Problem::from(error),
            StoreError::Refused(problem) => problem,
            StoreError::LostRace => Self::new(Code::Overloaded, error).retryable(),
            StoreError::Encode(_) => Self::new(Code::Internal, process::chain(&error)),
        }
    }
}

impl From<CommitError> for StoreError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict { .. } => Self::LostRace,
            error => Self::Commit(error),
        }
    }
}

/// A bucket, and the mirror of all its records.
#[derive(Debug)]
pub struct RecordTable<F> {
    /// For reads at the leader.
    pub bucket: Bucket,
    /// The records as this replica knows them. The mirror may be behind the leader.
    pub mirror: Mirror<F>,
}

/// Opens a bucket, and logs settings that another tool changed.
pub async fn open_bucket(process: &Process, spec: &BucketSpec) -> Result<Bucket, Fatal> {
    let bucket = process.bus.bucket(spec, process.replicas).await?;
    for drift in bucket.drift() {
        tracing::warn!(bucket = bucket.name(), %drift, "the bucket is not as it should be");
    }
    Ok(bucket)
}

impl<F: Fold> RecordTable<F> {
    /// Opens the bucket and reads all of it.
    pub async fn open(process: &Process, spec: &BucketSpec, fold: F) -> Result<Self, Fatal> {
        let bucket = open_bucket(process, spec).await?;
        let mirror = Mirror::start(&bucket, ">", fold, MirrorOptions::default()).await?;
        Ok(Self { bucket, mirror })
    }

    /// The key's revision, also that of a delete marker, and its record, as the leader has them.
    pub async fn read<T: record::Body>(&self, key: &str) -> Result<(u64, Option<T>), StoreError> {
        let entry = self.bucket.get(key).await?;
        let revision = entry.as_ref().map_or(0, |entry| entry.revision);
        Ok((revision, decode(key, entry)?))
    }

    /// Waits until the mirror shows every write that was acknowledged before the call. Callers at
    /// the same time cost one question to the leader. Only for a bucket that this process writes.
    /// The mirror may take so long to come as far as the leader.
    pub async fn catch_up(&self, within: Duration) -> Result<(), Problem> {
        let newest = self.bucket.newest_together(Ask::ByWrite).await?;
        let deadline = caller::earlier_deadline(Instant::now() + within);
        Ok(self.mirror.reach(newest, deadline).await?)
    }

    /// The record as the leader has it. An absence is confirmed at a quorum, for a caller that acts
    /// on it without a guarded write of its own.
    pub async fn read_surely<T: record::Body>(
        &self,
        key: &str,
        trace: TraceContext,
    ) -> Result<Option<T>, StoreError> {
        let entry = self.bucket.get_surely(key, trace).await?;
        decode(key, entry)
    }

    /// Confirms at a quorum that the key, which had no record at that revision, still has none.
    pub async fn confirm_absence(
        &self,
        key: &str,
        revision: u64,
        trace: TraceContext,
    ) -> Result<(), StoreError> {
        let guard = Guard { filter: key, revision };
        let confirmed = self.bucket.confirm_absence(key, guard, trace).await?;
        confirmed.map(drop).ok_or(StoreError::LostRace)
    }

    /// Writes the record if its key is still at that revision. Returns the new revision.
    pub async fn put(
        &self,
        key: &str,
        body: &impl Serialize,
        revision: u64,
        trace: TraceContext,
    ) -> Result<u64, StoreError> {
        let value = record::write(body, Some(trace.trace_id()))?;
        let revision = self.commit(key, Change::Put(value.clone().into()), revision, trace).await?;
        self.mirror.put(key, revision, &value).await;
        Ok(revision)
    }

    /// Deletes the record if its key is still at that revision.
    pub async fn delete(
        &self,
        key: &str,
        revision: u64,
        trace: TraceContext,
    ) -> Result<(), StoreError> {
        let revision = self.commit(key, Change::Delete, revision, trace).await?;
        self.mirror.delete(key, revision).await;
        Ok(())
    }

    async fn commit(
        &self,
        key: &str,
        change: Change,
        revision: u64,
        trace: TraceContext,
    ) -> Result<u64, StoreError> {
        let guard = Guard { filter: key, revision };
        let write = Write { key, change, guard, operation: &trace.trace_id(), trace };
        Ok(self.bucket.commit(write).await?)
    }
}

fn decode<T: record::Body>(key: &str, entry: Option<Entry>) -> Result<Option<T>, StoreError> {
    let Some(value) = entry.and_then(|entry| entry.value) else { return Ok(None) };
    match record::read::<T>(&value) {
        Ok(record) => Ok(Some(record.body)),
        Err(error @ RecordError::Unreadable(_)) if T::IS_REPORTED_AGAIN => {
            tracing::error!(
                key,
                error = process::chain(&error),
                "the record is damaged; the next report replaces it"
            );
            Ok(None)
        }
        Err(error) => Err(StoreError::Unreadable(error.unreadable_at(key))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn an_attempt_is_repeated_after_lost_races_only_and_a_bounded_number_of_times() {
        let attempts = AtomicU32::new(0);
        let lose_until = |last: u32| {
            let attempts = &attempts;
            move || async move {
                match attempts.fetch_add(1, Ordering::Relaxed) + 1 {
                    attempt if attempt < last => Err(StoreError::LostRace),
                    attempt => Ok(attempt),
                }
            }
        };
        assert_eq!(retry_lost_races(lose_until(3)).await.unwrap(), 3);
        attempts.store(0, Ordering::Relaxed);
        let busy = retry_lost_races(lose_until(u32::MAX)).await.unwrap_err();
        assert!(busy.code == Code::Overloaded && busy.retryable, "{busy}");
        assert_eq!(attempts.load(Ordering::Relaxed), LOST_RACES_MAX);
        let refused = || async { Err::<(), _>(Problem::new(Code::Internal, "no").into()) };
        assert_eq!(retry_lost_races(refused).await.unwrap_err().code, Code::Internal);
    }
}
