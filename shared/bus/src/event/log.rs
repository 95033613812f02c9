//! Single events, and events as they are stored. Pages of them are read in [`super::page`].
//!
//! **Promises** that events are read in the order in which they were stored. No event between
//! reading and following is left out or returned twice. A reader makes no stream.

use std::time::Duration;

use async_nats::HeaderMap;
use berth_contract::code::Code;
use berth_contract::header;
use berth_contract::problem::Problem;
use berth_contract::stream::StreamSpec;
use berth_contract::trace::TraceContext;
use berth_domain::Timestamp;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::cause::{Cause, chain};
use crate::connection::exchange::{ApiError, pause};
use crate::connection::handle::Bus;
use crate::connection::headers;
use crate::stream::feed::{Delivery, Feed, FeedError, FeedItem, FeedSpec, FeedStart};

/// One event as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The subject.
    pub subject: String,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When the server stored it.
    pub stored: Timestamp,
    /// The trace it belongs to.
    pub trace: Option<TraceContext>,
    /// The event itself.
    pub body: Bytes,
}

/// The server's error code if there is no message at a sequence.
const NO_MESSAGE: u64 = 10037;
/// The status of a direct get that finds nothing.
const NOT_FOUND: u16 = 404;
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);

/// The stored events, for readers: a cheap handle.
#[derive(Debug, Clone)]
pub struct EventLog {
    pub(super) bus: Bus,
    pub(super) stream: String,
}

/// Why events cannot be read.
#[derive(Debug, Error)]
#[error("stream {stream} cannot be read now; check nats-server, and that a service of Berth ran")]
pub struct EventError {
    stream: String,
    #[source]
    source: Cause,
}

/// The problem to answer the service's caller with.
impl From<EventError> for Problem {
    fn from(error: EventError) -> Self {
        Self::new(Code::BusUnavailable, chain(&error)).retryable()
    }
}

impl Bus {
    /// The stored events. Unlike [`Bus::events`] this makes no stream: a reader must not decide how
    /// many copies the stream has.
    pub fn event_log(&self, spec: &StreamSpec) -> EventLog {
        EventLog::new(self.clone(), spec.name.to_owned())
    }
}

impl Event {
    /// Reads the answer to a direct get: the message, with its position in headers.
    fn got(headers: &HeaderMap, body: Bytes) -> Option<Self> {
        Some(Self {
            subject: headers::get(headers, headers::SUBJECT)?.to_owned(),
            sequence: headers::number(headers, headers::SEQUENCE)?,
            stored: Timestamp::try_from(headers::get(headers, headers::TIME)?.to_owned()).ok()?,
            trace: headers::get(headers, header::TRACEPARENT).and_then(TraceContext::parse),
            body,
        })
    }
}

impl From<Delivery> for Event {
    fn from(message: Delivery) -> Self {
        Self {
            subject: message.subject,
            sequence: message.sequence,
            stored: Timestamp::from_unix_ms(message.unix_nanos / 1_000_000),
            trace: headers::get(&message.headers, header::TRACEPARENT)
                .and_then(TraceContext::parse),
            body: message.payload,
        }
    }
}

impl EventLog {
    pub(super) fn new(bus: Bus, stream: String) -> Self {
        Self { bus, stream }
    }

    /// Follows the events that come from now on.
    pub async fn follow(&self, filters: &[String]) -> Result<EventFeed, EventError> {
        let stream = self.bus.describe(&self.stream).await;
        let next = stream.map_err(|error| self.error(error.into()))?.state.last_seq + 1;
        Ok(self.follow_from(filters, next))
    }

    /// Follows the events from a sequence on, such as [`super::Stored::next`].
    pub fn follow_from(&self, filters: &[String], next: u64) -> EventFeed {
        let filters = filters.to_vec();
        EventFeed { log: self.clone(), filters, feed: None, next, before: None, resumed: None }
    }

    /// When the message at a sequence was stored; `None` if there is no message.
    pub(super) async fn stored_at(&self, sequence: u64) -> Result<Option<Timestamp>, ApiError> {
        #[derive(Deserialize)]
        struct Got {
            message: Stood,
        }
        #[derive(Deserialize)]
        struct Stood {
            time: String,
        }
        let subject = format!("$JS.API.STREAM.MSG.GET.{}", self.stream);
        match self.bus.api::<Got>(subject, &json!({ "seq": sequence })).await {
            Ok(got) => Ok(Timestamp::try_from(got.message.time).ok()),
            Err(ApiError::Refused { code: NO_MESSAGE, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The newest event on subjects that the filter covers.
    pub async fn newest(
        &self,
        filter: &str,
        within: Duration,
    ) -> Result<Option<Event>, EventError> {
        self.get_event(json!({ "last_by_subj": filter }), within).await
    }

    /// The first event after a sequence, on subjects that the filter covers.
    pub async fn first_after(
        &self,
        filter: &str,
        sequence: u64,
        within: Duration,
    ) -> Result<Option<Event>, EventError> {
        self.get_event(json!({ "next_by_subj": filter, "seq": sequence + 1 }), within).await
    }

    /// One event, by a direct get: any server with a copy of the stream answers.
    async fn get_event(&self, which: Value, within: Duration) -> Result<Option<Event>, EventError> {
        let subject = format!("$JS.API.DIRECT.GET.{}", self.stream);
        let body = which.to_string().into();
        let answer = self.bus.exchange(subject, HeaderMap::new(), body, within).await;
        let answer = answer.map_err(|error| self.error(Cause::new(error)))?;
        if answer.status.is_some_and(|status| status.as_u16() == NOT_FOUND) {
            return Ok(None);
        }
        let event = answer.headers.as_ref().and_then(|headers| Event::got(headers, answer.payload));
        event.map(Some).ok_or_else(|| self.error(Cause::new("its answer is no message")))
    }

    pub(super) async fn open(
        &self,
        filters: &[String],
        start: FeedStart,
    ) -> Result<Feed, FeedError> {
        let follow = FeedSpec {
            stream: &self.stream,
            subjects: filters,
            start,
            heartbeat: HEARTBEAT,
            keys_only_bits_per_second: None,
        };
        Feed::open(&self.bus, follow).await
    }

    pub(super) fn error(&self, source: Cause) -> EventError {
        EventError { stream: self.stream.clone(), source }
    }
}

/// Events as they come.
pub struct EventFeed {
    log: EventLog,
    filters: Vec<String>,
    feed: Option<Feed>,
    /// The first sequence that was not returned yet.
    next: u64,
    /// When the message before `next` was stored, once it is known.
    before: Option<Timestamp>,
    /// Set while the feed may repeat events: events stored up to this time were returned already.
    resumed: Option<Timestamp>,
}

impl EventFeed {
    /// The next event. Continues without a gap after a lost connection. A server that was killed
    /// may have lost the newest events, which it writes to disk a little later. Then new events get
    /// their sequences, and are returned too.
    pub async fn next(&mut self) -> Event {
        let mut tries = 0;
        loop {
            let Some(feed) = &mut self.feed else {
                match self.open().await {
                    Ok(feed) => self.feed = Some(feed),
                    Err(error) => {
                        tracing::debug!(%error, "events cannot be followed now");
                        tries += 1;
                        pause(tries).await;
                    }
                }
                continue;
            };
            match feed.next().await {
                Ok(FeedItem::Message(message)) => {
                    let sequence = message.sequence;
                    let event = Event::from(message);
                    if self.resumed.is_some_and(|returned_until| event.stored <= returned_until) {
                        continue;
                    }
                    self.resumed = None;
                    (self.next, self.before) = (sequence + 1, Some(event.stored));
                    return event;
                }
                // The sequence of an idle feed is no position to resume at, because the stream may
                // lose its end.
                Ok(FeedItem::Idle(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "the event feed ended; it is opened again");
                    self.feed = None;
                }
            }
        }
    }

    /// Opens the feed at the next sequence. If the stream lost its end, opens the feed at the time
    /// of the last returned event.
    async fn open(&mut self) -> Result<Feed, FeedError> {
        let state = self.log.bus.describe(&self.log.stream).await?.state;
        let position = self.next.saturating_sub(1);
        // Messages before the stream's first were removed by age or size.
        let stands = match position {
            0 => None,
            position if position < state.first_seq => self.before,
            position => self.log.stored_at(position).await?,
        };
        match self.before {
            Some(before) if stands != self.before => {
                tracing::info!(
                    place = position,
                    "the stream lost its newest events; reading continues at {before}"
                );
                self.resumed = Some(before);
                self.log.open(&self.filters, FeedStart::Since(before)).await
            }
            _ => {
                self.before = stands;
                self.log.open(&self.filters, FeedStart::From(self.next)).await
            }
        }
    }
}
