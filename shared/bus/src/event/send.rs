//! Sends events to the stream, or to the registry, which may write the stream.
//!
//! An event that comes after a quiet moment is sent at once; events that follow closely are sent
//! together. On a cluster, each message is a log entry that three servers write, so they go in one
//! batch, which costs as little as one message. On one server the stream is written without a sync,
//! and a batch would cost more than it saves. Sending them together still wakes both ends only
//! once.
//!
//! What nats-server refuses is kept ([`crate::connection::refused_events`]), and sent when a later
//! connection has the right.

use std::time::Duration;

use async_nats::HeaderMap;
use berth_contract::event::Event;
use berth_contract::header;
use berth_contract::message::node::{TOLD_MAX, TellEvents, ToldEvent};
use berth_contract::shorten::shorten;
use berth_contract::verb;
use berth_domain::retry::Schedule;
use bytes::Bytes;
use rand::RngExt as _;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::log::HEARTBEAT;
use crate::cause::chain;
use crate::connection::exchange::ExchangeError;
use crate::connection::handle::Bus;
use crate::connection::headers;
use crate::connection::refused_events::QueuedEvent;
use crate::rpc::request::{Call, RequestError};
use crate::stream::ack::{Ack, read_ack};

/// Most events that are sent together.
const TOGETHER_MAX: usize = 256;
/// How long the registry may take to put events in its queue.
const REGISTRY_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Pauses while no registry takes events.
const REGISTRY_RETRY: Schedule =
    Schedule { first: Duration::from_millis(50), max: Duration::from_secs(2) };
/// Shortest time between two sends of several events. A batch costs a cluster as much as a write.
const GATHER_FOR: Duration = Duration::from_millis(25);
/// How long the next events wait until the last ones are stored.
const STORE_WAIT_MAX: Duration = Duration::from_millis(500);
/// How long the acknowledgement of an event that was kept may take.
const KEPT_ANSWER_MAX: Duration = Duration::from_secs(5);
/// The pause after a kept event was not acknowledged.
const KEPT_RETRY: Duration = Duration::from_secs(1);

/// An entry of the queue in front of the stream.
pub(super) enum Outgoing {
    Event(QueuedEvent),
    Flush(oneshot::Sender<()>),
}

impl QueuedEvent {
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers::set(&mut headers, header::TRACEPARENT, self.trace);
        headers
    }
}

/// How events are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendMode {
    /// Each event by itself, to a stream on one server.
    EachAlone,
    /// Several events in one batch, to a stream with copies.
    Batches,
    /// Several events in one request to the registry.
    Requests,
}

/// Hands events to the client in order, while it is connected.
pub(super) async fn send(bus: Bus, mut outgoing: Receiver<Outgoing>, send_mode: SendMode) {
    let mut gather_until = Instant::now();
    let refused = || bus.link().refused_events();
    loop {
        let next = tokio::select! {
            next = outgoing.recv() => next,
            () = refused().sendable() => {
                send_kept(&bus, send_mode).await;
                continue;
            }
        };
        let Some(next) = next else { return };
        // Events queued in the client while disconnected would delay everything else after the
        // reconnect.
        await_connected(&bus).await;
        let events_max = if send_mode == SendMode::Requests { TOLD_MAX } else { TOGETHER_MAX };
        let (mut events, mut entry) = (Vec::new(), Some(next));
        while let Some(Outgoing::Event(event)) = entry {
            events.push(event);
            let has_room = events.len() < events_max;
            let coming = timeout_at(gather_until, outgoing.recv());
            entry = if has_room { coming.await.ok().flatten() } else { None };
        }
        gather_until = Instant::now() + GATHER_FOR;
        let events = refused().keep_refused(events);
        match send_mode {
            _ if events.is_empty() => {}
            SendMode::EachAlone => publish(&bus, events).await,
            SendMode::Batches => store(&bus, events).await,
            SendMode::Requests => {
                if !send_to_registry(&bus, &events).await {
                    refused().keep(events);
                }
            }
        }
        if let Some(Outgoing::Flush(done)) = entry {
            let _: Result<_, _> = timeout(HEARTBEAT, bus.client().flush()).await;
            // The caller of `flush` may have given up.
            let _: Result<(), ()> = done.send(());
        }
    }
}

/// Waits for the connection without a deadline.
async fn await_connected(bus: &Bus) {
    while !bus.wait_connected(Instant::now() + Duration::from_secs(60)).await {}
}

/// Sends the oldest event that nats-server refused on an earlier connection. The stream gets it
/// until it acknowledges it: the event's id keeps a repetition out. The registry gets it until a
/// request was not refused.
async fn send_kept(bus: &Bus, send_mode: SendMode) {
    let refused = bus.link().refused_events();
    let Some((number, event)) = refused.first() else { return };
    if send_mode == SendMode::Requests {
        if send_to_registry(bus, std::slice::from_ref(&event)).await {
            refused.remove(number);
        } else {
            refused.refuse(&event.subject);
        }
        return;
    }
    let mut headers = event.headers();
    headers::set(&mut headers, headers::MESSAGE_ID, format_args!("{}.{number}", bus.id()));
    let sent = bus.exchange(event.subject.clone(), headers, event.body, KEPT_ANSWER_MAX).await;
    match sent.map(|answer| read_ack(&answer)) {
        Ok(Ok(Ack { error: Some(error), .. })) => {
            tracing::warn!(%error, "an event is lost");
            refused.remove(number);
        }
        Ok(_) => refused.remove(number),
        Err(ExchangeError::Denied(_)) => refused.record_denied(&event.subject),
        Err(error) => {
            tracing::debug!(%error, "a kept event was not acknowledged; it is sent again");
            sleep(KEPT_RETRY).await;
        }
    }
}

/// Sends each event by itself, and waits for no acknowledgement.
async fn publish(bus: &Bus, events: Vec<QueuedEvent>) {
    let refused = bus.link().refused_events();
    for event in refused.keep_refused(events) {
        refused.record_sent(event.clone());
        let headers = event.headers();
        let QueuedEvent { subject, body, .. } = event;
        if let Err(error) = bus.client().publish_with_headers(subject, headers, body).await {
            tracing::warn!(%error, "an event is lost");
        }
    }
}

/// Sends all events in one batch and waits for the acknowledgement, so that more events gather
/// meanwhile.
async fn store(bus: &Bus, events: Vec<QueuedEvent>) {
    let count = events.len();
    let Some((last, others)) = events.split_last() else { return };
    let id = format!("{:016x}", rand::rng().random::<u64>());
    let batched = |event: &QueuedEvent, at: usize| {
        let mut headers = event.headers();
        let QueuedEvent { subject, body, .. } = event.clone();
        if count > 1 {
            headers::set(&mut headers, headers::BATCH_ID, &id);
            headers::set(&mut headers, headers::BATCH_SEQUENCE, at);
        }
        (subject, headers, body)
    };
    for (at, event) in others.iter().enumerate() {
        let (subject, headers, body) = batched(event, at + 1);
        if let Err(error) = bus.client().publish_with_headers(subject, headers, body).await {
            tracing::warn!(%error, "an event is lost");
        }
    }
    let (subject, mut headers, body): (_, _, Bytes) = batched(last, count);
    if count > 1 {
        headers::set(&mut headers, headers::BATCH_COMMIT, 1);
    }
    match bus.exchange(subject, headers, body, STORE_WAIT_MAX).await {
        Ok(answer) => match read_ack(&answer) {
            Ok(Ack { error: Some(error), .. }) if count > 1 => {
                tracing::debug!(%error, "the batch was refused; its events are sent one by one");
                publish(bus, events).await;
            }
            Ok(Ack { error: Some(error), .. }) => tracing::warn!(%error, "an event is lost"),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the acknowledgement of events cannot be read"),
        },
        // Single events of the batch may be allowed; sent alone, each is stored or kept.
        Err(ExchangeError::Denied(_)) => publish(bus, events).await,
        Err(error) => tracing::debug!(%error, count, "events may be lost: no acknowledgement came"),
    }
}

/// Has the registry store the events. While no registry listens they wait, and with them those that
/// come meanwhile, up to the length of the queue. False if nats-server refused the request.
async fn send_to_registry(bus: &Bus, events: &[QueuedEvent]) -> bool {
    let Some(trace) = events.first().map(|event| event.trace) else { return true };
    let told = events.iter().filter_map(|QueuedEvent { trace, body, .. }| {
        let event = serde_json::from_slice::<Event>(body);
        let event = event.inspect_err(|error| tracing::warn!(%error, "an event is lost"));
        let mut event = event.ok()?;
        event.detail = event.detail.map(shorten);
        Some(ToldEvent { event, traceparent: *trace })
    });
    let request = TellEvents { events: told.collect() };
    let mut tries = 0;
    loop {
        let call = Call::within(trace, REGISTRY_ANSWER_MAX);
        match bus.ask_service::<verb::NodeTell>(&(), &request, &call).await {
            Ok(_) => return true,
            Err(RequestError::NotAllowed { .. }) => return false,
            Err(error) if error.is_undone() => {
                tracing::debug!(error = chain(&error), tries, "the registry takes no events now");
            }
            Err(error) => {
                let count = events.len();
                tracing::warn!(error = chain(&error), count, "events may be lost");
                return true;
            }
        }
        tries += 1;
        let pause = REGISTRY_RETRY.wait(tries, rand::rng().random());
        sleep(pause).await;
        await_connected(bus).await;
    }
}
