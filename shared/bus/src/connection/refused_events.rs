//! Events that nats-server refused, kept until this process may send them.
//!
//! **Owns** the kept events, and which families of events are refused. The server refuses or allows
//! a whole family ([`subject::event_family`](berth_contract::subject::event_family)), and a
//! connection keeps its rights for as long as it lasts.
//!
//! **Promises** that the events of a family are sent in the order in which they happened, and that
//! the log has one line when events begin to be kept, and one when the last of them was sent. At
//! most [`KEPT_MAX`] are kept; then the oldest is lost and counted.
//!
//! **Never** sends the events of a refused family one after the other to learn whether they are
//! allowed now: the oldest is tried, on the next connection or after [`REFUSED_RETRY`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_contract::subject;
use berth_contract::trace::TraceContext;
use berth_telemetry::metric::{EVENTS_KEPT, EVENTS_LOST};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Most events that are kept: half an hour of a busy claim service, in some ten megabytes.
const KEPT_MAX: usize = 16_384;
/// How long after a refusal an event is tried again on the same connection: a reload of the server
/// may change rights, too.
const REFUSED_RETRY: Duration = Duration::from_secs(300);
/// Events that were sent without an acknowledgement and may still be refused.
const SENT_MAX: usize = 2_048;

/// An event that waits to be sent.
#[derive(Debug, Clone)]
pub(crate) struct QueuedEvent {
    pub(crate) subject: String,
    pub(crate) trace: TraceContext,
    pub(crate) body: Bytes,
}

/// An event that was refused, for the next process of the same service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedEvent {
    /// Its subject.
    pub subject: String,
    /// The trace that it belongs to.
    pub traceparent: TraceContext,
    /// The event, as JSON.
    pub body: String,
}

/// The refused events of one connection's process.
#[derive(Debug, Default)]
pub(crate) struct RefusedEvents {
    state: Mutex<KeptEvents>,
    /// Notified when a new connection may have other rights, and when events are refused.
    changed: Notify,
}

/// How many events were refused and not sent yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCounts {
    /// Events that are kept.
    pub kept: u64,
    /// Events that are lost, because more were refused than are kept.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct KeptEvents {
    /// Number of the next event, in the order of all events.
    next: u64,
    sent: VecDeque<(u64, QueuedEvent)>,
    families: BTreeMap<String, Family>,
    /// The last refusal, while events are kept.
    refused_at: Option<Instant>,
    lost: u64,
    is_losing: bool,
}

#[derive(Debug, Default)]
struct Family {
    /// Whether the server refused the family the last time.
    refused: bool,
    events: VecDeque<(u64, QueuedEvent)>,
}

impl RefusedEvents {
    /// Keeps the events whose family is refused, and returns the others.
    pub(crate) fn keep_refused(&self, events: Vec<QueuedEvent>) -> Vec<QueuedEvent> {
        self.lock().keep_refused(events)
    }

    /// Notes an event that is sent without an acknowledgement.
    pub(crate) fn record_sent(&self, event: QueuedEvent) {
        self.lock().record_sent(event);
    }

    /// Keeps events that the server refused.
    pub(crate) fn keep(&self, events: Vec<QueuedEvent>) {
        self.lock().keep(events);
    }

    /// The server refused a message to this subject.
    pub(crate) fn record_denied(&self, denied: &str) {
        self.lock().record_denied(denied);
        self.changed.notify_one();
    }

    /// The registry may not be told an event with this subject: its family waits.
    pub(crate) fn refuse(&self, subject: &str) {
        self.lock().refuse(subject);
        self.changed.notify_one();
    }

    /// Lets kept events be tried: a new connection may have other rights.
    pub(crate) fn record_connected(&self) {
        let mut state = self.lock();
        // The server has reported the refusals of the earlier connection by now.
        state.sent.clear();
        state.reopen();
        self.changed.notify_one();
    }

    /// Waits until a kept event may be sent.
    pub(crate) async fn sendable(&self) {
        while self.first().is_none() {
            let refused_at = self.lock().refused_at;
            let Some(at) = refused_at else {
                self.changed.notified().await;
                continue;
            };
            if timeout_at(at + REFUSED_RETRY, self.changed.notified()).await.is_err() {
                self.lock().reopen();
            }
        }
    }

    /// The oldest kept event that may be sent.
    pub(crate) fn first(&self) -> Option<(u64, QueuedEvent)> {
        self.lock().first()
    }

    /// Removes an event that was sent, or that cannot be sent.
    pub(crate) fn remove(&self, number: u64) {
        self.lock().remove(number);
    }

    /// All kept events, in order.
    pub(crate) fn list(&self) -> Vec<RefusedEvent> {
        self.lock().list()
    }

    /// Adds the refused events of an earlier process before all others. They are tried at once.
    pub(crate) fn take_up(&self, events: Vec<RefusedEvent>) {
        let mut state = self.lock();
        for RefusedEvent { subject, traceparent: trace, body } in events {
            let number = state.number();
            state.put(number, QueuedEvent { subject, trace, body: body.into() });
        }
        self.changed.notify_one();
    }

    pub(crate) fn counts(&self) -> KeptCounts {
        let state = self.lock();
        KeptCounts { kept: state.count() as u64, lost: state.lost }
    }

    fn lock(&self) -> MutexGuard<'_, KeptEvents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptEvents {
    fn count(&self) -> usize {
        self.families.values().map(|family| family.events.len()).sum()
    }

    fn list(&self) -> Vec<RefusedEvent> {
        let mut events: Vec<_> = self.families.values().flat_map(|family| &family.events).collect();
        events.sort_unstable_by_key(|(number, _)| *number);
        let refused = events.into_iter().filter_map(|(_, event)| {
            Some(RefusedEvent {
                subject: event.subject.clone(),
                traceparent: event.trace,
                body: String::from_utf8(event.body.to_vec()).ok()?,
            })
        });
        refused.collect()
    }

    fn keep_refused(&mut self, events: Vec<QueuedEvent>) -> Vec<QueuedEvent> {
        if self.families.is_empty() {
            return events;
        }
        let is_kept = |event: &QueuedEvent| self.families.contains_key(&family(&event.subject));
        let (kept, allowed): (Vec<_>, Vec<_>) = events.into_iter().partition(is_kept);
        for event in kept {
            let number = self.number();
            self.put(number, event);
        }
        allowed
    }

    fn record_sent(&mut self, event: QueuedEvent) {
        let number = self.number();
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((number, event));
    }

    fn keep(&mut self, events: Vec<QueuedEvent>) {
        for event in events {
            self.refuse(&event.subject);
            let number = self.number();
            self.put(number, event);
        }
    }

    fn record_denied(&mut self, denied: &str) {
        if subject::event_family(denied).is_none() {
            return;
        }
        self.refuse(denied);
        let refused = family(denied);
        // The rest of the family was refused with this event, or will be.
        let is_refused = |event: &QueuedEvent| family(&event.subject) == refused;
        let sent = std::mem::take(&mut self.sent);
        let (kept, allowed) = sent.into_iter().partition(|(_, event)| is_refused(event));
        self.sent = allowed;
        for (number, event) in kept {
            self.put(number, event);
        }
    }

    /// Has each family tried again.
    fn reopen(&mut self) {
        self.refused_at = None;
        for family in self.families.values_mut() {
            family.refused = false;
        }
        self.families.retain(|_, family| !family.events.is_empty());
    }

    fn first(&self) -> Option<(u64, QueuedEvent)> {
        let open = self.families.values().filter(|family| !family.refused);
        open.filter_map(|family| family.events.front()).min_by_key(|(number, _)| *number).cloned()
    }

    fn remove(&mut self, number: u64) {
        for family in self.families.values_mut() {
            // The event is the first, unless an earlier one was refused meanwhile.
            if family.events.front().is_some_and(|(first, _)| *first == number) {
                family.events.pop_front();
            } else {
                family.events.retain(|(stored_number, _)| *stored_number != number);
            }
        }
        let before = self.families.len();
        self.families.retain(|_, family| family.refused || !family.events.is_empty());
        EVENTS_KEPT.set(self.count() as u64, []);
        if self.families.is_empty() && before > 0 {
            self.is_losing = false;
            tracing::info!("events that nats-server had refused are sent");
        }
    }

    fn refuse(&mut self, subject: &str) {
        let is_first = self.families.is_empty();
        self.families.entry(family(subject)).or_default().refused = true;
        self.refused_at = Some(Instant::now());
        if is_first {
            tracing::warn!(
                subject,
                next = "berth doctor",
                "nats-server refuses events of this process: they are kept, and sent when its \
                 identity has the right"
            );
        }
    }

    /// Inserts an event by its number. Refusals come late, so a later event may be there already.
    fn put(&mut self, number: u64, event: QueuedEvent) {
        let events = &mut self.families.entry(family(&event.subject)).or_default().events;
        let at = events.partition_point(|(stored_number, _)| *stored_number < number);
        events.insert(at, (number, event));
        while self.count() > KEPT_MAX {
            self.lose_oldest();
        }
        EVENTS_KEPT.set(self.count() as u64, []);
    }

    fn lose_oldest(&mut self) {
        let families = self.families.values_mut().filter(|family| !family.events.is_empty());
        let oldest = families.min_by_key(|family| family.events.front().map(|(number, _)| *number));
        let Some(family) = oldest else { return };
        family.events.pop_front();
        self.lost += 1;
        EVENTS_LOST.add(1, []);
        if !std::mem::replace(&mut self.is_losing, true) {
            tracing::warn!(most = KEPT_MAX, "no more refused events are kept: the oldest are lost");
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The family of an event's subject. A subject that is no event's is a family of its own.
fn family(subject: &str) -> String {
    match subject::event_family(subject) {
        Some((tokens, kind, sender)) => format!("{tokens}.{kind}.{sender}"),
        None => subject.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, id: u64) -> QueuedEvent {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let subject = format!("berth.v1.event.default.{kind}.v{id}.=none.service.claim");
        QueuedEvent {
            subject,
            trace: TraceContext::parse(trace).unwrap(),
            body: id.to_string().into(),
        }
    }

    /// Sends everything that may be sent.
    fn drain(kept: &mut KeptEvents) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some((number, event)) = kept.first() {
            sent.push(String::from_utf8(event.body.to_vec()).unwrap());
            kept.remove(number);
        }
        sent
    }

    #[test]
    fn refused_events_are_sent_in_order_on_the_next_connection() {
        let mut kept = KeptEvents::default();
        for id in 1..=3 {
            kept.record_sent(event("claim", id));
        }
        kept.record_sent(event("volume", 4));
        // The refusal of the first event blocks its family, so that later events do not overtake
        // it.
        kept.record_denied(&event("claim", 1).subject);
        let free = kept.keep_refused(vec![event("claim", 5), event("volume", 6)]);
        assert_eq!(free.len(), 1, "{free:?}");
        kept.record_denied(&event("claim", 2).subject);
        kept.record_denied("berth.v1.claim.take.default.service.claim");
        assert_eq!((kept.count(), drain(&mut kept)), (4, vec![]), "not on this connection");
        kept.reopen();
        assert!(kept.keep_refused(vec![event("claim", 7)]).is_empty(), "it waits for the others");
        assert_eq!(drain(&mut kept), ["1", "2", "3", "5", "7"]);
        assert_eq!(kept.keep_refused(vec![event("claim", 8)]).len(), 1, "nothing is kept now");
    }

    #[test]
    fn a_family_that_is_still_refused_keeps_no_other_back() {
        let mut kept = KeptEvents::default();
        kept.keep(vec![event("claim", 1), event("volume", 2), event("claim", 3)]);
        kept.reopen();
        kept.record_denied(&event("claim", 1).subject);
        assert_eq!(drain(&mut kept), ["2"]);
        assert_eq!(kept.count(), 2);
        kept.reopen();
        assert_eq!(drain(&mut kept), ["1", "3"]);
    }

    #[test]
    fn the_next_process_sends_what_this_one_was_refused_before_its_own_events() {
        let refused = RefusedEvents::default();
        refused.keep(vec![event("claim", 1), event("volume", 2), event("claim", 3)]);
        let next = RefusedEvents::default();
        next.take_up(refused.list());
        assert!(next.keep_refused(vec![event("claim", 4)]).is_empty(), "it waits for the others");
        assert_eq!(drain(&mut next.lock()), ["1", "2", "3", "4"]);
    }

    #[test]
    fn the_oldest_of_too_many_is_lost_and_counted() {
        let mut kept = KeptEvents::default();
        let max = u64::try_from(KEPT_MAX).unwrap();
        kept.keep((0..max + 5).map(|id| event("claim", id)).collect());
        assert_eq!((kept.count(), kept.lost), (KEPT_MAX, 5));
        assert_eq!(kept.families.values().next().unwrap().events[0].1.body, "5");
    }
}
