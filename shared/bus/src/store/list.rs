//! All keys under a prefix, as of one moment.
//!
//! **Owns** [`Bucket::list`], for any number of keys. A subtree of up to a thousand keys is one
//! batched read and one leader read; more keys come through a consumer.
//!
//! **Promises** that a [`List`] that is [`settled`](List::settled) shows what was below the filter
//! at the leader when the call ended. A guard over the filter with [`head`](List::head) holds until
//! something below it is written. Where writes never pause, the list may not be settled. Then each
//! key is as it was at some moment of the call, and a guard detects the difference.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::Timestamp;
use serde_json::json;
use tokio::time::timeout;

use crate::cause::Cause;
use crate::connection::exchange::pause;
use crate::store::batch::BatchedRead;
use crate::store::bucket::Bucket;
use crate::store::filter;
use crate::store::read::{Entry, ReadError};
use crate::stream::feed::{Delivery, Feed, FeedItem, FeedSpec, FeedStart};

/// Most tries to read a list that other writers keep changing.
const TRIES: u32 = 5;
/// The consumer's heartbeat interval. A silent consumer ends the reading.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// All live keys below a filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    /// The live keys in order, each with a value.
    pub entries: Vec<Entry>,
    /// The newest revision below the filter, markers included: the one for a guard. 0 when there is
    /// nothing.
    pub head: u64,
    /// Whether the entries are all of one moment, and nothing was written since.
    pub settled: bool,
    /// The newest revision that the server had when it was read. A key that is missing here, and
    /// was last written up to that revision, is gone. 0 if unknown.
    pub known: u64,
}

/// The result of one try: the newest message of each key.
#[derive(Default)]
struct NewestByKey {
    newest: BTreeMap<String, Entry>,
    head: u64,
    known: u64,
}

impl NewestByKey {
    fn add(&mut self, entry: Entry) {
        self.head = self.head.max(entry.revision);
        self.newest.insert(entry.key.clone(), entry);
    }

    fn list(self, settled: bool) -> List {
        let entries = self.newest.into_values().filter(|entry| entry.value.is_some()).collect();
        List { entries, head: self.head, settled, known: self.known }
    }
}

impl Bucket {
    /// All live keys below `filter` (a key, or `prefix.>`).
    pub async fn list(&self, filter: &str) -> Result<List, ReadError> {
        self.read_list(filter, false).await
    }

    /// As [`list`](Self::list), and [`List::known`] is always set.
    pub(crate) async fn list_known(&self, filter: &str) -> Result<List, ReadError> {
        self.read_list(filter, true).await
    }

    async fn read_list(&self, filter: &str, is_known: bool) -> Result<List, ReadError> {
        if !filter::is_filter(filter) {
            return Err(self.bad_filter(filter));
        }
        let mut tries = 0;
        loop {
            let newest = match self.read_batch(filter).await? {
                Some(newest) if !is_known || newest.known > 0 => newest,
                _ => self.read_feed(filter, is_known).await?,
            };
            // The head is read after the list: if it is unchanged, nothing was written in between.
            let settled = self.head(filter).await? == newest.head;
            tries += 1;
            if settled || tries == TRIES {
                return Ok(newest.list(settled));
            }
            pause(0).await;
        }
    }

    /// One batched read, answered by any replica; `None` if there are too many keys for it.
    async fn read_batch(&self, filter: &str) -> Result<Option<NewestByKey>, ReadError> {
        let mut newest = NewestByKey::default();
        let read =
            self.batch(json!({ "multi_last": [self.subject(filter)] }), |entry| newest.add(entry));
        match read.await.map_err(|cause| self.unavailable(cause))? {
            BatchedRead::Whole { known } => Ok(Some(NewestByKey { known, ..newest })),
            BatchedRead::TooMany => Ok(None),
        }
    }

    /// All messages through a consumer, until none is waiting and the head is among them.
    async fn read_feed(&self, filter: &str, is_known: bool) -> Result<NewestByKey, ReadError> {
        let within = self.bus.config().start_timeout;
        let read = timeout(within, self.read_all(filter, is_known)).await;
        read.unwrap_or_else(|_| Err(self.unavailable(Cause::new("the list does not end"))))
    }

    async fn read_all(&self, filter: &str, is_known: bool) -> Result<NewestByKey, ReadError> {
        let failed = |cause| self.unavailable(cause);
        let head = self.head(filter).await?;
        let follow = FeedSpec {
            stream: &self.shape.stream,
            subjects: &[self.subject(filter)],
            start: FeedStart::LastOfEach,
            heartbeat: HEARTBEAT,
            keys_only_bits_per_second: None,
        };
        let mut feed =
            Feed::open(&self.bus, follow).await.map_err(|error| failed(Cause::new(error)))?;
        let mut newest = NewestByKey::default();
        // Only the heartbeat of an idle consumer says how far the consumer is beyond the filter's
        // last message.
        let mut awaits_idle = is_known;
        let mut pending = feed.pending;
        // A replica that lags behind the head delivers the head later.
        while pending > 0 || newest.known < head || awaits_idle {
            match feed.next().await.map_err(|error| failed(Cause::new(error)))? {
                FeedItem::Idle(sequence) => {
                    (pending, newest.known, awaits_idle) = (0, sequence, false);
                }
                FeedItem::Message(message) => {
                    (pending, newest.known) = (message.pending, message.sequence);
                    if let Some(entry) = self.delivered(&message) {
                        newest.add(entry);
                    }
                }
            }
        }
        Ok(newest)
    }

    fn delivered(&self, message: &Delivery) -> Option<Entry> {
        let Delivery { subject, sequence, unix_nanos, headers, payload, .. } = message;
        let created = Timestamp::from_unix_ms(unix_nanos / 1_000_000);
        self.entry_of(subject, *sequence, created, headers, payload)
    }

    fn unavailable(&self, source: Cause) -> ReadError {
        ReadError::Unavailable { bucket: self.shape.name.clone(), source }
    }
}
