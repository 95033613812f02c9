//! A stream's messages as they come: an ephemeral push consumer of our own.
//!
//! **Owns** one consumer. Each message carries the consumer's count. A gap in the count, a silence
//! of more than two heartbeats and a half, or a change of the connection ends the feed with an
//! error. Then the follower opens another feed from its last position.
//!
//! The client library's own watch is not used. It notices the same after ten seconds, and may start
//! over. After a restart of the server it can stay silent for ever
//! ([nats.rs 1596](https://github.com/nats-io/nats.rs/issues/1596)).
//!
//! **Promises** messages in order without a gap and, between them, the sequence up to which
//! everything was delivered.
//!
//! **Never** leaves a consumer behind: the feed deletes it when it is dropped. If the deletion does
//! not arrive, the server removes the consumer 30 s after the last subscriber left.

use std::time::Duration;

use async_nats::{HeaderMap, Message, Subscriber};
use berth_domain::Timestamp;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use rand::RngExt as _;
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout};

use crate::cause::Cause;
use crate::connection::exchange::ApiError;
use crate::connection::handle::Bus;
use crate::connection::handle::Watch;
use crate::connection::headers;
use crate::stream::names::nanoseconds;

/// How long the server keeps a consumer that has no subscriber.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

/// Where a feed begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FeedStart {
    /// With the newest message of each subject, then what comes.
    LastOfEach,
    /// With this sequence.
    From(u64),
    /// With what was stored at this time or after it.
    Since(Timestamp),
}

/// What to follow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedSpec<'a> {
    pub(crate) stream: &'a str,
    /// Wildcards are allowed, but no two filters may cover the same subject. Empty means the whole
    /// stream.
    pub(crate) subjects: &'a [String],
    pub(crate) start: FeedStart,
    pub(crate) heartbeat: Duration,
    /// Bring no payloads, and no more than so many bits a second.
    pub(crate) keys_only_bits_per_second: Option<u64>,
}

/// What a feed brings.
#[derive(Debug)]
pub(crate) enum FeedItem {
    Message(Delivery),
    /// Nothing more for now: everything up to this sequence was delivered.
    Idle(u64),
}

/// One message of the stream.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) subject: String,
    pub(crate) sequence: u64,
    pub(crate) unix_nanos: u64,
    /// Messages that wait behind this one.
    pub(crate) pending: u64,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

/// Why a feed ended.
#[derive(Debug, Error)]
pub(crate) enum FeedError {
    #[error("the consumer cannot be made")]
    Open(#[source] Cause),
    #[error("messages are missing")]
    Gap,
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    #[error("the connection changed")]
    Link,
}

impl From<ApiError> for FeedError {
    fn from(error: ApiError) -> Self {
        Self::Open(error.into())
    }
}

pub(crate) struct Feed {
    bus: Bus,
    subscriber: Subscriber,
    name: String,
    connection: Watch,
    /// Messages that waited when the feed began.
    pub(crate) pending: u64,
    /// The server's time when the consumer was made.
    pub(crate) opened_at: Timestamp,
    /// The consumer's count of the last message.
    count: u64,
    silence: Duration,
    heard: Instant,
}

#[derive(Deserialize)]
struct Created {
    num_pending: u64,
    ts: String,
}

impl Feed {
    pub(crate) async fn open(bus: &Bus, follow: FeedSpec<'_>) -> Result<Self, FeedError> {
        let FeedSpec { stream, subjects, start, heartbeat, keys_only_bits_per_second } = follow;
        let connection = Watch::new(bus);
        if !bus.connected() {
            return Err(FeedError::Link);
        }
        // The subscription is to this exact subject, because the server does not deliver to a
        // wildcard.
        let inbox = bus.client().new_inbox();
        let within = bus.config().request_timeout;
        let subscriber = timeout(within, bus.client().subscribe(inbox.clone())).await;
        let subscriber = subscriber
            .map_err(|_| FeedError::Silent(within))?
            .map_err(|error| FeedError::Open(Cause::new(error)))?;
        let name = consumer_name(bus.name());
        let mut config = json!({
            "name": name,
            "description": bus.name(),
            "deliver_subject": inbox,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": true,
            "idle_heartbeat": nanoseconds(heartbeat),
            "inactive_threshold": nanoseconds(FORGOTTEN_AFTER),
            "mem_storage": true,
            "num_replicas": 1,
        });
        if let Some(rate) = keys_only_bits_per_second {
            (config["headers_only"], config["rate_limit_bps"]) = (true.into(), rate.into());
        }
        match start {
            FeedStart::LastOfEach => config["deliver_policy"] = "last_per_subject".into(),
            FeedStart::From(sequence) => {
                config["deliver_policy"] = "by_start_sequence".into();
                config["opt_start_seq"] = sequence.max(1).into();
            }
            FeedStart::Since(time) => {
                config["deliver_policy"] = "by_start_time".into();
                config["opt_start_time"] = time.to_string().into();
            }
        }
        let mut create = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}");
        match subjects {
            [] => {}
            // The subject of the request contains the filter, so that permissions can be given by
            // subject.
            [subject] => {
                config["filter_subject"] = subject.as_str().into();
                create = format!("{create}.{subject}");
            }
            several => config["filter_subjects"] = several.into(),
        }
        // Made before the request, so that the consumer is deleted even if the caller gives up
        // meanwhile.
        let mut feed = Self {
            bus: bus.clone(),
            subscriber,
            name: format!("{stream}.{name}"),
            connection,
            pending: 0,
            opened_at: Timestamp::default(),
            count: 0,
            silence: heartbeat.mul_f64(2.5),
            heard: Instant::now(),
        };
        let created: Created = bus
            .api(create, &json!({ "stream_name": stream, "config": config, "action": "create" }))
            .await?;
        feed.pending = created.num_pending;
        feed.opened_at =
            Timestamp::try_from(created.ts).map_err(|error| FeedError::Open(Cause::new(error)))?;
        feed.heard = Instant::now();
        Ok(feed)
    }

    /// The next message or heartbeat. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<FeedItem, FeedError> {
        loop {
            let message = tokio::select! {
                biased;
                message = self.subscriber.next() => message.ok_or(FeedError::Link)?,
                () = self.connection.broken() => return Err(FeedError::Link),
                () = sleep_until(self.heard + self.silence) => {
                    return Err(FeedError::Silent(self.silence));
                }
            };
            self.heard = Instant::now();
            match message.status {
                None => return self.delivered(message),
                Some(status) if status.as_u16() == 100 => {
                    if let Some(idle) = self.heartbeat(&message).await? {
                        return Ok(idle);
                    }
                }
                // The server ends the consumer: its stream is deleted, or it shuts down.
                Some(_) => return Err(FeedError::Gap),
            }
        }
    }

    /// Returns when the feed's connection is gone or replaced.
    pub(crate) async fn broken(&mut self) {
        self.connection.broken().await;
    }

    fn delivered(&mut self, message: Message) -> Result<FeedItem, FeedError> {
        let ack = message.reply.as_deref().and_then(AckPosition::parse).ok_or(FeedError::Gap)?;
        if ack.count != self.count + 1 {
            return Err(FeedError::Gap);
        }
        self.count = ack.count;
        Ok(FeedItem::Message(Delivery {
            subject: message.subject.into_string(),
            sequence: ack.sequence,
            unix_nanos: ack.unix_nanos,
            pending: ack.pending,
            headers: message.headers.unwrap_or_default(),
            payload: message.payload,
        }))
    }

    /// Answers flow control; an idle heartbeat says how far the stream is.
    async fn heartbeat(&mut self, message: &Message) -> Result<Option<FeedItem>, FeedError> {
        let empty = HeaderMap::new();
        let headers = message.headers.as_ref().unwrap_or(&empty);
        let stalled = headers::get(headers, headers::STALLED).map(str::to_owned);
        let answer_to = message.reply.as_ref().map(ToString::to_string).or(stalled);
        if let Some(subject) = answer_to {
            let sent = self.bus.client().publish(subject, Bytes::new());
            let _: Result<_, _> = timeout(self.silence, sent).await;
            return Ok(None);
        }
        let last = headers::number(headers, headers::LAST_CONSUMER);
        if last.is_some_and(|last| last != self.count) {
            return Err(FeedError::Gap);
        }
        Ok(headers::number(headers, headers::LAST_STREAM).map(FeedItem::Idle))
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if self.bus.connected() {
            // The answer is not awaited: the process may be ending.
            let delete = format!("$JS.API.CONSUMER.DELETE.{}", self.name);
            let _: Option<_> = self.bus.client().publish(delete, Bytes::new()).now_or_never();
        }
    }
}

/// The position of a delivered message, read from the subject of its acknowledgement:
/// `$JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<count>.<time>.<pending>`. The longer form has a
/// domain and an account before the stream.
struct AckPosition {
    sequence: u64,
    count: u64,
    unix_nanos: u64,
    pending: u64,
}

impl AckPosition {
    fn parse(subject: &str) -> Option<Self> {
        let tokens: Vec<&str> = subject.strip_prefix("$JS.ACK.")?.split('.').collect();
        let first_field = match tokens.len() {
            7 => 3,
            9.. => 5,
            _ => return None,
        };
        let number = |at: usize| tokens.get(first_field + at)?.parse().ok();
        Some(Self {
            sequence: number(0)?,
            count: number(1)?,
            unix_nanos: number(2)?,
            pending: number(3)?,
        })
    }
}

/// `claim-host-1234-3f9a…`: names the process that follows, as `nats consumer report` shows it.
fn consumer_name(connection: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let process: String = connection.chars().map(plain).take(64).collect();
    format!("{process}-{:016x}", rand::rng().random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_of_a_message_is_read_in_both_forms() {
        for subject in [
            "$JS.ACK.KV_v.m1.1.5.2.1795244372639256138.3",
            "$JS.ACK.hub.ACC.KV_v.m1.1.5.2.1795244372639256138.3.rnd",
            "$JS.ACK._.ACC.KV_v.m1.1.5.2.1795244372639256138.3",
        ] {
            let position = AckPosition::parse(subject).unwrap();
            let AckPosition { sequence, count, unix_nanos, pending } = position;
            assert_eq!((sequence, count, pending), (5, 2, 3), "{subject}");
            assert_eq!(unix_nanos, 1_795_244_372_639_256_138);
        }
        assert!(AckPosition::parse("$JS.FC.x").is_none());
        assert!(AckPosition::parse("$JS.ACK.KV_v.m1.1.5.2.x.3").is_none());
    }

    #[test]
    fn a_consumer_is_named_after_its_connection() {
        let name = consumer_name("claim/host.local/17");
        assert!(name.starts_with("claim-host-local-17-"), "{name}");
        assert_ne!(name, consumer_name("claim/host.local/17"));
    }
}
