//! Events as services send them, without the stream.
//!
//! **Promises** an event at once, and needs no more than the right to subscribe to its subject.
//!
//! **Never** promises that none is lost: a reader that must see each event reads the stream.

use async_nats::Subscriber;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{SelectAll, select_all};

use crate::cause::Cause;
use crate::connection::handle::Bus;

/// A subscription to the subjects of events. It goes on after a lost connection.
pub struct LiveEvents(SelectAll<Subscriber>);

impl Bus {
    /// Subscribes to events on subjects that these filters cover. A server that does not allow it
    /// says so later, and no event comes.
    pub async fn live_events(&self, filters: &[String]) -> Result<LiveEvents, Cause> {
        let mut subscriptions = Vec::with_capacity(filters.len());
        for filter in filters {
            let subscriber = self.client().subscribe(filter.clone()).await;
            subscriptions.push(subscriber.map_err(Cause::new)?);
        }
        Ok(LiveEvents(select_all(subscriptions)))
    }
}

impl LiveEvents {
    /// The next event's body; none when the client has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.next().await.map(|message| message.payload)
    }
}
