//! The way of events to the stream.
//!
//! An event that comes when none was sent for a moment goes at once, and those that follow it
//! closely go together. On a cluster, where each message is an entry of a log that three servers
//! write, they are one batch and cost as little as one. On one server the stream is written without
//! a sync and a batch would cost more than it saves; but both ends are woken once for all of them.

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

/// Events that go together.
const TOGETHER_MAX: usize = 256;
/// How often events go together at most.
const GATHER: Duration = Duration::from_millis(5);
/// How long the next ones wait for the last ones to be stored.
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
        // What is queued in the client while it is away would stand in the way of everything else.
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
            // Whoever waited may have given up.
            let _: Result<(), ()> = done.send(());
        }
    }
}

/// Each for itself, and none waited for.
async fn publish(bus: &Bus, events: Vec<QueuedEvent>) {
    for QueuedEvent { subject, headers, body } in events {
        if let Err(error) = bus.client().publish_with_headers(subject, headers, body).await {
            tracing::warn!(%error, "an event is lost");
        }
    }
}

/// All in one step, and waited for, so that more may gather meanwhile.
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
                tracing::debug!(%error, "events go one by one");
                publish(bus, events).await;
            }
            Ok(Ack { error: Some(error), .. }) => tracing::warn!(%error, "an event is lost"),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "events were acknowledged in other words"),
        },
        Err(error) => tracing::debug!(%error, count, "events are not known to be stored"),
    }
}
