//! Absence that can be relied on.
//!
//! **Owns** [`Bucket::confirm_absence`] and [`Bucket::get_surely`]. A leader that was deposed and
//! does not know it yet answers what it has, for up to 20 s (nats-server looks for its quorum every
//! 10 s). What was written at its successor is not there for it. Whoever writes next is told by the
//! guard; whoever is refused because something is not there is told by nobody.
//!
//! **Promises** that what is said to be absent was so at a leader with a quorum: a marker is
//! stored, guarded by what was read. In a bucket with one copy there is no second leader, and
//! nothing is written.

use berth_contract::trace::TraceContext;

use crate::bucket::Bucket;
use crate::cause::Cause;
use crate::read::{Entry, ReadError};
use crate::write::{Change, CommitError, Guard, Write};

/// What made these writes.
const OPERATION: &str = "absence";
/// How often a key is read again because it was written meanwhile.
const TRIES: u32 = 32;

impl Bucket {
    /// Stores at `key`, which has no value, that nothing was written below the guard since. Answers
    /// the revision that the guard's filter has then; none when something was written.
    pub async fn confirm_absence(
        &self,
        key: &str,
        guard: Guard<'_>,
        trace: TraceContext,
    ) -> Result<Option<u64>, CommitError> {
        if !self.shape.has_copies {
            return Ok(Some(guard.revision));
        }
        let write = Write { key, change: Change::Delete, guard, operation: OPERATION, trace };
        match self.commit(write).await {
            Ok(revision) => Ok(Some(revision)),
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`get`](Self::get); that a key has no value is answered only once it is confirmed.
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
        Err(unread(Cause::new("the key is written all the time")))
    }
}
