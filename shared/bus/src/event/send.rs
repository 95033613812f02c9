//! Sends events to the stream.
//!
//! An event that comes after a quiet moment is sent at once; events that follow closely are sent
//! together. On a cluster, each message is a log entry that three servers write, so they go in one
//! batch, which costs as little as one message. On one server the stream is written without a sync,
//! and a batch would cost more than it saves. Sending them together still wakes both ends only
//! once.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use rand::RngExt as _;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::log::HEARTBEAT;
use crate::ack::{Ack, read_ack};
use crate::handle::Bus;
use crate::headers;

/// Most events that are sent together.
const TOGETHER_MAX: usize = 256;
/// Shortest time between two sends of several events.
const GATHER: Duration = Duration::from_millis(5);
/// How long the next events wait for the last ones to be stored.
const PACE: Duration = Duration::from_millis(500);

/// What the queue in front of the stream holds.
pub(super) enum Outgoing {
    Event(QueuedEvent),
    Flush(oneshot::Sender<()>),
}

/// An event that waits to be sent.
#[derive(Clone)]
pub(super) struct QueuedEvent {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Hands events to the client in order, while it is connected.
pub(super) async fn send(bus: Bus, mut outgoing: Receiver<Outgoing>, replicated: bool) {
    let mut gather_until = Instant::now();
    while let Some(next) = outgoing.recv().await {
        // Events queued in the client while disconnected would delay everything else.
        while !bus.wait_connected(Instant::now() + Duration::from_secs(60)).await {}
        let (mut events, mut then) = (Vec::new(), Some(next));
        while let Some(Outgoing::Event(event)) = then {
            events.push(event);
            let more = events.len() < TOGETHER_MAX;
            let coming = timeout_at(gather_until, outgoing.recv());
            then = if more { coming.await.ok().flatten() } else { None };
        }
        gather_until = Instant::now() + GATHER;
        if replicated {
            store(&bus, events).await;
        } else {
            publish(&bus, events).await;
        }
        if let Some(Outgoing::Flush(done)) = then {
            let _: Result<_, _> = timeout(HEARTBEAT, bus.client().flush()).await;
            // The caller of `flush` may have given up.
            let _: Result<(), ()> = done.send(());
        }
    }
}

/// Sends each event by itself, and waits for no acknowledgement.
async fn publish(bus: &Bus, events: Vec<QueuedEvent>) {
    for QueuedEvent { subject, headers, body } in events {
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
        let QueuedEvent { subject, mut headers, body } = event.clone();
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
    match bus.exchange(subject, headers, body, PACE).await {
        Ok(answer) => match read_ack(&answer) {
            Ok(Ack { error: Some(error), .. }) if count > 1 => {
                tracing::debug!(%error, "the batch was refused; its events are sent one by one");
                publish(bus, events).await;
            }
            Ok(Ack { error: Some(error), .. }) => tracing::warn!(%error, "an event is lost"),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the acknowledgement of events cannot be read"),
        },
        Err(error) => tracing::debug!(%error, count, "events may be lost: no acknowledgement came"),
    }
}
