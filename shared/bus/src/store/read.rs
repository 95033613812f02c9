//! Reads at the stream's leader, never at another replica.
//!
//! **Owns** [`Bucket::get`] and [`Bucket::head`]. A direct read may be answered by a replica that
//! lacks a write that was already acknowledged (measured: 2 to 18 of 100 reads right after the
//! write). These reads cannot.
//!
//! **Promises** read-after-write: a read sees every write that was acknowledged before the call, to
//! any process. A deposed leader that has not noticed yet may still answer an older state. A caller
//! that decides by an answer writes with a guard, and that guard fails.

use std::future::Future;

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, RawMessageErrorKind};
use berth_contract::header;
use berth_contract::{code::Code, problem::Problem};
use berth_domain::Timestamp;
use bytes::Bytes;
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use crate::cause::{Cause, chain};
use crate::connection::exchange::pause;
use crate::connection::headers;
use crate::incarnation::loss::BucketLoss;
use crate::rpc::caller;
use crate::store::bucket::Bucket;
use crate::store::compare::CompareError;
use crate::store::filter;

/// The newest message of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The revision of its newest write. Revisions count the whole bucket, so a later write of any
    /// key has a higher one.
    pub revision: u64,
    /// Its value; none for the marker of a delete or an expiry.
    pub value: Option<Bytes>,
    /// The operation that wrote it, when it was written by [`Bucket::commit`].
    pub operation: Option<String>,
    /// Whether it was written with a TTL, so that the server removes it by itself.
    pub has_ttl: bool,
    /// When the server stored it, by the server's clock.
    pub created: Timestamp,
}

/// Why a read has no answer.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The leader does not answer; a retry may help.
    #[error("bucket {bucket} cannot be read now; check nats-server and try again")]
    Unavailable {
        /// The bucket.
        bucket: String,
        /// What the last try ended with.
        #[source]
        source: Cause,
    },
    /// The bucket was deleted, or replaced by another one.
    #[error(transparent)]
    Lost(#[from] BucketLoss),
    /// The key or filter is not valid.
    #[error("{filter:?} is no key or filter of bucket {bucket}")]
    Filter {
        /// The bucket.
        bucket: String,
        /// The key or filter.
        filter: String,
    },
}

/// The problem to answer the service's caller with.
impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unavailable { .. } => {
                Self::new(Code::BusUnavailable, chain(&error)).retryable()
            }
            ReadError::Lost(loss) => loss.problem(),
            ReadError::Filter { .. } => Self::new(Code::Internal, chain(&error)),
        }
    }
}

impl Bucket {
    /// The key's newest message at the leader; `None` if the key was never written or its marker is
    /// gone.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, ReadError> {
        if !filter::is_key(key) {
            return Err(self.bad_filter(key));
        }
        let message = self.last(key).await?;
        Ok(message.and_then(|message| self.entry(&message)))
    }

    /// The newest revision below `filter` (a key, or `prefix.>`) at the leader, markers included; 0
    /// when there is none.
    ///
    /// A guard over the same filter is compared with this revision. The head may *fall* when a
    /// marker expires. Then a guard with the remembered revision fails once, and reading the head
    /// again mends that.
    pub async fn head(&self, filter: &str) -> Result<u64, ReadError> {
        self.on_footing(self.head_now(filter)).await
    }

    /// The answer to a question, if the stream is then the known one.
    pub(crate) async fn on_footing<T>(
        &self,
        question: impl Future<Output = Result<T, ReadError>>,
    ) -> Result<T, ReadError> {
        let footing = self.shape.standing.footing();
        let answer = question.await?;
        let deadline = caller::earlier_deadline(Instant::now() + self.bus.config().request_timeout);
        match self.check_footing(footing, deadline).await {
            Ok(()) => Ok(answer),
            Err(CompareError::Lost(loss)) => Err(loss.into()),
            Err(CompareError::Unread(source)) => {
                Err(ReadError::Unavailable { bucket: self.name().to_owned(), source })
            }
        }
    }

    /// As [`head`](Self::head), of the present stream, whether or not it is the known one.
    pub(crate) async fn head_now(&self, filter: &str) -> Result<u64, ReadError> {
        if !filter::is_filter(filter) {
            return Err(self.bad_filter(filter));
        }
        // For a filter the server reads every key that the filter covers. For `>` alone, which
        // covers the whole stream, it takes the last message, if that has not expired.
        if filter == ">"
            && let Some(message) = self.last_at(">").await?
        {
            return Ok(message.sequence);
        }
        Ok(self.last(filter).await?.map_or(0, |message| message.sequence))
    }

    /// The newest revision that the bucket ever had, as its leader knows it. Unlike a
    /// [`head`](Self::head) it never falls, whatever is purged.
    pub async fn newest(&self) -> Result<u64, ReadError> {
        // Only a leader answers this read. A server without a quorum still describes its stream.
        let head = self.last_at(&self.subject(">")).await?.map_or(0, |message| message.sequence);
        let stream = self.ask_leader(|| async {
            // This also compares the stream with the one that the process knows.
            match self.compare_stream().await {
                Ok((stream, _)) => Ok(Ok(stream)),
                Err(CompareError::Lost(loss)) => Ok(Err(loss)),
                Err(CompareError::Unread(cause)) => Err(cause),
            }
        });
        let last = stream.await??.state.last_seq;
        if let Some(loss) = self.bus.losses().find_loss(self.name()) {
            return Err(loss.into());
        }
        Ok(last.max(head))
    }

    pub(crate) async fn last(&self, filter: &str) -> Result<Option<StreamMessage>, ReadError> {
        self.last_at(&self.subject(filter)).await
    }

    async fn last_at(&self, subject: &str) -> Result<Option<StreamMessage>, ReadError> {
        self.ask_leader(|| async {
            match self.shape.handle.get_last_raw_message_by_subject(subject).await {
                Ok(message) => Ok(Some(message)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(Cause::new(error)),
            }
        })
        .await
    }

    /// The first message after a revision below a filter, at the leader.
    pub(crate) async fn first_after(
        &self,
        filter: &str,
        revision: u64,
    ) -> Result<Option<StreamMessage>, ReadError> {
        let subject = self.subject(filter);
        self.ask_leader(|| async {
            let found = self.shape.handle.get_first_raw_message_by_subject(&subject, revision + 1);
            match found.await {
                Ok(message) => Ok(Some(message)),
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(Cause::new(error)),
            }
        })
        .await
    }

    /// The message of a revision, at the leader; none when it was overwritten or has expired.
    pub(crate) async fn message(&self, revision: u64) -> Result<Option<StreamMessage>, ReadError> {
        self.ask_leader(|| async {
            match self.shape.handle.get_raw_message(revision).await {
                Ok(message) => Ok(Some(message)),
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(Cause::new(error)),
            }
        })
        .await
    }

    /// Retries until the leader answers, for as long as one exchange may take.
    async fn ask_leader<T, F>(&self, question: impl Fn() -> F) -> Result<T, ReadError>
    where
        F: Future<Output = Result<T, Cause>>,
    {
        let deadline = caller::earlier_deadline(Instant::now() + self.bus.config().request_timeout);
        let mut tries = 0;
        let mut last = Cause::new("the bus is not connected");
        loop {
            if self.bus.connected() {
                match timeout_at(deadline, question()).await {
                    Ok(Ok(answer)) => {
                        caller::clear_blocker();
                        return Ok(answer);
                    }
                    Ok(Err(cause)) => last = cause,
                    Err(_) => last = Cause::new("the stream's leader does not answer"),
                }
                if let Some(loss) = self.bus.losses().find_loss(&self.shape.name) {
                    return Err(loss.into());
                }
            }
            caller::set_blocker(|| {
                format!("bucket {} cannot be read now: {last}", self.shape.name)
            });
            tries += 1;
            if timeout_at(deadline, pause(tries)).await.is_err() {
                let bucket = self.shape.name.clone();
                return Err(ReadError::Unavailable { bucket, source: last });
            }
        }
    }

    fn entry(&self, message: &StreamMessage) -> Option<Entry> {
        let millis = message.time.unix_timestamp_nanos() / 1_000_000;
        let created = Timestamp::from_unix_ms(u64::try_from(millis).unwrap_or(0));
        let StreamMessage { subject, sequence, headers, payload, .. } = message;
        self.entry_of(subject, *sequence, created, headers, payload)
    }

    /// The entry in a message of the bucket's stream; `None` for a message on another subject.
    pub(crate) fn entry_of(
        &self,
        subject: &str,
        revision: u64,
        created: Timestamp,
        headers: &HeaderMap,
        payload: &Bytes,
    ) -> Option<Entry> {
        Some(Entry {
            key: self.key(subject)?.to_owned(),
            revision,
            value: value(headers, payload),
            operation: headers::get(headers, header::OPERATION).map(str::to_owned),
            has_ttl: headers::get(headers, headers::TTL).is_some(),
            created,
        })
    }

    pub(crate) fn bad_filter(&self, filter: &str) -> ReadError {
        ReadError::Filter { bucket: self.shape.name.clone(), filter: filter.to_owned() }
    }
}

/// The value that a message carries; none when it marks a delete or an expiry.
pub(crate) fn value(headers: &HeaderMap, payload: &Bytes) -> Option<Bytes> {
    let deleted = matches!(headers::get(headers, headers::KV_OPERATION), Some("DEL" | "PURGE"));
    let expired = headers::get(headers, headers::MARKER_REASON).is_some();
    (!deleted && !expired).then(|| payload.clone())
}
