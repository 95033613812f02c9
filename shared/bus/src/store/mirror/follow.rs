//! The task that keeps a mirror current: it reads and applies, and starts again after any
//! interruption.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::Timestamp;
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::fold::Fold;
use super::state::MirrorShared;
use crate::cause::{Cause, chain};
use crate::connection::exchange::pause;
use crate::incarnation::loss::BucketLoss;
use crate::incarnation::standing::{Mark, Verdict};
use crate::store::compare::CompareError;
use crate::store::read::{ReadError, value};
use crate::stream::feed::{Delivery, Feed, FeedError, FeedItem, FeedSpec, FeedStart};

/// Why following ended. The task then begins again.
#[derive(Debug, Error)]
enum FollowStop {
    #[error(transparent)]
    Feed(#[from] FeedError),
    #[error("the stream's state cannot be read")]
    Unread(#[source] Cause),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the consumer lags behind the leader, which is at {0}")]
    Lag(u64),
    #[error("a comparison found that the mirror differs")]
    Differs,
    #[error("more than half of the markers' time has passed since the mirror was current")]
    Away,
    #[error(transparent)]
    Lost(#[from] BucketLoss),
    #[error("the bucket has another incarnation")]
    Replaced,
    #[error("the projection panicked")]
    Panic,
}

pub(super) struct Follower<F> {
    shared: Arc<MirrorShared<F>>,
    /// Identifies this mirror among those of the bucket.
    id: u64,
    /// The incarnation that was read, or is being read, as the standing counts them; none before
    /// the first reading and after a panic.
    generation: Option<u64>,
    generations: watch::Receiver<u64>,
    /// Comparisons that found a difference.
    differs: watch::Receiver<u32>,
    /// The server's time up to which nothing was missed. This host's clock is not used: a paused
    /// process or a suspended machine notices late or never.
    current_at: Timestamp,
    /// Whether the next reading must cover all keys.
    resync: bool,
    /// Multiplies the silence that is accepted. It grows with each try that did not catch up.
    /// Otherwise a bus that is slow for long would make the mirror begin again and again.
    patience: u32,
}

const PATIENCE_MAX: u32 = 4;

/// Most requests to the leader in progress while missing keys are read one by one.
const READS_AT_ONCE: usize = 16;

/// A feed, and the state of the stream when the feed was opened.
struct FeedPass {
    /// Whether the feed brings all keys, so that a key that it does not bring is gone.
    whole: bool,
    /// The leader's head below the filter when the feed was opened. The feed has not caught up
    /// before it reaches this head: a consumer may begin on a replica that lags.
    head: u64,
    /// The leader's last sequence just before. Nothing below the filter lies between both.
    last: u64,
    /// The server's time of that answer.
    last_at: Timestamp,
    /// Messages that waited when the feed was opened and have not come. A feed that has brought
    /// them has caught up, however many are written meanwhile.
    due: u64,
    /// The revision that this feed has reached, and the one at the last probe.
    seen: u64,
    probed: u64,
    caught_up: bool,
}

impl From<CompareError> for FollowStop {
    fn from(error: CompareError) -> Self {
        match error {
            CompareError::Lost(loss) => Self::Lost(loss),
            CompareError::Unread(cause) => Self::Unread(cause),
        }
    }
}

impl<F: Fold> Follower<F> {
    pub(super) fn new(shared: Arc<MirrorShared<F>>) -> Self {
        let standing = &shared.bucket.shape.standing;
        Self {
            id: standing.add_mirror(),
            generation: None,
            generations: standing.generations(),
            differs: shared.differs.subscribe(),
            shared,
            current_at: Timestamp::default(),
            resync: true,
            patience: 1,
        }
    }

    pub(super) async fn run(mut self) {
        let mut tries = 0;
        loop {
            let began = Instant::now();
            // A fold that panics must not leave a mirror that looks current.
            let stop = match AssertUnwindSafe(self.follow()).catch_unwind().await {
                Ok(Ok(never)) => match never {},
                Ok(Err(stop)) => stop,
                Err(_) => FollowStop::Panic,
            };
            if matches!(stop, FollowStop::Panic) {
                // The fold's state is unknown after a panic, so it receives everything again.
                self.generation = None;
            }
            if matches!(stop, FollowStop::Away | FollowStop::Differs) {
                self.resync = true;
            }
            let bucket = self.shared.bucket.name();
            let why = chain(&stop);
            self.shared.progress.send_modify(|progress| {
                if progress.started && progress.stale_since.is_none() {
                    tracing::warn!(bucket, why, "the mirror is behind; it catches up");
                }
                progress.stale_since.get_or_insert_with(Instant::now);
                progress.last_error = why;
            });
            if began.elapsed() > self.shared.options.heartbeat * 5 {
                tries = 0;
            }
            tries += 1;
            pause(tries).await;
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, FollowStop> {
        let (start, mut pass) = self.plan().await?;
        let shared = Arc::clone(&self.shared);
        let bucket = &shared.bucket;
        let filter = [bucket.subject(&shared.filter)];
        let heartbeat = shared.options.heartbeat * self.patience;
        let probe_every = shared.options.probe_every * self.patience;
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
        let feed_from = |start, heartbeat| {
            // With a filter, even one that covers everything, the server searches the keys at each
            // delete to count the waiting messages. The newest message of each key needs a filter.
            let whole_bucket = shared.filter == ">" && !matches!(start, FeedStart::LastOfEach);
            let subjects = if whole_bucket { &[][..] } else { &filter[..] };
            FeedSpec {
                stream: &bucket.shape.stream,
                subjects,
                start,
                heartbeat,
                keys_only_bits_per_second: None,
            }
        };
        let mut feed = Feed::open(&bucket.bus, feed_from(start, heartbeat)).await?;
        if !pass.whole && self.was_away(feed.opened_at) {
            return Err(FollowStop::Away);
        }
        pass.due = feed.pending;
        let mut probe_at = Instant::now() + probe_every;
        // A feed that was not read for so long may have skipped a marker.
        let unheard_max = self.absence_max().max(heartbeat * 3);
        let mut heard = Instant::now();
        self.look_up(&mut pass).await?;
        loop {
            let item = tokio::select! {
                biased;
                () = sleep_until(probe_at) => {
                    // Messages wait in the feed during a probe. Probes are rare.
                    pass = self.probe(pass).await?;
                    probe_at = Instant::now() + probe_every;
                    continue;
                }
                Ok(()) = self.generations.changed() => return Err(FollowStop::Replaced),
                Ok(()) = self.differs.changed(), if pass.caught_up => {
                    let comparison = *self.differs.borrow_and_update();
                    if shared.table().is_last_reading(comparison) {
                        return Err(FollowStop::Differs);
                    }
                    continue;
                }
                item = feed.next() => item?,
            };
            if heard.elapsed() > unheard_max {
                return Err(FollowStop::Away);
            }
            heard = Instant::now();
            let torn;
            (pass.seen, pass.due, torn) = match item {
                FeedItem::Message(message) => {
                    self.apply(&message);
                    if !pass.whole {
                        let unix_ms = message.unix_nanos / 1_000_000;
                        self.current_at = self.current_at.max(Timestamp::from_unix_ms(unix_ms));
                    }
                    let due = pass.due.saturating_sub(1).min(message.pending);
                    (message.sequence, due, message.sequence != pass.seen + 1)
                }
                FeedItem::Idle(sequence) => (sequence, 0, sequence != pass.seen),
            };
            if !pass.whole {
                // A reading of all keys has reached no revision before it is complete.
                self.reached(pass.seen, torn);
            }
            self.look_up(&mut pass).await?;
            if pass.caught_up {
                self.patience = 1;
            }
            if pass.whole && pass.caught_up {
                // A consumer of the newest message of each key is expensive: at each delete
                // anywhere in the bucket, the server walks over all keys to count the waiting
                // messages. A consumer that begins at a sequence costs nothing. So the first kind
                // serves only the first reading.
                let resume_at = FeedStart::From(shared.progress.borrow().applied + 1);
                let resume_at = feed_from(resume_at, shared.options.heartbeat);
                feed = tokio::select! {
                    biased;
                    () = feed.broken() => return Err(FeedError::Link.into()),
                    opened = Feed::open(&bucket.bus, resume_at) => opened?,
                };
                if self.was_away(feed.opened_at) {
                    return Err(FollowStop::Away);
                }
                pass.whole = false;
            }
        }
    }

    /// Reads the stream's state and decides where to begin.
    async fn plan(&mut self) -> Result<(FeedStart, FeedPass), FollowStop> {
        let shared = Arc::clone(&self.shared);
        let bucket = &shared.bucket;
        let (stream, verdict) = bucket.compare_stream().await?;
        let generation = *self.generations.borrow_and_update();
        let last_at = stream.now().map_err(FeedError::Open)?;
        // The remembered messages may be overwritten. If the feed was good until now, the stream is
        // still the same: a consumer ends with its stream.
        let is_followed = shared.progress.borrow().stale_since.is_none();
        let is_same_stream = self.generation == Some(generation)
            && (verdict == Verdict::Same || verdict == Verdict::Unsure && is_followed);
        let last = stream.state.last_seq;
        let head = bucket.head_now(&shared.filter).await?;
        // Markers of keys that were deleted meanwhile may have been purged.
        let whole = self.resync || !is_same_stream || self.was_away(last_at);
        let mut pass =
            FeedPass { whole, head, last, last_at, due: 0, seen: 0, probed: 0, caught_up: false };
        if whole {
            shared.table_mut().begin(!is_same_stream);
            if !is_same_stream {
                self.generation = Some(generation);
                shared.progress.send_modify(|progress| progress.applied = 0);
            }
            self.resync = true;
            return Ok((FeedStart::LastOfEach, pass));
        }
        pass.seen = shared.progress.borrow().applied;
        Ok((FeedStart::From(pass.seen + 1), pass))
    }

    /// How long the mirror may be away before it reads all keys again.
    fn absence_max(&self) -> Duration {
        self.shared.bucket.shape.marker_ttl / 2
    }

    /// Whether a marker may have come and gone since the mirror was current, by the server's clock.
    fn was_away(&self, now: Timestamp) -> bool {
        now.since(self.current_at) > self.absence_max()
    }

    fn apply(&self, message: &Delivery) {
        let shared = &self.shared;
        if let Some(key) = shared.bucket.key(&message.subject) {
            let value = value(&message.headers, &message.payload);
            shared.apply(key, message.sequence, value.as_deref());
        }
        let Delivery { sequence, unix_nanos, .. } = *message;
        shared.bucket.shape.standing.record_message(Mark { sequence, unix_nanos });
    }

    fn reached(&self, sequence: u64, torn: bool) {
        let shared = &self.shared;
        // The table first, so that a woken waiter finds the change there.
        shared.table_mut().reached(sequence, torn);
        shared.progress.send_if_modified(|progress| {
            let further = sequence > progress.applied;
            progress.applied = progress.applied.max(sequence);
            further
        });
    }

    /// Records that the feed has brought everything that the leader had when the feed was opened,
    /// once that is so.
    async fn look_up(&mut self, pass: &mut FeedPass) -> Result<(), FollowStop> {
        if pass.caught_up || pass.due > 0 || pass.seen < pass.head {
            return Ok(());
        }
        pass.caught_up = true;
        pass.seen = pass.seen.max(pass.last);
        self.current_at = self.current_at.max(pass.last_at);
        if pass.whole {
            self.complete(pass.seen).await?;
            self.resync = false;
        }
        // Only after the removal of keys that are gone. The feed brought the newest message of each
        // key, without the messages that it replaced.
        self.reached(pass.seen, pass.whole);
        self.shared.progress.send_modify(|progress| {
            progress.started = true;
            progress.stale_since = None;
        });
        let bucket = &self.shared.bucket;
        let generation = self.generation.unwrap_or_default();
        if bucket.shape.standing.mark_read(self.id, generation) {
            bucket.bus.losses().clear(bucket.name());
        }
        Ok(())
    }

    /// Removes the keys that a reading of all keys up to a sequence did not show. Such a key is
    /// gone, or was written again meanwhile and comes later; the leader is asked which.
    async fn complete(&self, sequence: u64) -> Result<(), FollowStop> {
        let shared = &self.shared;
        let bucket = &shared.bucket;
        let unseen = shared.table().unseen(sequence);
        let looks = stream::iter(unseen).map(async |(key, known)| match known {
            // The revision belongs to another stream.
            0 => Ok((key, None)),
            _ => bucket.last(&key).await.map(|message| (key, message)),
        });
        let mut looks = std::pin::pin!(looks.buffer_unordered(READS_AT_ONCE));
        let mut removed = 0;
        while let Some((key, message)) = looks.try_next().await? {
            match message {
                Some(message) => {
                    let value = value(&message.headers, &message.payload);
                    shared.apply(&key, message.sequence, value.as_deref());
                }
                None => removed += u64::from(shared.table_mut().gone(&key, sequence)),
            }
        }
        if removed > 0 {
            let bucket = bucket.name();
            tracing::info!(
                bucket,
                gone = removed,
                "keys were deleted while the mirror was not current"
            );
            shared.changes.send_modify(|changes| *changes += 1);
        }
        shared.table_mut().complete();
        Ok(())
    }

    /// Asks the leader how far the stream is. By the next probe the feed must have reached that
    /// sequence, or at least have advanced. Otherwise the consumer hangs.
    async fn probe(&mut self, pass: FeedPass) -> Result<FeedPass, FollowStop> {
        if pass.seen < pass.head && pass.seen == pass.probed {
            return Err(FollowStop::Lag(pass.head));
        }
        if !pass.caught_up {
            return Ok(FeedPass { probed: pass.seen, ..pass });
        }
        if pass.seen >= pass.head {
            self.current_at = self.current_at.max(pass.last_at);
        }
        // This also compares the stream with the known one.
        let (stream, _) = self.shared.bucket.compare_stream().await?;
        let (head, last_at) = (stream.state.last_seq, stream.now().map_err(FeedError::Open)?);
        Ok(FeedPass { head, last_at, probed: pass.seen, ..pass })
    }
}

impl<F> Drop for Follower<F> {
    fn drop(&mut self) {
        self.shared.bucket.shape.standing.remove_mirror(self.id);
    }
}
