//! Absence that can be relied on.
//!
//! **Owns** [`Bucket::confirm_absence`] and [`Bucket::get_surely`]. A deposed leader answers reads
//! from its copy until it notices, for up to 20 s: nats-server checks its quorum every 10 s. It
//! lacks the writes that its successor stored. A guarded write reveals that, because its guard
//! fails. A refusal because a record is missing writes nothing, so nothing reveals it.
//!
//! **Promises** that a reported absence held at a leader with a quorum: a delete marker is stored,
//! guarded by the revision that was read. On a server that is in no cluster there is no second
//! leader, and nothing is written.

use berth_contract::trace::TraceContext;

use crate::cause::Cause;
use crate::store::bucket::Bucket;
use crate::store::read::{Entry, ReadError};
use crate::store::write::{Change, CommitError, Guard, Write};

const OPERATION: &str = "absence";
/// Reads of a key that other writers keep changing, before [`Bucket::get_surely`] fails.
const TRIES: u32 = 32;

impl Bucket {
    /// Stores a delete marker at `key`, which has no value, if nothing below the guard's filter was
    /// written since. Returns the filter's newest revision after that; `None` if something was
    /// written.
    pub async fn confirm_absence(
        &self,
        key: &str,
        guard: Guard<'_>,
        trace: TraceContext,
    ) -> Result<Option<u64>, CommitError> {
        if !self.may_change_leader() {
            return Ok(Some(guard.revision));
        }
        let write = Write { key, change: Change::Delete, guard, operation: OPERATION, trace };
        match self.commit(write).await {
            Ok(revision) => Ok(Some(revision)),
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`get`](Self::get), but confirms that a key has no value before it says so.
    pub async fn get_surely(
        &self,
        key: &str,
        trace: TraceContext,
    ) -> Result<Option<Entry>, ReadError> {
        let unread = |source| ReadError::Unavailable { bucket: self.name().to_owned(), source };
        for _ in 0..TRIES {
            let entry = self.get(key).await?;
            if entry.as_ref().is_some_and(|entry| entry.value.is_some()) {
                return Ok(entry);
            }
            let guard = Guard { filter: key, revision: entry.map_or(0, |entry| entry.revision) };
            let absent = self.confirm_absence(key, guard, trace).await;
            if absent.map_err(|error| unread(Cause::new(error)))?.is_some() {
                return Ok(None);
            }
        }
        Err(unread(Cause::new("other writers change the key all the time")))
    }
}
