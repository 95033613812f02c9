//! Pages of the stored events: the newest, older ones, and what was stored after a position.
//!
//! **Promises** that reading on from a page leaves out no event and returns none twice, also after
//! a server was killed and lost the newest events, which it writes to disk a little later.
//!
//! **Never** holds more than [`LAST_MAX`] events, and never reads longer than it may: what was not
//! read is left to the next page.

use std::collections::VecDeque;
use std::time::Duration;

use berth_domain::Timestamp;
use tokio::time::{Instant, timeout_at};

use super::log::{Event, EventError, EventLog};
use crate::cause::Cause;
use crate::stream::feed::{Delivery, Feed, FeedError, FeedItem, FeedStart};

/// Most events that are read at once.
pub const LAST_MAX: usize = 10_000;
/// Fewest messages of the first step back.
const BACK_MIN: usize = 64;

/// Which events to read.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// On subjects that one of these covers; no two of them may cover the same subject.
    pub filters: &'a [String],
    /// How many, at most [`LAST_MAX`].
    pub last: usize,
    /// At most so many bytes of bodies, but for a single event.
    pub bytes: usize,
    /// Only those before this sequence.
    pub before: Option<u64>,
    /// Only those that the server stored at this time or after it.
    pub since: Option<Timestamp>,
    /// How long the read may take.
    pub within: Duration,
}

impl<'a> Query<'a> {
    /// The newest events on these subjects.
    pub const fn new(filters: &'a [String], within: Duration) -> Self {
        Self { filters, last: LAST_MAX, bytes: usize::MAX, before: None, since: None, within }
    }
}

/// Where a reader has got to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// The last sequence that was read.
    pub sequence: u64,
    /// When the message there was stored. A stream that lost its end gives the sequence to another
    /// message, which has another time.
    pub stored: Timestamp,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Oldest first.
    pub events: Vec<Event>,
    /// If there may be more of the older events: only those before this sequence are left.
    pub older: Option<u64>,
    /// Everything up to here was read.
    pub end: Position,
    /// Everything before this sequence was read. To go on, follow [from
    /// here](EventLog::follow_from).
    pub next: u64,
    /// Whether more events are stored after `end`.
    pub more: bool,
    /// When the oldest event in the stream was stored, if older ones were removed by age or size.
    pub begins: Option<Timestamp>,
}

impl EventLog {
    /// Reads the newest events that match the query and that `keep` accepts.
    pub async fn read(
        &self,
        query: Query<'_>,
        keep: impl Fn(&Event) -> bool,
    ) -> Result<Stored, EventError> {
        let read = self.read_back(query, keep).await;
        read.map_err(|error| self.error(Cause::new(error)))
    }

    /// Reads the oldest events after a position that match the query and that `keep` accepts.
    pub async fn read_on(
        &self,
        from: Position,
        query: Query<'_>,
        keep: impl Fn(&Event) -> bool,
    ) -> Result<Stored, EventError> {
        let read = self.read_forward(from, query, keep).await;
        read.map_err(|error| self.error(Cause::new(error)))
    }

    async fn read_back(
        &self,
        query: Query<'_>,
        keep: impl Fn(&Event) -> bool,
    ) -> Result<Stored, FeedError> {
        let limit = Limit::new(query.within);
        let state = limit.hold(async { Ok(self.bus.describe(&self.stream).await?.state) }).await?;
        let count = query.last.min(LAST_MAX);
        let next = state.last_seq + 1;
        let mut read = ReadWindow::default();
        let mut older = None;
        // Each step back is four times as long as the last, so that there are few steps, and few
        // events are read in vain.
        let mut end = query.before.map_or(next, |before| before.min(next));
        let (mut back, mut is_first) = (count.max(BACK_MIN) as u64, true);
        while end > state.first_seq {
            if read.events.len() >= count || read.bytes >= query.bytes {
                older = Some(end);
                break;
            }
            let begin = end.saturating_sub(back).max(state.first_seq);
            let room = Room {
                count: count - read.events.len(),
                bytes: query.bytes.saturating_sub(read.bytes),
                is_whole_page: read.events.is_empty(),
                since: query.since,
            };
            let window = limit.hold(async {
                let feed = self.open(query.filters, FeedStart::From(begin)).await?;
                let window = read_window(feed, end, room, &keep).await?;
                let begins_before = match query.since {
                    Some(since) if begin > state.first_seq => {
                        self.stored_at(begin).await?.is_some_and(|stored| stored < since)
                    }
                    _ => false,
                };
                Ok((window, begins_before))
            });
            let (mut window, begins_before) = match window.await {
                Ok(window) => window,
                Err(error) if is_first => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "older events are left to the next page");
                    older = Some(end);
                    break;
                }
            };
            older = window.cut;
            window.events.append(&mut read.events);
            read.bytes += window.bytes;
            read.events = window.events;
            if older.is_some() || window.is_before_since || begins_before {
                break;
            }
            (end, back, is_first) = (begin, back.saturating_mul(4), false);
        }
        Ok(Stored {
            events: read.events.into(),
            older,
            end: Position { sequence: state.last_seq, stored: time(state.last_ts) },
            next,
            more: false,
            begins: Timestamp::try_from(state.first_ts).ok().filter(|_| state.first_seq > 1),
        })
    }

    async fn read_forward(
        &self,
        from: Position,
        query: Query<'_>,
        keep: impl Fn(&Event) -> bool,
    ) -> Result<Stored, FeedError> {
        let limit = Limit::new(query.within);
        let position = from.sequence;
        let (state, stands) = limit
            .hold(async {
                let state = self.bus.describe(&self.stream).await?.state;
                // Messages before the stream's first were removed by age or size.
                let stands = match position {
                    0 => Some(from.stored),
                    position if position < state.first_seq => Some(from.stored),
                    position => self.stored_at(position).await?,
                };
                Ok((state, stands))
            })
            .await?;
        let has_lost_end = stands != Some(from.stored);
        let last = Position { sequence: state.last_seq, stored: time(state.last_ts) };
        let mut read = Stored {
            events: Vec::new(),
            older: None,
            end: last,
            next: last.sequence + 1,
            more: false,
            begins: Timestamp::try_from(state.first_ts).ok().filter(|_| state.first_seq > 1),
        };
        let start = if has_lost_end {
            tracing::info!(
                place = position,
                "the stream lost its newest events; reading goes on by time"
            );
            FeedStart::Since(from.stored)
        } else {
            FeedStart::From(position + 1)
        };
        if !has_lost_end && position >= state.last_seq {
            return Ok(read);
        }
        let (count, mut bytes) = (query.last.min(LAST_MAX), 0);
        let mut reached = None;
        let reading = limit.hold(async {
            let mut feed = self.open(query.filters, start).await?;
            let mut pending = Pending::new(&feed, last.sequence + 1);
            while let Some(message) = pending.next(&mut feed).await? {
                let event = Event::from(message);
                let position = Position { sequence: event.sequence, stored: event.stored };
                // The event was returned before the stream lost its end.
                if has_lost_end && event.stored <= from.stored {
                    continue;
                }
                let is_wanted =
                    query.since.is_none_or(|since| event.stored >= since) && keep(&event);
                if is_wanted {
                    let size = event.body.len();
                    let is_full = read.events.len() >= count
                        || (!read.events.is_empty() && bytes + size > query.bytes);
                    if is_full {
                        return Ok(true);
                    }
                    bytes += size;
                    read.events.push(event);
                }
                reached = Some(position);
            }
            Ok(false)
        });
        let reading = reading.await;
        let is_cut = match reading {
            Ok(is_cut) => is_cut,
            Err(error) if reached.is_none() => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "newer events are left to the next page");
                true
            }
        };
        if is_cut {
            read.end = reached.unwrap_or(from);
            read.next = read.end.sequence + 1;
            read.more = true;
        }
        Ok(read)
    }
}

fn time(text: String) -> Timestamp {
    Timestamp::try_from(text).unwrap_or_default()
}

/// The time that a read may take.
struct Limit {
    within: Duration,
    until: Instant,
}

impl Limit {
    fn new(within: Duration) -> Self {
        Self { within, until: Instant::now() + within }
    }

    async fn hold<T>(
        &self,
        part: impl Future<Output = Result<T, FeedError>>,
    ) -> Result<T, FeedError> {
        let read = timeout_at(self.until, part).await;
        read.unwrap_or(Err(FeedError::Silent(self.within)))
    }
}

/// How many more events fit the page.
#[derive(Clone, Copy)]
struct Room {
    count: usize,
    bytes: usize,
    /// Whether the page has no events yet: one is read however large it is.
    is_whole_page: bool,
    since: Option<Timestamp>,
}

/// A part of the stream, with the newest of its wanted events.
#[derive(Default)]
struct ReadWindow {
    events: VecDeque<Event>,
    bytes: usize,
    /// The sequence before which events were left out for lack of room.
    cut: Option<u64>,
    /// Whether the window begins before the requested time.
    is_before_since: bool,
}

/// Reads up to a sequence, which is not included.
async fn read_window(
    mut feed: Feed,
    end: u64,
    room: Room,
    keep: impl Fn(&Event) -> bool,
) -> Result<ReadWindow, FeedError> {
    let mut window = ReadWindow::default();
    let mut pending = Pending::new(&feed, end);
    while let Some(message) = pending.next(&mut feed).await? {
        let event = Event::from(message);
        if room.since.is_some_and(|since| event.stored < since) {
            window.is_before_since = true;
            continue;
        }
        if !keep(&event) {
            continue;
        }
        window.bytes += event.body.len();
        window.events.push_back(event);
        while window.events.len() > room.count || window.bytes > room.bytes {
            let is_only = window.events.len() == 1 && room.is_whole_page;
            if is_only && room.count > 0 {
                break;
            }
            let Some(first) = window.events.pop_front() else { break };
            window.bytes -= first.body.len();
            window.cut = Some(first.sequence + 1);
        }
    }
    Ok(window)
}

/// What a feed still has to deliver before a sequence.
struct Pending {
    left: u64,
    end: u64,
    is_idle: bool,
}

impl Pending {
    fn new(feed: &Feed, end: u64) -> Self {
        Self { left: feed.pending, end, is_idle: false }
    }

    /// The next message; none at the end.
    async fn next(&mut self, feed: &mut Feed) -> Result<Option<Delivery>, FeedError> {
        while self.left > 0 {
            match feed.next().await? {
                FeedItem::Message(message) if message.sequence >= self.end => break,
                FeedItem::Message(message) => {
                    (self.left, self.is_idle) = (message.pending, false);
                    return Ok(Some(message));
                }
                // Messages that were counted and do not come were removed by age or size meanwhile.
                FeedItem::Idle(reached) if self.is_idle || reached + 1 >= self.end => break,
                FeedItem::Idle(_) => self.is_idle = true,
            }
        }
        Ok(None)
    }
}
