//! Events: what happened, published for readers. No service waits for an event.
//!
//! **Owns** the event stream and the queue in front of it; [`EventLog`] reads what is stored.
//!
//! **Promises** that [`EventSender::publish`] returns at once: it hands the event to a bounded
//! queue. A full queue drops the event and counts it ([`EventSender::lost`]). Events that
//! nats-server refuses are kept and sent later ([`Bus::kept_events`]). Events may be lost, so no
//! decision depends on them.
//!
//! **Never** makes a claim wait.

mod live;
mod log;
mod page;
mod send;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use berth_contract::actor::Actor;
use berth_contract::bucket::SETTINGS;
use berth_contract::stream::StreamSpec;
use berth_contract::trace::TraceContext;
use berth_telemetry::metric::EVENTS_LOST;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use self::live::LiveEvents;
pub use self::log::{Event, EventError, EventFeed, EventLog};
pub use self::page::{LAST_MAX, Position, Query, Stored};
use self::send::{Outgoing, SendMode};
use crate::connection::handle::Bus;
use crate::connection::refused_events::QueuedEvent;
pub use crate::connection::refused_events::{KeptCounts, RefusedEvent};
use crate::incarnation::Origin;
use crate::stream::copies::Copies;
use crate::stream::correction::SETTINGS_KEY;
use crate::stream::names::nanoseconds;
use crate::stream::open::{Drift, OpenError, REPLICAS, Settings, number};

/// Events that may wait in the queue before it drops events.
const QUEUE_MAX: usize = 1024;

/// A queue of events that a task sends: a cheap handle.
#[derive(Debug, Clone)]
pub struct EventSender {
    inner: Arc<SenderInner>,
}

#[derive(Debug)]
struct SenderInner {
    actor: Actor,
    queue: mpsc::Sender<Outgoing>,
    lost: AtomicU64,
    is_losing: AtomicBool,
    task: JoinHandle<()>,
}

impl Drop for SenderInner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The event stream, and a queue in front of it: a cheap handle.
#[derive(Debug, Clone)]
pub struct Events {
    sender: EventSender,
    bus: Bus,
    stream: String,
    drift: Arc<[Drift]>,
}

impl Bus {
    /// Opens the event stream; makes it with so many copies if it does not exist.
    pub async fn events(
        &self,
        spec: &StreamSpec,
        copies: impl Into<Copies>,
    ) -> Result<Events, OpenError> {
        let opened = self.ensure(spec.name, spec, copies.into(), Some(Origin::First)).await?;
        let drift = opened.drift;
        let has_copies = number(&opened.config, REPLICAS).is_some_and(|copies| copies > 1);
        let send_mode = if has_copies { SendMode::Batches } else { SendMode::EachAlone };
        let stream = spec.name.to_owned();
        Ok(Events {
            sender: self.queue_events(send_mode),
            bus: self.clone(),
            stream,
            drift: drift.into(),
        })
    }

    /// Events of a process that may not write the stream: the plugin registry writes them.
    pub fn events_by_request(&self) -> EventSender {
        self.queue_events(SendMode::Requests)
    }

    /// How many events nats-server refused that were not sent yet.
    pub fn kept_events(&self) -> KeptCounts {
        self.link().refused_events().counts()
    }

    /// The kept events, in order, for the next process.
    pub fn refused_events(&self) -> Vec<RefusedEvent> {
        self.link().refused_events().list()
    }

    /// Sends the refused events of an earlier process, before this process's events.
    pub fn take_up_events(&self, events: Vec<RefusedEvent>) {
        self.link().refused_events().take_up(events);
    }

    fn queue_events(&self, by: SendMode) -> EventSender {
        let (queue, outgoing) = mpsc::channel(QUEUE_MAX);
        let task = tokio::spawn(send::send(self.clone(), outgoing, by));
        let actor = self.config().actor.clone();
        let (lost, is_losing) = Default::default();
        EventSender { inner: Arc::new(SenderInner { actor, queue, lost, is_losing, task }) }
    }
}

impl EventSender {
    /// Queues an event, on this subject with the actor appended; returns at once.
    pub fn publish(&self, subject: &str, event: &(impl Serialize + ?Sized), trace: TraceContext) {
        self.publish_for(&self.inner.actor, subject, event, trace);
    }

    /// Queues an event of another actor, which requested it; returns at once.
    pub fn publish_for(
        &self,
        actor: &Actor,
        subject: &str,
        event: &(impl Serialize + ?Sized),
        trace: TraceContext,
    ) {
        let body = match serde_json::to_vec(event) {
            Ok(body) => body.into(),
            Err(error) => return self.lose(subject, &error),
        };
        let outgoing = Outgoing::Event(QueuedEvent { subject: actor.sign(subject), trace, body });
        match self.inner.queue.try_send(outgoing) {
            Ok(()) => self.inner.is_losing.store(false, Ordering::Relaxed),
            Err(error) => self.lose(subject, &error),
        }
    }

    /// How many events were lost because the queue was full.
    pub fn lost(&self) -> u64 {
        self.inner.lost.load(Ordering::Relaxed)
    }

    /// Waits until the events queued so far are handed to the bus, at most for `within`.
    pub async fn flush(&self, within: Duration) {
        let (done, sent) = tokio::sync::oneshot::channel();
        let flushed = timeout(within, async {
            if self.inner.queue.send(Outgoing::Flush(done)).await.is_ok() {
                // The task answers, or it has ended; both end the wait.
                let _: Result<(), _> = sent.await;
            }
        });
        if flushed.await.is_err() {
            tracing::debug!("events were still waiting");
        }
    }

    fn lose(&self, subject: &str, why: &impl std::fmt::Display) {
        self.inner.lost.fetch_add(1, Ordering::Relaxed);
        EVENTS_LOST.add(1, []);
        // The first lost event is logged; the metric counts the others.
        if !self.inner.is_losing.swap(true, Ordering::Relaxed) {
            tracing::warn!(subject, %why, "an event is lost");
        }
    }
}

impl Deref for Events {
    type Target = EventSender;

    fn deref(&self) -> &EventSender {
        &self.sender
    }
}

impl Events {
    /// The queue in front of the stream.
    pub fn sender(&self) -> EventSender {
        self.sender.clone()
    }

    /// The settings that differed from the expected ones when the stream was opened.
    pub fn drift(&self) -> &[Drift] {
        &self.drift
    }

    /// The events that are stored, to be read.
    pub fn log(&self) -> EventLog {
        EventLog::new(self.bus.clone(), self.stream.clone())
    }

    /// The last `count` events (at most [`LAST_MAX`]) on subjects that `filter` covers, oldest
    /// first.
    pub async fn last(
        &self,
        filter: &str,
        count: usize,
        within: Duration,
    ) -> Result<Vec<Event>, EventError> {
        let filters = [filter.to_owned()];
        let query = Query { last: count, ..Query::new(&filters, within) };
        Ok(self.log().read(query, |_| true).await?.events)
    }

    /// Follows the events that come from now on.
    pub async fn follow(&self, filter: &str) -> Result<EventFeed, EventError> {
        self.log().follow(&[filter.to_owned()]).await
    }
}

impl Settings for StreamSpec {
    fn settings(&self, copies: u8, is_clustered: bool) -> Map<String, Value> {
        config(self, copies, is_clustered)
    }
}

fn config(spec: &StreamSpec, copies: u8, is_clustered: bool) -> Map<String, Value> {
    let mut config = json!({
        "name": spec.name,
        "description": spec.description,
        "metadata": { "berth.schema": "1", (SETTINGS_KEY): SETTINGS.to_string() },
        "subjects": spec.subjects,
        "retention": "limits",
        "storage": "file",
        (REPLICAS): copies,
        "max_age": nanoseconds(spec.max_age),
        "max_bytes": spec.max_bytes,
        "discard": "old",
        "allow_direct": true,
        "allow_atomic": is_clustered,
        "max_consumers": -1,
    });
    // The server accepts this setting only with one copy. A stream with this setting cannot get
    // more copies later, so a stream on a cluster never has it.
    if spec.asynchronous && copies == 1 && !is_clustered {
        config["persist_mode"] = "async".into();
    }
    match config {
        Value::Object(config) => config,
        _ => Map::new(),
    }
}
