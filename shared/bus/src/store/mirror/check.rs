//! Compares a mirror with its bucket now and then, beside the feed that keeps it current.
//!
//! **Promises** that nobody waits for a comparison: the feed goes on, and the server sends the keys
//! without their values, at a bounded rate.
//!
//! **Never** mends anything. A difference is a fault: a message never came, or was removed by hand.
//! The follower then reads all keys again.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_telemetry::metric::{BUCKETS, MIRROR_COMPARISONS};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rand::RngExt as _;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout_at};

use super::fold::Fold;
use super::state::MirrorShared;
use super::table::ComparedMessage;
use crate::cause::{Cause, chain};
use crate::incarnation::loss::BucketLoss;
use crate::store::compare::CompareError;
use crate::store::read::{ReadError, value};
use crate::stream::feed::{Delivery, Feed, FeedError, FeedItem, FeedSpec, FeedStart};

/// The slowest comparison, in keys a second.
const KEYS_PER_SECOND_MIN: u64 = 1000;
/// The size of a message without its value, as the server counts it for the rate. A guess: it
/// decides only how long a comparison takes.
const KEY_BITS: u64 = 512 * 8;
/// How long the mirror may take to reach the revision that it is compared at.
const REACH_WITHIN: Duration = Duration::from_secs(30);
/// Keys that are looked at again at the leader, at most. One that differs is enough.
const DOUBTS_MAX: usize = 1000;
/// Most requests to the leader in progress while keys are looked at again.
const READS_AT_ONCE: usize = 8;
/// This many comparisons without a result in a row are told in the log. One is no fault: a server
/// was restarted meanwhile, for example.
const FAILURES_TOLD: u32 = 3;
/// Keys that differ and are named in the log, at most.
const NAMED_MAX: usize = 5;

/// Why a comparison has no result.
#[derive(Debug, Error)]
enum NoResult {
    #[error(transparent)]
    Feed(#[from] FeedError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the stream's state cannot be read")]
    Unread(#[source] Cause),
    #[error(transparent)]
    Lost(#[from] BucketLoss),
    #[error("the mirror is not current")]
    Behind,
    #[error("all keys are being read again")]
    ReadAgain,
}

impl From<CompareError> for NoResult {
    fn from(error: CompareError) -> Self {
        match error {
            CompareError::Lost(loss) => Self::Lost(loss),
            CompareError::Unread(cause) => Self::Unread(cause),
        }
    }
}

/// Compares for as long as the mirror lives.
pub(super) async fn now_and_then<F: Fold>(shared: Arc<MirrorShared<F>>) -> Infallible {
    let bucket = shared.bucket.name();
    let mut failures = 0;
    loop {
        sleep(jittered(shared.options.check_every)).await;
        let compared = compare(&shared).await;
        let result = match &compared {
            Ok(different) if different.is_empty() => "same",
            Ok(_) => "differs",
            Err(_) => "none",
        };
        MIRROR_COMPARISONS.add(1, [BUCKETS.label(bucket), result.into()]);
        match compared {
            Ok(different) if different.is_empty() => failures = 0,
            Ok(different) => {
                failures = 0;
                tracing::warn!(bucket, ?different, "the mirror differs; all keys are read again");
            }
            Err(error) => {
                failures += 1;
                let why = chain(&error);
                if failures == FAILURES_TOLD {
                    tracing::warn!(bucket, failures, why, "the mirror cannot be compared");
                } else {
                    tracing::debug!(bucket, failures, why, "the mirror was not compared");
                }
            }
        }
    }
}

/// Some of the keys that differ.
async fn compare<F: Fold>(shared: &MirrorShared<F>) -> Result<Vec<String>, NoResult> {
    let bucket = &shared.bucket;
    let (stream, _) = bucket.compare_stream().await?;
    let incarnation = bucket.incarnation();
    // From here on everything up to this revision was applied.
    let head = bucket.head_now(&shared.filter).await?;
    reach(shared, head).await?;
    let reading = shared.table_mut().begin_comparison().ok_or(NoResult::ReadAgain)?;
    let doubts = read_keys(shared, reading, head, stream.state.messages).await?;
    let looks = stream::iter(doubts).map(async |key| {
        let differs = differs(shared, &key, head).await?;
        Ok::<_, NoResult>(differs.then_some(key.into_string()))
    });
    let looks = looks.buffer_unordered(READS_AT_ONCE).try_filter_map(async |key| Ok(key));
    let different: Vec<String> = looks.take(NAMED_MAX).try_collect().await?;
    // What was read of another stream says nothing.
    bucket.compare_stream().await?;
    if bucket.incarnation() != incarnation {
        return Err(NoResult::ReadAgain);
    }
    if !different.is_empty() {
        shared.differs.send_replace(reading);
    }
    Ok(different)
}

async fn reach<F: Fold>(shared: &MirrorShared<F>, head: u64) -> Result<(), NoResult> {
    let mut progress = shared.progress.subscribe();
    let reached =
        progress.wait_for(|progress| progress.applied >= head && progress.stale_since.is_none());
    match timeout_at(Instant::now() + REACH_WITHIN, reached).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(NoResult::Behind),
    }
}

/// Reads the keys up to `head`, without their values. Returns those that the mirror may hold
/// otherwise.
async fn read_keys<F: Fold>(
    shared: &MirrorShared<F>,
    reading: u32,
    head: u64,
    messages: u64,
) -> Result<Vec<Box<str>>, NoResult> {
    let bucket = &shared.bucket;
    let filter = [bucket.subject(&shared.filter)];
    let spec = FeedSpec {
        stream: &bucket.shape.stream,
        subjects: if shared.filter == ">" { &[] } else { &filter },
        start: FeedStart::From(1),
        heartbeat: shared.options.heartbeat,
        keys_only_bits_per_second: Some(rate(messages, shared.options.check_every)),
    };
    let mut feed = Feed::open(&bucket.bus, spec).await?;
    let (mut pending, mut at) = (feed.pending, 0);
    let mut doubts = HashSet::new();
    while pending > 0 && at < head {
        match feed.next().await? {
            FeedItem::Idle(sequence) => (pending, at) = (0, sequence),
            FeedItem::Message(message) => {
                (pending, at) = (message.pending, message.sequence);
                if at <= head {
                    see(shared, reading, &message, &mut doubts)?;
                }
            }
        }
    }
    let unseen = shared.table().unseen_by(reading, head).ok_or(NoResult::ReadAgain)?;
    doubts.extend(unseen.into_iter().map(|(key, _)| key));
    Ok(doubts.into_iter().take(DOUBTS_MAX).collect())
}

fn see<F: Fold>(
    shared: &MirrorShared<F>,
    reading: u32,
    message: &Delivery,
    doubts: &mut HashSet<Box<str>>,
) -> Result<(), NoResult> {
    let Some(key) = shared.bucket.key(&message.subject) else { return Ok(()) };
    let seen = shared.table_mut().see(reading, key, message.sequence);
    let is_live = value(&message.headers, &message.payload).is_some();
    match seen.ok_or(NoResult::ReadAgain)? {
        ComparedMessage::Known => {}
        // Its marker comes later, or came after the comparison began.
        ComparedMessage::Unknown if is_live => {
            doubts.insert(key.into());
        }
        ComparedMessage::Unknown => {
            doubts.remove(key);
        }
    }
    Ok(())
}

/// Whether the leader's newest message of the key, up to a revision that the mirror had reached
/// before, is another than the mirror holds.
async fn differs<F: Fold>(
    shared: &MirrorShared<F>,
    key: &str,
    head: u64,
) -> Result<bool, NoResult> {
    let known = shared.table().live_revision(key);
    if known.is_some_and(|known| known > head) {
        return Ok(false);
    }
    let newest = shared.bucket.last(key).await?;
    if newest.as_ref().is_some_and(|message| message.sequence > head) {
        // The feed brings it.
        return Ok(false);
    }
    let newest = newest.filter(|message| value(&message.headers, &message.payload).is_some());
    if newest.map(|message| message.sequence) == known {
        return Ok(false);
    }
    // It was deleted meanwhile, and its marker removed.
    reach(shared, shared.bucket.head_now(&shared.filter).await?).await?;
    Ok(shared.table().live_revision(key) == known)
}

/// Bits a second with which a comparison takes half of the time between two of them.
fn rate(messages: u64, check_every: Duration) -> u64 {
    let half_ms = u64::try_from(check_every.as_millis() / 2).unwrap_or(u64::MAX).max(1);
    (messages.saturating_mul(1000) / half_ms).max(KEYS_PER_SECOND_MIN).saturating_mul(KEY_BITS)
}

/// The time plus or minus up to a quarter, so that the services of a fleet do not all read at once.
fn jittered(every: Duration) -> Duration {
    every.mul_f64(0.75 + 0.5 * rand::rng().random::<f64>())
}
