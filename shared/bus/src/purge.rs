//! The second half of a delete: what was deleted goes for good, once its marker is old.
//!
//! **Owns** how a key that was deleted ([`Change::Delete`](crate::Change::Delete)) leaves a bucket
//! that keeps history: its values and its marker in one purge, or not at all. The server may forget
//! one purge of two when it is killed twice: what it took away then is there again. A value without
//! the marker above it would be a record that nobody deleted (decision 0030).
//!
//! **Promises** that nothing newer than a marker is touched, however late a purge arrives and
//! however often: each ends at the marker's own revision. A key that was written anew keeps what it
//! has since. So any number of replicas may do this at once.
//!
//! **Never** takes the newest message of a subtree that guards cover
//! ([`BucketSpec::guard_tokens`](berth_contract::bucket::BucketSpec)) while anything else is in it:
//! such a marker stays until something newer is written there. So the head of a subtree never falls
//! to an earlier revision, and a guard never passes for a reader that missed the delete (decision
//! 0022). When the marker is all that is left it goes: nothing older can be equal to 0.
//!
//! **Never** takes a marker that is younger than [`Bucket::marker_ttl`]: a mirror that was away for
//! less learns from it what is gone. The age is the server's, by its own clock. Nor one that as few
//! writes have followed as may stand in one file with it: such a purge a server may forget.

use std::collections::HashMap;

use berth_telemetry::metric::{BUCKETS, KEYS_PURGED};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;

use crate::bucket::Bucket;
use crate::cause::Cause;
use crate::read::Entry;

/// How many messages are read at once, and how large they are together.
const READ_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;
/// How many keys are purged at once. Nobody waits for it.
const AT_ONCE: usize = 2;

/// How far a bucket was looked through. The default is its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgePosition {
    /// Of which stream.
    created: String,
    /// The first revision that was not looked at.
    next: u64,
    /// Markers that stay as the newest message of their subtree, by its filter.
    kept: HashMap<String, Entry>,
}

/// How many such markers are remembered; those beyond stay until a process that starts finds them.
const KEPT_MAX: usize = 100_000;

/// Why deleted keys are still there. Nothing is wrong with that but the room they take.
#[derive(Debug, Error)]
#[error("deleted keys of bucket {bucket} could not be purged now; it is tried again")]
pub struct PurgeError {
    bucket: String,
    #[source]
    source: Cause,
}

impl Bucket {
    /// Purges the keys that were deleted longer ago than markers stay, from `place` on, and leaves
    /// `place` where the next call is to go on. Answers how many there were.
    ///
    /// May be dropped at any moment: what was done stays done, and the rest is found again.
    pub async fn purge_deleted(&self, place: &mut PurgePosition) -> Result<u64, PurgeError> {
        let purged = self.purge_from(place).await;
        purged.map_err(|source| PurgeError { bucket: self.name().to_owned(), source })
    }

    async fn purge_from(&self, place: &mut PurgePosition) -> Result<u64, Cause> {
        let stream = self.bus.describe(&self.shape.stream).await.map_err(Cause::from)?;
        let now = stream.now()?;
        if place.created != stream.created || place.next > stream.state.last_seq + 1 {
            *place = PurgePosition { created: stream.created, next: 1, kept: HashMap::new() };
        }
        let mut keys = 0;
        while place.next <= stream.state.last_seq {
            let mut read = self.read_on(place.next).await?;
            let is_young = |at: &Entry| {
                now.since(at.created) < self.marker_ttl()
                    || stream.state.last_seq < at.revision + self.shape.purged_after
            };
            let young = read.iter().position(is_young);
            read.truncate(young.unwrap_or(read.len()));
            let Some(next) = read.last().map(|last| last.revision + 1) else { break };
            let mut markers = Vec::new();
            for entry in read {
                // A marker that stayed is not the newest any more.
                if !place.kept.is_empty() {
                    markers.extend(place.kept.remove(&self.guard_filter(&entry.key)));
                }
                markers.extend(Some(entry).filter(|entry| entry.value.is_none()));
            }
            let each = stream::iter(markers).map(|marker| self.purge_with(marker));
            let mut each = std::pin::pin!(each.buffer_unordered(AT_ONCE));
            while let Some(kept) = each.try_next().await? {
                match kept {
                    None => keys += 1,
                    Some(marker) if place.kept.len() < KEPT_MAX => {
                        place.kept.insert(self.guard_filter(&marker.key), marker);
                    }
                    Some(_) => {}
                }
            }
            place.next = next;
            if young.is_some() {
                break;
            }
        }
        Ok(keys)
    }

    /// The next messages from a revision on.
    async fn read_on(&self, from: u64) -> Result<Vec<Entry>, Cause> {
        let mut read = Vec::new();
        let question = json!({ "seq": from, "batch": READ_MAX, "max_bytes": BYTES_MAX });
        self.batch(question, |entry| read.push(entry)).await?;
        Ok(read)
    }

    /// Takes away a marker with what is older of its key; answers it when it is to stay.
    async fn purge_with(&self, marker: Entry) -> Result<Option<Entry>, Cause> {
        #[derive(Deserialize)]
        struct Done {}
        if self.must_stay(&marker).await? {
            return Ok(Some(marker));
        }
        // A purge takes what is before a sequence, and not what stands there.
        let before = marker.revision + 1;
        let what = json!({ "filter": self.subject(&marker.key), "seq": before });
        let subject = format!("$JS.API.STREAM.PURGE.{}", self.shape.stream);
        let Done {} = self.bus.api(subject, &what).await.map_err(Cause::from)?;
        KEYS_PURGED.add(1, [BUCKETS.label(self.name())]);
        Ok(None)
    }

    /// Whether a marker is the newest message below its guard's filter, and not alone there with
    /// its own key's values.
    async fn must_stay(&self, marker: &Entry) -> Result<bool, Cause> {
        let filter = self.guard_filter(&marker.key);
        if filter == marker.key || self.head(&filter).await.map_err(Cause::new)? > marker.revision {
            return Ok(false);
        }
        let mut seen = 0;
        while let Some(next) = self.first_after(&filter, seen).await.map_err(Cause::new)?
            && next.sequence < marker.revision
        {
            if self.key(&next.subject) != Some(marker.key.as_str()) {
                return Ok(true);
            }
            seen = next.sequence;
        }
        Ok(false)
    }

    fn guard_filter(&self, key: &str) -> String {
        self.shape.spec.guard_filter(key)
    }
}
