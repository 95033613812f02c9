//! Compares a bucket's stream with the known one ([`standing`](crate::incarnation::standing)).
//!
//! **Owns** the requests of a comparison, and its consequence: a bucket that must not be served is
//! lost, and is compared again until it may be served.

use std::time::Duration;

use berth_contract::bucket::{BUCKETS, LEASES};
use berth_host::BootTime;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout_at};

use crate::cause::Cause;
use crate::connection::exchange::{ApiError, pause};
use crate::connection::handle::Bus;
use crate::incarnation::loss::BucketLoss;
use crate::incarnation::standing::{Footing, FoundStream, Mark, Verdict, went_back};
use crate::incarnation::{Incarnation, unfinished_above};
use crate::store::bucket::{Bucket, is_recorded};
use crate::stream::names::stream_name;
use crate::stream::open::{Description, NOT_FOUND};

/// Interval at which a lost bucket is looked at again.
const LOST_CHECK_INTERVAL: Duration = Duration::from_secs(1);

const MISSING: &str = "was deleted; what is known of it here is not answered any more";
const REPLACED: &str = "was restored; no request is answered until all keys were read";

impl Bus {
    /// The incarnation of a bucket that this process does not open; none while its stream is away
    /// or an operator's command is working on it.
    pub async fn read_incarnation(&self, bucket: &str) -> Result<Option<Incarnation>, Cause> {
        let stream = match self.describe(&stream_name(bucket)).await {
            Err(ApiError::Refused { code: NOT_FOUND, .. }) => return Ok(None),
            described => described?,
        };
        let is_served = unfinished_above(&stream.config).is_none();
        Ok(is_served.then(|| Incarnation::read(&stream.config)))
    }
}

impl Bucket {
    /// The newest incarnation of the bucket that this process has seen.
    pub fn incarnation(&self) -> Incarnation {
        self.shape.standing.incarnation().unwrap_or_default()
    }

    /// Compares a stream with the known one.
    async fn judge(&self, stream: &Description) -> Result<Verdict, CompareError> {
        let standing = &self.shape.standing;
        let Description { config, created, .. } = stream;
        let found_stream = FoundStream {
            config,
            created,
            last: stream.state.last_seq,
            has_majority: stream.has_majority(),
        };
        if let Some(verdict) = standing.judge_description(found_stream) {
            return Ok(verdict);
        }
        for mark in standing.marks() {
            let read = self.message(mark.sequence).await;
            let Some(message) = read.map_err(|error| CompareError::Unread(Cause::new(error)))?
            else {
                continue;
            };
            let unix_nanos = u64::try_from(message.time.unix_timestamp_nanos()).unwrap_or(0);
            if mark == (Mark { sequence: message.sequence, unix_nanos }) {
                return Ok(standing.conclude(Verdict::Same, Some(mark)));
            }
            let why = format!("revision {} is another message than before", mark.sequence);
            return Ok(standing.record_fall(why));
        }
        // Each lease ends by itself, and is not renewed while its bucket is refused.
        if self.name() == LEASES.name {
            standing.refute();
        }
        Ok(standing.conclude(Verdict::Unsure, None))
    }

    /// Records that the stream fell for good.
    pub(crate) fn record_fall(&self, why: &str) -> BucketLoss {
        self.shape.standing.record_fall(why.to_owned());
        self.lose(&went_back(why))
    }

    /// Records that the bucket cannot be served, and compares it again until it can.
    pub(crate) fn lose(&self, why: &str) -> BucketLoss {
        let loss = BucketLoss { bucket: self.name().to_owned(), why: why.to_owned() };
        // No decision is made from memory of the record of buckets, so its loss stops no request.
        if self.name() != BUCKETS.name && self.bus.losses().record_loss(loss.clone()) {
            tokio::spawn(watch_lost(self.clone()));
        }
        loss
    }

    /// The loss of a bucket whose stream does not exist.
    pub(crate) fn lose_missing(&self) -> BucketLoss {
        self.shape.standing.record_absence();
        self.lose(MISSING)
    }

    /// Describes the stream and compares it. Fails with the loss if it must not be served.
    pub(crate) async fn compare_stream(&self) -> Result<(Description, Verdict), CompareError> {
        let sent = BootTime::now();
        let stream = match self.bus.describe(&self.shape.stream).await {
            Err(ApiError::Refused { code: NOT_FOUND, .. }) => {
                return Err(self.lose_missing().into());
            }
            described => described?,
        };
        let verdict = self.judge(&stream).await?;
        match &verdict {
            Verdict::Lost(why) => return Err(self.lose(why).into()),
            Verdict::Behind => {
                let why = "the stream's leader does not have everything yet that was seen";
                return Err(CompareError::Unread(Cause::new(why)));
            }
            Verdict::Next if !self.shape.standing.is_read() => {
                self.lose(REPLACED);
            }
            _ => {}
        }
        self.shape.standing.record_comparison(sent, stream.state.last_seq);
        if is_recorded(self.name()) && self.shape.standing.is_look_due() {
            tokio::spawn(read_record(self.clone()));
        }
        Ok((stream, verdict))
    }

    /// Makes sure that the stream was compared a moment ago, and that it is still the one that a
    /// decision was made on.
    pub(crate) async fn check_footing(
        &self,
        footing: Footing,
        deadline: Instant,
    ) -> Result<(), CompareError> {
        let standing = &self.shape.standing;
        let unanswered = || CompareError::Unread(Cause::new("the stream's leader does not answer"));
        let mut last = unanswered();
        let mut tries = 0;
        while !standing.is_checked() {
            // On the heap, because each read and write has room for it.
            let comparison = Box::pin(async {
                let _one = standing.begin_comparison().await;
                if standing.is_checked() { Ok(()) } else { self.compare_stream().await.map(drop) }
            });
            match timeout_at(deadline, comparison).await {
                Ok(Err(CompareError::Unread(cause))) => last = CompareError::Unread(cause),
                Ok(compared) => compared?,
                Err(_) => return Err(last),
            }
            if !standing.is_checked() {
                tries += 1;
                // Like every call here, it fails at once while the bus is not connected.
                let is_given_up =
                    !self.bus.connected() || timeout_at(deadline, pause(tries)).await.is_err();
                if is_given_up {
                    return Err(last);
                }
            }
        }
        if let Some(loss) = self.bus.losses().find_loss(self.name()) {
            return Err(loss.into());
        }
        if standing.is_on(footing) {
            return Ok(());
        }
        Err(BucketLoss { bucket: self.name().to_owned(), why: REPLACED.to_owned() }.into())
    }
}

/// Why a stream cannot be recognized as the known one.
#[derive(Debug)]
pub(crate) enum CompareError {
    Lost(BucketLoss),
    Unread(Cause),
}

impl From<BucketLoss> for CompareError {
    fn from(loss: BucketLoss) -> Self {
        Self::Lost(loss)
    }
}

impl From<CompareError> for Cause {
    fn from(error: CompareError) -> Self {
        match error {
            CompareError::Lost(loss) => Self::new(loss),
            CompareError::Unread(cause) => cause,
        }
    }
}

impl From<ApiError> for CompareError {
    fn from(error: ApiError) -> Self {
        Self::Unread(error.into())
    }
}

/// Boxed, because reading the record of buckets compares that bucket's stream in turn.
fn read_record(bucket: Bucket) -> BoxFuture<'static, ()> {
    Box::pin(async move { bucket.share_fall().await })
}

/// Compares a lost bucket until it may be served. First, every mirror that follows it has read all
/// of it.
async fn watch_lost(bucket: Bucket) {
    loop {
        let is_good = bucket.compare_stream().await.is_ok();
        bucket.share_fall().await;
        let losses = bucket.bus.losses();
        if is_good && bucket.shape.standing.is_read() {
            losses.clear(bucket.name());
        }
        sleep(LOST_CHECK_INTERVAL).await;
        if losses.find_loss(bucket.name()).is_none() {
            return;
        }
    }
}
