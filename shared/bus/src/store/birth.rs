//! The record of the buckets that were made. It tells a deleted bucket from one that never existed.
//!
//! **Owns** the bucket [`BUCKETS`]. It has one key for each of Berth's buckets, with the time at
//! which the bucket's stream was made. The key [`COMPLETE`] says that all buckets of the
//! installation are recorded.
//!
//! **Promises** that a recorded bucket is never made a second time. [`Bus::bucket`] fails with
//! [`OpenError::Lost`] if the bucket is missing, or was made again and is empty. An operator
//! accepts the loss with the value [`ANEW`]. It fails, too, if the record says that the stream
//! fell, or that it had reached a higher revision ([`fall`](crate::store::fall)).
//!
//! The buckets of an installation that is older than this record are recorded by the first process
//! that opens one of them. It also records missing buckets if other buckets show that they existed
//! ([`implied_by`]).
//!
//! **Rests on** this order: a process reads the record before it looks for the stream, and writes
//! the record right after it made the stream. So processes that start at once may all make the
//! stream, and none refuses.

use berth_contract::bucket::{ALL, BUCKETS, BucketSpec, implied_by};
use berth_contract::trace::TraceContext;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::cause::Cause;
use crate::connection::exchange::{ApiError, pause};
use crate::connection::handle::Bus;
use crate::incarnation::loss::BucketLoss;
use crate::incarnation::standing::{BEHIND_MAX, went_back};
use crate::incarnation::{Incarnation, Origin, unfinished_above};
use crate::store::bucket::{Bucket, is_recorded};
use crate::store::read::ReadError;
use crate::store::write::{Change, CommitError, Guard, Write};
use crate::stream::copies::Copies;
use crate::stream::names::stream_name;
use crate::stream::open::{Description, NOT_FOUND, OpenError, Opened};

/// The value with which an operator accepts that a bucket is lost: the next start makes it again.
const BEGIN_ANEW: &str = "begin-anew";
/// The key that says that every bucket of an older installation is recorded.
const COMPLETE: &str = "complete";
/// Most tries to change an entry that other processes change, too.
const CHANGE_TRIES: u32 = 10;
const UNFINISHED: &str =
    "is being restored or accepted; if that was interrupted, repeat the command";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BirthRecord {
    /// When the bucket's stream was made, as the server writes it; empty if unknown.
    pub(crate) created: String,
    /// The number of the newest incarnation; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub(crate) incarnation: u64,
    /// A revision that this incarnation has reached.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub(crate) highest: u64,
    /// Why this incarnation is served by nobody: its stream fell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fell: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_unknown(number: &u64) -> bool {
    *number == 0
}

impl BirthRecord {
    fn of_time(created: String) -> Self {
        Self { created, ..Self::default() }
    }

    /// Whether the record contains everything of `other` already.
    fn is_of(&self, other: &Self) -> bool {
        (&self.created, self.incarnation) == (&other.created, other.incarnation)
    }

    fn of_stream(created: &str, config: &Map<String, Value>, highest: u64) -> Self {
        let incarnation = Incarnation::read(config).number;
        Self { created: created.to_owned(), incarnation, highest, fell: None }
    }
}

/// What the record of buckets says of a bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Birth {
    Never,
    /// An operator wants the bucket to be made again.
    Anew,
    Made(BirthRecord),
}

/// A bucket's entry on the record.
pub(crate) struct Recorded {
    pub(crate) birth: Birth,
    /// The revision that guards a write of the entry.
    revision: u64,
}

/// The reason why a bucket is not opened.
#[derive(Debug, PartialEq, Eq)]
enum Unfit {
    Lost(String),
    Fell(String),
    /// It ends below the revision on record. Its leader may not be ready.
    Behind(String),
}

impl Bus {
    /// Opens the bucket. Makes it with so many copies if it never existed. A deleted bucket of
    /// Berth's is not made again ([`OpenError::Lost`]).
    pub async fn bucket(
        &self,
        spec: &BucketSpec,
        copies: impl Into<Copies>,
    ) -> Result<Bucket, OpenError> {
        let copies = copies.into();
        if !is_recorded(spec.name) {
            return self.bucket_unrecorded(spec, copies).await;
        }
        // Boxed, so that the futures of services that open several buckets stay small.
        let opened = Box::pin(self.ensure_recorded(spec, copies)).await?;
        self.handle(spec, opened).await
    }

    /// Opens the bucket's stream, and makes it only if the record allows that. A cluster that
    /// elects leaders may answer one request and not the next, so all of this is retried until the
    /// server is ready.
    async fn ensure_recorded(
        &self,
        spec: &BucketSpec,
        copies: Copies,
    ) -> Result<Opened, OpenError> {
        let began = Instant::now();
        let deadline = began + self.config().start_timeout;
        let mut tries = 0;
        loop {
            let may_lag = began.elapsed() < BEHIND_MAX;
            match self.try_ensure_recorded(spec, copies, may_lag).await {
                Err(error @ OpenError::Unavailable { .. }) if Instant::now() < deadline => {
                    let bucket = spec.name;
                    tracing::debug!(bucket, %error, "the bucket cannot be opened yet");
                }
                ended => return ended,
            }
            tries += 1;
            pause(tries).await;
        }
    }

    async fn try_ensure_recorded(
        &self,
        spec: &BucketSpec,
        copies: Copies,
        may_lag: bool,
    ) -> Result<Opened, OpenError> {
        let record = self.bucket_unrecorded(&BUCKETS, copies).await?;
        let failed = |source: Cause| OpenError::Unavailable {
            stream: stream_name(BUCKETS.name),
            within: self.config().start_timeout,
            source,
        };
        if self.makes_streams() {
            self.complete(&record).await.map_err(failed)?;
        }
        let recorded = read(&record, spec.name).await.map_err(|error| failed(Cause::new(error)))?;
        let stream = stream_name(spec.name);
        let stream_found = self.find(&stream).await.map_err(failed)?;
        let why = match judge(&recorded.birth, stream_found.as_ref()) {
            Some(Unfit::Behind(why))
                if may_lag
                    || stream_found.as_ref().is_some_and(|stream| !stream.has_majority()) =>
            {
                return Err(failed(Cause::new(why)));
            }
            Some(Unfit::Behind(why) | Unfit::Fell(why)) => {
                self.record_fall(&record, spec.name, &why).await;
                Some(went_back(&why))
            }
            Some(Unfit::Lost(why)) => Some(why),
            None => None,
        };
        if let Some(why) = why {
            return Err(BucketLoss { bucket: spec.name.to_owned(), why }.into());
        }
        let origin = if recorded.birth == Birth::Anew { Origin::Anew } else { Origin::First };
        let make = stream_found.is_none().then_some(origin);
        let opened = self.ensure(&stream, spec, copies, make).await?;
        let record_now = BirthRecord::of_stream(&opened.created, &opened.config, opened.last);
        let previous = match &recorded.birth {
            Birth::Made(previous) if previous.is_of(&record_now) => return Ok(opened),
            Birth::Made(previous) => Some(previous.created.as_str()),
            _ => None,
        };
        if self.makes_streams() {
            if let Some(previous) = previous.filter(|previous| *previous != record_now.created) {
                let (bucket, now) = (spec.name, &record_now.created);
                let message = "the bucket was restored; its new creation time is recorded";
                tracing::warn!(bucket, before = previous, now, "{message}");
            }
            write(&record, spec.name, &record_now, recorded.revision).await.map_err(failed)?;
        }
        Ok(opened)
    }

    /// Records the buckets of an installation that is older than the record.
    async fn complete(&self, record: &Bucket) -> Result<(), Cause> {
        if record.get(COMPLETE).await.map_err(Cause::new)?.is_some() {
            return Ok(());
        }
        let mut streams = Vec::new();
        for spec in &ALL {
            streams.push((spec.name, self.find(&stream_name(spec.name)).await?));
        }
        let written = |name: &str| {
            streams.iter().any(|(other, stream)| {
                *other == name && stream.as_ref().is_some_and(|stream| stream.state.last_seq > 0)
            })
        };
        for (name, stream) in &streams {
            let created = match stream {
                Some(stream) => stream.created.clone(),
                None if implied_by(name).iter().any(|other| written(other)) => String::new(),
                None => continue,
            };
            write(record, name, &BirthRecord::of_time(created), 0).await?;
        }
        write(record, COMPLETE, &BirthRecord::of_time(String::new()), 0).await?;
        Ok(())
    }

    /// Puts the present stream of a bucket on the record, whatever the record says.
    pub(crate) async fn record_birth(
        &self,
        bucket: &str,
        stream: &Description,
    ) -> Result<(), Cause> {
        let record =
            self.bucket_unrecorded(&BUCKETS, Copies::ByCluster).await.map_err(Cause::new)?;
        let present =
            BirthRecord::of_stream(&stream.created, &stream.config, stream.state.last_seq);
        change(&record, bucket, |_| Some(present.clone())).await
    }

    /// Opens the record of buckets; none while its stream is away. It is not made here: another
    /// tool may be about to restore it.
    pub(crate) async fn find_record(&self) -> Result<Option<Bucket>, Cause> {
        if self.find(&stream_name(BUCKETS.name)).await?.is_none() {
            return Ok(None);
        }
        self.handle(&BUCKETS, Opened::default()).await.map(Some).map_err(Cause::new)
    }

    /// The number of the newest incarnation of a bucket on the record; 0 if unknown.
    pub(crate) async fn recorded_incarnation(&self, bucket: &str) -> Result<u64, Cause> {
        let Some(record) = self.find_record().await? else { return Ok(0) };
        match read(&record, bucket).await.map_err(Cause::new)?.birth {
            Birth::Made(made) => Ok(made.incarnation),
            Birth::Never | Birth::Anew => Ok(0),
        }
    }

    /// The stream, if it exists. Retries until the server answers.
    async fn find(&self, stream: &str) -> Result<Option<Description>, Cause> {
        let deadline = Instant::now() + self.config().start_timeout;
        let mut tries = 0;
        loop {
            match self.describe(stream).await {
                Ok(description) => return Ok(Some(description)),
                Err(ApiError::Refused { code: NOT_FOUND, .. }) => return Ok(None),
                Err(error) if !error.passes() || Instant::now() >= deadline => {
                    return Err(error.into());
                }
                Err(_) => {}
            }
            tries += 1;
            pause(tries).await;
        }
    }
}

/// Why the bucket is not opened; `None` if it may be used or made.
fn judge(birth: &Birth, found: Option<&Description>) -> Option<Unfit> {
    let is_unfinished = found.is_some_and(|stream| unfinished_above(&stream.config).is_some());
    if is_unfinished {
        return Some(Unfit::Lost(UNFINISHED.to_owned()));
    }
    let Birth::Made(made) = birth else { return None };
    let when = if made.created.is_empty() { "earlier" } else { &made.created };
    let Some(stream) = found else {
        let why = format!("was made {when} and is not there any more: it was deleted");
        return Some(Unfit::Lost(why));
    };
    let (number, last) = (Incarnation::read(&stream.config).number, stream.state.last_seq);
    if stream.created != made.created && last == 0 {
        let why = format!("was made {when}; the one that is there now is another, and empty");
        return Some(Unfit::Lost(why));
    }
    if number < made.incarnation {
        let why = "was replaced by an older one, by another tool than Berth".to_owned();
        return Some(Unfit::Lost(why));
    }
    // A newer incarnation is another stream, which the record says nothing of.
    let recorded = Some(made).filter(|recorded| recorded.incarnation == number)?;
    if let Some(why) = &recorded.fell {
        return Some(Unfit::Lost(went_back(why)));
    }
    // Before there were incarnations, every restore was made with the stock tool and needs no
    // acceptance.
    if number > 0 && stream.created != recorded.created && !recorded.created.is_empty() {
        return Some(Unfit::Fell("another one was made in its place".to_owned()));
    }
    let highest = recorded.highest;
    let why = || format!("it ends at revision {last}, and {highest} was reached before");
    (last < highest).then(|| Unfit::Behind(why()))
}

pub(crate) async fn read(record: &Bucket, bucket: &str) -> Result<Recorded, ReadError> {
    let Some(entry) = record.get(bucket).await? else {
        return Ok(Recorded { birth: Birth::Never, revision: 0 });
    };
    let birth = match entry.value.as_deref() {
        None => Birth::Never,
        Some(value) if value.trim_ascii() == BEGIN_ANEW.as_bytes() => Birth::Anew,
        // An unreadable record still shows that the bucket was made.
        Some(value) => Birth::Made(
            serde_json::from_slice(value).unwrap_or_else(|_| BirthRecord::of_time(String::new())),
        ),
    };
    Ok(Recorded { birth, revision: entry.revision })
}

/// Changes a bucket's entry, and retries until no other process has written in between. Returns
/// without a write if `decide` returns none.
pub(crate) async fn change(
    record: &Bucket,
    bucket: &str,
    decide: impl Fn(&Birth) -> Option<BirthRecord>,
) -> Result<(), Cause> {
    for tries in 0..CHANGE_TRIES {
        let recorded = read(record, bucket).await.map_err(Cause::new)?;
        let Some(revised) = decide(&recorded.birth) else { return Ok(()) };
        if write(record, bucket, &revised, recorded.revision).await? {
            return Ok(());
        }
        pause(tries).await;
    }
    Err(Cause::new("other processes change the entry all the time"))
}

/// Writes an entry. Returns false after a conflict: another process wrote the same entry first.
async fn write(
    record: &Bucket,
    key: &str,
    entry: &BirthRecord,
    revision: u64,
) -> Result<bool, Cause> {
    let value = serde_json::to_vec(entry).map_err(Cause::new)?;
    let trace = TraceContext::begin(&mut rand::rng());
    let stored = record
        .commit(Write {
            key,
            change: Change::Put(value.into()),
            guard: Guard { filter: key, revision },
            operation: "bucket",
            trace,
        })
        .await;
    match stored {
        Ok(_) => Ok(true),
        Err(CommitError::Conflict { .. }) => Ok(false),
        Err(error) => Err(Cause::new(error)),
    }
}
