//! The second half of a delete: marker and values are purged once the marker is old.
//!
//! **Owns** how a deleted key ([`Change::Delete`](crate::Change::Delete)) leaves a bucket that
//! keeps history: its values and its marker in one purge, or not at all. A server that is killed
//! twice may forget one purge of two, and what that purge removed is there again. A value without
//! the marker above it would look like a record that was not deleted (decision 0030).
//!
//! **Promises** that a purge never removes what is newer than its marker, however late and often it
//! arrives: it ends at the marker's revision. A key that was written again keeps its new values. So
//! any number of replicas may purge at once.
//!
//! **Never** purges the newest message of a subtree that guards cover
//! ([`BucketSpec::guard_tokens`](berth_contract::bucket::BucketSpec)) while the subtree has
//! messages of other keys. Such a marker stays until something newer is written there. So the head
//! of a subtree never falls to an earlier revision, and a guard never passes for a reader that
//! missed the delete (decision 0022). A marker that is alone is purged: the head falls to 0, which
//! no earlier head equals.
//!
//! **Never** purges a marker younger than [`Bucket::marker_ttl`], by the server's clock: a mirror
//! that was away for less learns from the marker which key is gone. Never purges a marker that so
//! few writes followed that they may share a file with it: the server may forget such a purge.

use std::collections::HashMap;

use berth_telemetry::metric::{BUCKETS, KEYS_PURGED};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::incarnation::standing::Footing;
use crate::store::bucket::Bucket;
use crate::store::read::Entry;

/// Most messages of one read, and most bytes.
const READ_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;
/// Keys purged at once. No request waits for a purge.
const PURGES_AT_ONCE: usize = 2;

/// How far a bucket was searched for markers. The default is its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgePosition {
    /// The creation time of the stream.
    created: String,
    /// The first revision that was not read.
    next: u64,
    /// Markers that stay as the newest message of their subtree, by its filter.
    kept: HashMap<String, Entry>,
}

/// Most markers in `kept`. Markers beyond that stay until a process that starts finds them.
const KEPT_MAX: usize = 100_000;

/// Why deleted keys remain. They only take up room.
#[derive(Debug, Error)]
#[error("deleted keys of bucket {bucket} could not be purged now; it is tried again")]
pub struct PurgeError {
    bucket: String,
    #[source]
    source: Cause,
}

impl Bucket {
    /// Purges the keys that were deleted longer ago than markers stay. Begins at `place`, and sets
    /// it to where the next call continues. Returns how many keys were purged.
    ///
    /// Cancel-safe: what was purged stays purged, and the next call finds the rest.
    pub async fn purge_deleted(&self, place: &mut PurgePosition) -> Result<u64, PurgeError> {
        let purged = self.purge_from(place).await;
        purged.map_err(|source| PurgeError { bucket: self.name().to_owned(), source })
    }

    async fn purge_from(&self, place: &mut PurgePosition) -> Result<u64, Cause> {
        let footing = self.shape.standing.footing();
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
            let Some(next_revision) = read.last().map(|last| last.revision + 1) else { break };
            let mut markers = Vec::new();
            for entry in read {
                // A marker that stayed may not be the newest message of its subtree any more.
                if !place.kept.is_empty() {
                    markers.extend(place.kept.remove(&self.guard_filter(&entry.key)));
                }
                markers.extend(Some(entry).filter(|entry| entry.value.is_none()));
            }
            let purges = stream::iter(markers).map(|marker| self.purge_with(marker, footing));
            let mut purges = std::pin::pin!(purges.buffer_unordered(PURGES_AT_ONCE));
            while let Some(kept) = purges.try_next().await? {
                match kept {
                    None => keys += 1,
                    Some(marker) if place.kept.len() < KEPT_MAX => {
                        place.kept.insert(self.guard_filter(&marker.key), marker);
                    }
                    Some(_) => {}
                }
            }
            place.next = next_revision;
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

    /// Purges a marker and the older values of its key. Returns the marker if it must stay.
    async fn purge_with(&self, marker: Entry, footing: Footing) -> Result<Option<Entry>, Cause> {
        #[derive(Deserialize)]
        struct Done {}
        if self.must_stay(&marker).await? {
            return Ok(Some(marker));
        }
        // A purge removes the messages below a sequence, but not the message at the sequence.
        let purged_below = marker.revision + 1;
        let request = json!({ "filter": self.subject(&marker.key), "seq": purged_below });
        let subject = format!("$JS.API.STREAM.PURGE.{}", self.shape.stream);
        // In a restored stream the same key may have a value below that sequence.
        let deadline = Instant::now() + self.bus.config().request_timeout;
        self.check_footing(footing, deadline).await.map_err(Cause::from)?;
        let Done {} = self.bus.api(subject, &request).await.map_err(Cause::from)?;
        KEYS_PURGED.add(1, [BUCKETS.label(self.name())]);
        Ok(None)
    }

    /// Whether a marker is the newest message below its guard's filter, and other keys have
    /// messages there.
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
