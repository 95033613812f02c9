//! The guarded write, the only way in which state changes.
//!
//! **Owns** one write of one key under a guard: the newest revision below a filter (a key, or a
//! whole subtree) is still the revision that the writer read.
//!
//! **Promises** that the result is true whatever messages are lost:
//!
//! - `Ok(revision)`: stored, once, at this revision.
//! - [`CommitError::Conflict`]: not stored, and never will be: another writer wrote below the
//!   filter.
//! - [`CommitError::Refused`]: not stored, and never will be: the write itself is wrong.
//! - [`CommitError::Unavailable`]: not stored, and never will be.
//! - [`CommitError::Lost`]: not stored, and never will be: the bucket's stream is gone, or is not
//!   the one that the decision rests on ([`standing`](crate::incarnation::standing)).
//! - [`CommitError::Unknown`]: perhaps stored, and perhaps stored later. Read and decide again
//!   under a guard: only one of the two writes can pass.
//!
//! A write whose acknowledgement is lost is resolved. The stream's leader is asked for the first
//! message below the filter after the guard's revision: if the write was stored, it is that
//! message. If there is no message, the same write is sent again; the copy that arrives second
//! fails its guard. This is repeated until
//! [`Config::commit_timeout`](crate::Config::commit_timeout).
//!
//! Several writes, each under its own guard, are stored whole or not at all
//! ([`Bucket::commit_together`]): they go in one atomic batch, and are resolved together.
//!
//! A write whose guard is reported as failed is resolved in the same way. Only the leader checks
//! the guard, before the write is replicated ([nats-server
//! 8469](https://github.com/nats-io/nats-server/issues/8469)). When a cluster changes its leader,
//! the old leader may refuse what the new leader stores. The refusal arrives first (seen about once
//! per change under load). A leader also refuses, with an error code of its own, while another
//! write of the subtree is in progress that may still fail.
//!
//! A delete puts a marker on top of the key's history. If the marker disappeared before the values
//! below it, the newest of them would be the key's value again. So a marker expires by itself only
//! in a bucket that keeps one value per key. In other buckets it stays until
//! [`purge`](crate::store::purge) removes both.
//!
//! A KV purge, which removes the history at once and leaves a marker that expires, is not used: a
//! server that is killed may bring the history back after the marker has expired ([nats-server
//! 8505](https://github.com/nats-io/nats-server/issues/8505)).
//!
//! **Never** writes without a guard, and never while disconnected. The outcome of a call that is
//! dropped before it ends is unknown.

use std::time::Duration;

use async_nats::HeaderMap;
use berth_contract::header;
use berth_telemetry::metric::{BUCKETS, COMMITS, COMMITS_DURATION, COMMITS_SENT_AGAIN};
use berth_telemetry::{Kind, Span, attribute};
use bytes::Bytes;
use rand::RngExt as _;
use tokio::time::{Instant, timeout_at};

use crate::cause::Cause;
use crate::connection::exchange::pause;
use crate::connection::handle::Watch;
use crate::connection::headers;
use crate::rpc::caller;
use crate::store::bucket::Bucket;
use crate::store::compare::CompareError;
use crate::store::filter;
use crate::store::group::{GroupOutcome, GuardedMessage};
use crate::store::resolve::WriteTrace;
use crate::store::write::{Change, CommitError, Write};
use crate::stream::ack::{Ack, SendOutcome, judge, read_ack};

/// The outcome of a stored write, in spans and metrics.
const STORED: &str = "stored";

/// Lost acknowledgements of one write after which the bucket counts as storing nothing, if the
/// server answers that the write is not there.
const LOST_ACKS_MAX: u32 = 2;

const GROUP_IS_SLOW: &str = "the writes before it were not answered in time";

/// When a write is sent for the first time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// At once.
    Alone,
    /// At once, or with others while many writes are in progress.
    InTurn,
    /// With others, at the end of a tick while many such writes come.
    AtTick,
}

/// What writes of leases have besides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) ttl: Option<Duration>,
    pub(crate) pace: Pace,
}

/// How often a write was sent.
#[derive(Debug, Default)]
struct SendCounts {
    /// Copies of the write that were sent.
    sent: u32,
    /// Acknowledgements that did not arrive.
    lost: u32,
}

impl Bucket {
    /// Writes one key under its guard. Returns the revision of the write.
    pub async fn commit(&self, write: Write<'_>) -> Result<u64, CommitError> {
        self.commit_traced(&mut [write]).await
    }

    /// Writes several keys, each under its own guard: all of them or none. Returns the revision of
    /// the last write; the others have the revisions right before it. The server compares each
    /// guard with what was stored before all of them. A guard may cover another write's key only if
    /// both have the same guard.
    pub async fn commit_together(&self, mut writes: Vec<Write<'_>>) -> Result<u64, CommitError> {
        self.commit_traced(&mut writes).await
    }

    async fn commit_traced(&self, writes: &mut [Write<'_>]) -> Result<u64, CommitError> {
        let within = self.bus.config().commit_timeout;
        let bucket = &self.shape.name;
        let Some(first) = writes.first() else {
            let source = Cause::new("there is nothing to write");
            return Err(CommitError::Refused { key: String::new(), source });
        };
        let mut span = Span::child_of(first.trace, format_args!("commit {bucket}"), Kind::Client)
            .with(attribute::DB_SYSTEM, "nats")
            .with(attribute::DB_OPERATION, "commit")
            .with(attribute::DB_COLLECTION, bucket)
            .with(attribute::KEY, first.key)
            .with(attribute::GUARD, first.guard.revision);
        for write in writes.iter_mut() {
            write.trace = span.context();
        }
        let mut tries = SendCounts::default();
        let terms = Terms { ttl: None, pace: Pace::InTurn };
        let outcome = self.pursue(writes, terms, within, &mut tries).await;
        match &outcome {
            Ok(revision) => span.set(attribute::REVISION, *revision),
            // A conflict is no failure: the caller reads again.
            Err(CommitError::Conflict { .. }) => {}
            Err(error) => {
                span.set(attribute::ERROR_TYPE, error.reason());
                span.fail(error.reason());
            }
        }
        span.set(attribute::OUTCOME, outcome.as_ref().map_or_else(CommitError::reason, |_| STORED));
        span.set(attribute::SENT, tries.sent);
        span.set(attribute::LOST_ACKNOWLEDGEMENTS, tries.lost);
        outcome
    }

    /// Writes as [`commit`](Self::commit) does, on these terms and with a timeout. A lease is
    /// renewed for ever, so its writes are counted and make no spans.
    pub(crate) async fn commit_within(
        &self,
        write: &Write<'_>,
        terms: Terms,
        within: Duration,
    ) -> Result<u64, CommitError> {
        self.pursue(std::slice::from_ref(write), terms, within, &mut SendCounts::default()).await
    }

    async fn pursue(
        &self,
        writes: &[Write<'_>],
        terms: Terms,
        within: Duration,
        tries: &mut SendCounts,
    ) -> Result<u64, CommitError> {
        let (began, bucket) = (Instant::now(), BUCKETS.label(&self.shape.name));
        let outcome = self.store(writes, terms, within, tries).await;
        self.record_health(&outcome, began.elapsed());
        let result = outcome.as_ref().map_or_else(CommitError::reason, |_| STORED);
        COMMITS.add(1, [bucket.clone(), result.into()]);
        COMMITS_DURATION.record(began.elapsed(), [bucket.clone()]);
        let retries = tries.sent.saturating_sub(1);
        if retries > 0 {
            COMMITS_SENT_AGAIN.add(retries.into(), [bucket]);
        }
        outcome
    }

    fn record_health(&self, outcome: &Result<u64, CommitError>, took: Duration) {
        let health = &self.shape.health;
        match outcome {
            Ok(_) => {
                health.record_stored_write(&self.shape.name);
                caller::clear_blocker();
            }
            // A lost connection is reported elsewhere. A write with less time than one exchange may
            // take says nothing about the server.
            Err(CommitError::Unavailable { source, .. } | CommitError::Unknown { source, .. })
                if self.bus.connected() && took >= self.bus.config().request_timeout =>
            {
                health.record_failed_write(&self.shape.name, source);
            }
            Err(_) => {}
        }
    }

    async fn store(
        &self,
        writes: &[Write<'_>],
        terms: Terms,
        within: Duration,
        tries: &mut SendCounts,
    ) -> Result<u64, CommitError> {
        let key = || writes[0].key.to_owned();
        let conflict = |at: usize| CommitError::Conflict {
            key: writes[at].key.to_owned(),
            filter: writes[at].guard.filter.to_owned(),
            revision: writes[at].guard.revision,
        };
        writes.iter().try_for_each(check)?;
        let standing = &self.shape.standing;
        let footing = standing.footing();
        let copy = format!("{:016x}", rand::rng().random::<u64>());
        let began = Instant::now();
        let deadline = caller::earlier_deadline(began + within);
        // Whether a copy may be stored, and whether a copy may still be on its way.
        let (mut doubtful, mut loose) = (false, false);
        loop {
            // A write that was decided on one stream is not sent to another. A write that was sent
            // already is resolved instead.
            if !doubtful {
                self.check_footing(footing, deadline).await.map_err(|error| match error {
                    CompareError::Lost(loss) => CommitError::Lost { key: key(), loss },
                    CompareError::Unread(source) => CommitError::Unavailable { key: key(), source },
                })?;
            }
            tries.sent += 1;
            let sent = match writes {
                // A write that was not stored in a batch is retried alone.
                [write] if tries.sent == 1 => {
                    self.send_in_turn(write, &copy, terms, deadline).await
                }
                [write] => self.send(write, &copy, terms.ttl, deadline).await,
                _ => self.send_together(writes, &copy, deadline).await,
            };
            let cause = match sent {
                SendOutcome::Stored(revision) if revision > footing.highest => {
                    standing.record_revision(revision);
                    return Ok(revision);
                }
                SendOutcome::Stored(revision) => {
                    let why = format!("revision {revision} was given out a second time");
                    let source = Cause::new(self.record_fall(&why));
                    return Err(CommitError::Unknown {
                        key: key(),
                        within: began.elapsed(),
                        source,
                    });
                }
                SendOutcome::Refused(source) if !doubtful => {
                    return Err(CommitError::Refused { key: key(), source });
                }
                SendOutcome::Contradicted(cause) => {
                    doubtful = true;
                    cause
                }
                SendOutcome::Refused(cause) | SendOutcome::NotStored(cause) => cause,
                SendOutcome::Lost(cause) => {
                    (doubtful, loose) = (true, true);
                    tries.lost += 1;
                    cause
                }
            };
            let (first, bucket) = (writes[0].key, &self.shape.name);
            caller::set_blocker(|| {
                format!("the write of {first} in bucket {bucket} is not stored: {cause}")
            });
            let unknown =
                |source| CommitError::Unknown { key: key(), within: began.elapsed(), source };
            if doubtful {
                let (trace, at) = self.resolve_all(writes, &copy, deadline).await;
                match trace {
                    WriteTrace::Stored(revision) => return Ok(revision),
                    WriteTrace::Beaten => return Err(conflict(at)),
                    // Every send was refused. The write could still be stored and pushed out before
                    // this read, but only by a leader change and a full history of later writes
                    // within an instant. The caller reads the current record before it decides
                    // again.
                    WriteTrace::Blurred if !loose => return Err(conflict(at)),
                    WriteTrace::Blurred => return Err(unknown(cause)),
                    WriteTrace::Unread(unread) => {
                        tracing::debug!(key = writes[0].key, %unread, "the write is not resolved");
                        return Err(unknown(cause));
                    }
                    WriteTrace::None if tries.lost >= LOST_ACKS_MAX && self.bus.connected() => {
                        self.shape.health.record_failed_write(bucket, &cause);
                    }
                    WriteTrace::None => {}
                }
            }
            let given_up = !(doubtful || self.bus.connected())
                || timeout_at(deadline, pause(tries.sent)).await.is_err();
            if given_up {
                return Err(if doubtful {
                    unknown(cause)
                } else {
                    CommitError::Unavailable { key: key(), source: cause }
                });
            }
            tracing::debug!(key = writes[0].key, %cause, "the write is sent again");
        }
    }

    /// Sends the write alone, or in a batch, as its pace allows.
    async fn send_in_turn(
        &self,
        write: &Write<'_>,
        copy: &str,
        Terms { ttl, pace }: Terms,
        deadline: Instant,
    ) -> SendOutcome {
        let (group, message) = (&self.shape.group, || self.guarded(write, copy, ttl));
        let turn = async {
            match pace {
                Pace::Alone => None,
                Pace::InTurn if write.guard.filter.contains('*') => None,
                Pace::InTurn => Some(group.join(message).await),
                Pace::AtTick => Some(group.join_at_tick(message).await),
            }
        };
        match timeout_at(deadline, turn).await {
            Ok(Some(GroupOutcome::Sent(sent))) => sent,
            Ok(Some(GroupOutcome::Alone(_turn))) => self.send(write, copy, ttl, deadline).await,
            Ok(None) => self.send(write, copy, ttl, deadline).await,
            Err(_) => SendOutcome::Lost(Cause::new(GROUP_IS_SLOW)),
        }
    }

    /// Sends writes that are stored whole or not at all. Other waiting writes may share their
    /// batch.
    async fn send_together(
        &self,
        writes: &[Write<'_>],
        copy: &str,
        deadline: Instant,
    ) -> SendOutcome {
        let messages = writes.iter().map(|write| self.guarded(write, copy, None)).collect();
        // An earlier batch may hang for as long as one exchange may take.
        match timeout_at(deadline, self.shape.group.join_together(messages)).await {
            Ok(sent) => sent,
            Err(_) => SendOutcome::Lost(Cause::new(GROUP_IS_SLOW)),
        }
    }

    fn guarded(&self, write: &Write<'_>, copy: &str, ttl: Option<Duration>) -> GuardedMessage {
        let (headers, body) = self.compose(write, copy, ttl);
        let scope = self.subject(write.guard.filter.trim_end_matches('>'));
        GuardedMessage { subject: self.subject(write.key), scope, headers, body }
    }

    async fn send(
        &self,
        write: &Write<'_>,
        copy: &str,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> SendOutcome {
        let (headers, body) = self.compose(write, copy, ttl);
        let mut connection = Watch::new(&self.bus);
        let remaining = deadline.saturating_duration_since(Instant::now());
        let within = self.bus.config().request_timeout.min(remaining);
        let answer = tokio::select! {
            // Checked first: without a connection the write is not sent, so it is not lost.
            biased;
            answer = self.bus.exchange(self.subject(write.key), headers, body, within) => answer,
            // The answer cannot come over a new connection: resolve the write at once.
            () = connection.broken() => {
                return SendOutcome::Lost(Cause::new("the connection broke"));
            }
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return error.into(),
        };
        match read_ack(&answer) {
            Ok(Ack { error: Some(error), .. }) => judge(error),
            Ok(Ack { seq: Some(revision), .. }) => SendOutcome::Stored(revision),
            Ok(_) => SendOutcome::Lost(Cause::new("an acknowledgement without a revision")),
            Err(error) => SendOutcome::Lost(Cause::new(error)),
        }
    }

    fn compose(&self, write: &Write<'_>, copy: &str, ttl: Option<Duration>) -> (HeaderMap, Bytes) {
        let mut headers = HeaderMap::new();
        headers::set(&mut headers, headers::EXPECTED_REVISION, write.guard.revision);
        headers::set(&mut headers, headers::EXPECTED_FILTER, self.subject(write.guard.filter));
        headers::set(&mut headers, header::OPERATION, write.operation);
        headers::set(&mut headers, header::TRACEPARENT, write.trace);
        headers::set(&mut headers, header::WRITE, copy);
        let seconds = |ttl: Duration| format!("{}s", ttl.as_secs().max(1));
        let body = match &write.change {
            Change::Put(value) => {
                if let Some(ttl) = ttl {
                    headers::set(&mut headers, headers::TTL, seconds(ttl));
                }
                value.clone()
            }
            Change::Delete => {
                headers::set(&mut headers, headers::KV_OPERATION, "DEL");
                if self.shape.history == 1 {
                    // The bucket keeps one value per key, so no older value is below the marker,
                    // even after a server was killed.
                    headers::set(&mut headers, headers::TTL, seconds(self.shape.marker_ttl));
                }
                Bytes::new()
            }
        };
        (headers, body)
    }
}

fn check(write: &Write<'_>) -> Result<(), CommitError> {
    let refuse = |why: String| {
        Err(CommitError::Refused { key: write.key.to_owned(), source: Cause::new(why) })
    };
    if !filter::is_key(write.key) {
        return refuse(format!("{:?} is no key", write.key));
    }
    let filter = write.guard.filter;
    if !filter::is_filter(filter) || !filter::covers(filter, write.key) {
        // If the write is not below the filter, a lost acknowledgement cannot be resolved.
        return refuse(format!("the guard {filter:?} does not cover the key"));
    }
    Ok(())
}
