//! The record of the buckets that were made. It tells a deleted bucket from one that never existed.
//!
//! **Owns** the bucket [`BUCKETS`]. It has one key for each of Berth's buckets, with the time at
//! which the bucket's stream was made. The key [`COMPLETE`] says that all buckets of the
//! installation are recorded.
//!
//! **Promises** that a recorded bucket is never made a second time. [`Bus::bucket`] fails with
//! [`OpenError::Lost`] if the bucket is missing, or was made again and is empty. An operator
//! accepts the loss with the value [`ANEW`].
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
use tokio::time::Instant;

use crate::bucket::{Bucket, stream_name};
use crate::cause::Cause;
use crate::copies::Copies;
use crate::exchange::{ApiError, pause};
use crate::handle::Bus;
use crate::loss::BucketLoss;
use crate::read::ReadError;
use crate::stream::{Description, NOT_FOUND, OpenError, Opened};
use crate::write::{Change, CommitError, Guard, Write};

/// The value with which an operator accepts that a bucket is lost: the next start makes it again.
const ANEW: &str = "begin-anew";
/// The key that says that every bucket of an older installation is recorded.
const COMPLETE: &str = "complete";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BirthRecord {
    /// When the bucket's stream was made, as the server writes it; empty if unknown.
    created: String,
}

/// What the record says of a bucket.
#[derive(Debug, PartialEq, Eq)]
enum Birth {
    Never,
    /// An operator wants the bucket made again.
    Anew,
    Made(BirthRecord),
}

/// A bucket's entry on the record.
struct Recorded {
    birth: Birth,
    /// The revision that guards a write of the entry.
    revision: u64,
}

/// Whether the record covers this bucket.
fn is_recorded(name: &str) -> bool {
    ALL.iter().any(|spec| spec.name == name)
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
        let opened = self.ensure_recorded(spec, copies).await?;
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
        let deadline = Instant::now() + self.config().start_timeout;
        let mut tries = 0;
        loop {
            match self.try_ensure_recorded(spec, copies).await {
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
        let found = self.find(&stream).await.map_err(failed)?;
        if let Some(why) = judge(&recorded.birth, found.as_ref()) {
            return Err(BucketLoss { bucket: spec.name.to_owned(), why }.into());
        }
        let opened = self.ensure(&stream, spec, copies, found.is_none()).await?;
        let made = BirthRecord { created: opened.created.clone() };
        let is_recorded =
            recorded.birth == Birth::Made(BirthRecord { created: opened.created.clone() });
        if !is_recorded && self.makes_streams() {
            if let Birth::Made(before) = &recorded.birth {
                let (bucket, before, now) = (spec.name, &before.created, &made.created);
                tracing::warn!(
                    bucket,
                    before,
                    now,
                    "the bucket was restored; its new creation time is recorded"
                );
            }
            write(&record, spec.name, &made, recorded.revision).await.map_err(failed)?;
        }
        Ok(opened)
    }

    /// Why the stream that replaced another one is not accepted; `None` if it may be used.
    pub(crate) async fn check_birth(
        &self,
        bucket: &str,
        stream: &Description,
    ) -> Result<Option<BucketLoss>, ReadError> {
        let unread = |source| ReadError::Unavailable { bucket: BUCKETS.name.to_owned(), source };
        let of_record = stream_name(BUCKETS.name);
        if !is_recorded(bucket) || self.find(&of_record).await.map_err(unread)?.is_none() {
            return Ok(None);
        }
        let record = self.handle(&BUCKETS, Opened::default()).await;
        let record = record.map_err(|error| unread(Cause::new(error)))?;
        let recorded = read(&record, bucket).await?;
        let why = judge(&recorded.birth, Some(stream));
        Ok(why.map(|why| BucketLoss { bucket: bucket.to_owned(), why }))
    }

    /// Records the buckets of an installation that is older than the record.
    async fn complete(&self, record: &Bucket) -> Result<(), Cause> {
        if record.get(COMPLETE).await.map_err(Cause::new)?.is_some() {
            return Ok(());
        }
        let mut found = Vec::new();
        for spec in &ALL {
            found.push((spec.name, self.find(&stream_name(spec.name)).await?));
        }
        let written = |name: &str| {
            found.iter().any(|(other, stream)| {
                *other == name && stream.as_ref().is_some_and(|stream| stream.state.last_seq > 0)
            })
        };
        for (name, stream) in &found {
            let created = match stream {
                Some(stream) => stream.created.clone(),
                None if implied_by(name).iter().any(|other| written(other)) => String::new(),
                None => continue,
            };
            write(record, name, &BirthRecord { created }, 0).await?;
        }
        write(record, COMPLETE, &BirthRecord { created: String::new() }, 0).await
    }

    /// The stream, if it exists. Retries until the server answers.
    async fn find(&self, stream: &str) -> Result<Option<Description>, Cause> {
        let deadline = Instant::now() + self.config().start_timeout;
        let mut tries = 0;
        loop {
            match self.describe(stream).await {
                Ok(found) => return Ok(Some(found)),
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

/// Why the bucket is lost; `None` if it may be used or made.
fn judge(birth: &Birth, found: Option<&Description>) -> Option<String> {
    let Birth::Made(made) = birth else { return None };
    let when = if made.created.is_empty() { "earlier" } else { &made.created };
    match found {
        None => Some(format!("was made {when} and is not there any more: it was deleted")),
        Some(stream) if stream.created != made.created && stream.state.last_seq == 0 => {
            Some(format!("was made {when}; the one that is there now is another, and empty"))
        }
        Some(_) => None,
    }
}

async fn read(record: &Bucket, bucket: &str) -> Result<Recorded, ReadError> {
    let Some(entry) = record.get(bucket).await? else {
        return Ok(Recorded { birth: Birth::Never, revision: 0 });
    };
    let birth = match entry.value.as_deref() {
        None => Birth::Never,
        Some(value) if value.trim_ascii() == ANEW.as_bytes() => Birth::Anew,
        // An unreadable record still says that the bucket was made.
        Some(value) => Birth::Made(
            serde_json::from_slice(value)
                .unwrap_or_else(|_| BirthRecord { created: String::new() }),
        ),
    };
    Ok(Recorded { birth, revision: entry.revision })
}

/// Writes an entry. A conflict is no error: another process wrote the same entry first.
async fn write(record: &Bucket, key: &str, made: &BirthRecord, revision: u64) -> Result<(), Cause> {
    let value = serde_json::to_vec(made).map_err(Cause::new)?;
    let stored = record
        .commit(Write {
            key,
            change: Change::Put(value.into()),
            guard: Guard { filter: key, revision },
            operation: "bucket",
            trace: TraceContext::begin(&mut rand::rng()),
        })
        .await;
    match stored {
        Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
        Err(error) => Err(Cause::new(error)),
    }
}
