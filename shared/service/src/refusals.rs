//! Refused requests, published as events: `request.refused`.
//!
//! **Owns** the content of such an event, and how many are published.
//!
//! **Promises** that a process publishes one event for all retries of a request, and that a flood
//! of refusals stays within a rate, of which one sender has a quarter. A refusal beyond the rate is
//! counted in `berth.refusals.untold`, and a later retry is published.
//!
//! **Never** delays an answer, and never publishes an answer that only tells the caller to wait.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use berth_bus::EventSender;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::problem::Problem;
use berth_contract::service::ServiceName;
use berth_contract::trace::TraceContext;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, SnapshotId, VolumeId};
use berth_telemetry::metric::REFUSALS_UNTOLD;
use serde_json::Value;
use tokio::time::Instant;

use crate::clock;
use crate::rate::{SenderRates, TokenBucket};

/// Refusals that are remembered, so that their retries are not published again.
const REMEMBERED_MAX: usize = 4_096;
/// Refusals of one sender published at once after a quiet time.
const SENDER_BURST_MAX: f64 = 100.0;
/// Refusals of one sender published per second while they keep coming.
const SENDER_PER_SECOND: f64 = 20.0;
/// The rate of all senders together, as a multiple of one sender's rate.
const ALL_SENDERS_FACTOR: f64 = 4.0;
/// Characters of an error's message in the event.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// Publishes refused requests in the name of a service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RefusalTeller {
    events: EventSender,
    service: ServiceName,
    limiter: Arc<Mutex<RefusalLimiter>>,
}

/// The ids in a request, as far as they can be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestSubject {
    /// The namespace.
    pub namespace: Option<Namespace>,
    /// The volume.
    pub volume: Option<VolumeId>,
    /// The snapshot of the volume.
    pub snapshot: Option<SnapshotId>,
    /// The alloc.
    pub alloc: Option<AllocId>,
    /// The node.
    pub node: Option<NodeId>,
    /// The actor that made the request, or for which it was made.
    pub by: Option<String>,
    /// The actor that sent the request.
    pub sender: Option<String>,
}

impl RequestSubject {
    /// The ids in the body of a request, even if the rest of the body cannot be read. Nothing else
    /// of the body is kept: it may hold secrets.
    pub fn read(step: &str, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |field: &str| body.get(field).and_then(Value::as_str);
        let noun = step.split('.').next().unwrap_or_default();
        let own = |of: &'static str| if noun == of { "id" } else { of };
        // A request for a snapshot of one volume names it in a list.
        let only_volume = || match body.get("volumes")?.as_array()?.as_slice() {
            [only] if noun == "snapshot" => only.as_str(),
            _ => None,
        };
        Self {
            namespace: text("namespace").and_then(|id| Namespace::new(id).ok()),
            volume: text(own("volume")).or_else(only_volume).and_then(|id| VolumeId::new(id).ok()),
            snapshot: text("snapshot").and_then(|id| SnapshotId::new(id).ok()),
            alloc: text(own("alloc")).and_then(|id| AllocId::new(id).ok()),
            node: text("node").and_then(|id| NodeId::new(id).ok()),
            by: None,
            sender: None,
        }
    }
}

impl RefusalTeller {
    /// A publisher in the name of `service`.
    pub fn new(events: EventSender, service: ServiceName) -> Self {
        let limiter = Arc::new(Mutex::new(RefusalLimiter::new(Instant::now())));
        Self { events, service, limiter }
    }

    /// Publishes that a request was refused, or failed. Returns at once.
    pub fn tell_refusal(&self, about: RequestSubject, problem: &Problem, trace: TraceContext) {
        if problem.code.is_wait() {
            return;
        }
        let RequestSubject { namespace, volume, snapshot, alloc, node, by, sender } = about;
        let trace_id = trace.trace_id();
        let told = ToldRefusal {
            trace: trace_id.clone(),
            volume: volume.clone(),
            alloc: alloc.clone(),
            code: problem.code,
        };
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        match limiter.admit(told, sender.unwrap_or_default(), Instant::now()) {
            Admission::Told => {}
            Admission::Repeated => return,
            Admission::Exceeds => return REFUSALS_UNTOLD.add(1, []),
        }
        drop(limiter);
        let id_of = |name: &Option<String>| name.clone();
        let event = Event {
            namespace,
            volume,
            snapshot,
            alloc,
            node: node.or_else(|| NodeId::new(id_of(&problem.node)?).ok()),
            plugin: id_of(&problem.plugin).and_then(|id| PluginId::new(id).ok()),
            step: problem.step.clone(),
            code: Some(problem.code),
            detail: Some(problem.message.chars().take(MESSAGE_CHARS_MAX).collect()),
            trace: Some(trace_id),
            by,
            ..Event::new(EventName::RequestRefused, clock::now(), self.service)
        };
        self.events.publish(&event.subject(), &event, trace);
    }
}

/// A published refusal. A retry of the request gets an equal one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ToldRefusal {
    trace: String,
    volume: Option<VolumeId>,
    alloc: Option<AllocId>,
    code: Code,
}

/// Whether a refusal is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Told,
    /// It was published before.
    Repeated,
    /// The rate is exceeded.
    Exceeds,
}

/// A bounded memory of refusals, and their rates.
#[derive(Debug)]
struct RefusalLimiter {
    published: HashSet<ToldRefusal>,
    oldest_first: VecDeque<ToldRefusal>,
    senders: SenderRates<String>,
    all_senders: TokenBucket,
}

impl RefusalLimiter {
    fn new(now: Instant) -> Self {
        let (published, oldest_first) = (HashSet::new(), VecDeque::new());
        let senders = SenderRates::new(SENDER_BURST_MAX, SENDER_PER_SECOND);
        let all_senders = TokenBucket::new(
            ALL_SENDERS_FACTOR * SENDER_BURST_MAX,
            ALL_SENDERS_FACTOR * SENDER_PER_SECOND,
            now,
        );
        Self { published, oldest_first, senders, all_senders }
    }

    fn admit(&mut self, refusal: ToldRefusal, sender: String, now: Instant) -> Admission {
        if self.published.contains(&refusal) {
            return Admission::Repeated;
        }
        if !self.senders.take(&sender, 1.0, now) || !self.all_senders.take(1.0, now) {
            return Admission::Exceeds;
        }
        if self.oldest_first.len() == REMEMBERED_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.published.remove(&oldest);
        }
        self.oldest_first.push_back(refusal.clone());
        self.published.insert(refusal);
        Admission::Told
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refusal(trace: usize, volume: &str, code: Code) -> ToldRefusal {
        let volume = VolumeId::new(volume).ok();
        ToldRefusal { trace: trace.to_string(), volume, alloc: AllocId::new("a").ok(), code }
    }

    fn sender() -> String {
        "user.anna".to_owned()
    }

    #[test]
    fn one_senders_flood_keeps_no_refusal_of_another_from_being_told() {
        let now = Instant::now();
        let mut limiter = RefusalLimiter::new(now);
        let told_of = |sender: usize| {
            let refused = |trace| refusal(10_000 * sender + trace, "data", Code::Held);
            let admit_one = |trace| limiter.admit(refused(trace), format!("user.{sender}"), now);
            (0..1_000).map(admit_one).filter(|admission| *admission == Admission::Told).count()
        };
        assert_eq!([0, 1, 2, 3, 4].map(told_of), [100, 100, 100, 100, 0]);
    }

    #[test]
    fn retries_of_a_request_are_told_once() {
        let now = Instant::now();
        let mut limiter = RefusalLimiter::new(now);
        for retry in 0..1_000 {
            let admission = limiter.admit(refusal(1, "data", Code::Held), sender(), now);
            assert_eq!(admission == Admission::Told, retry == 0);
        }
        for other in [
            refusal(2, "data", Code::Held),
            refusal(1, "logs", Code::Held),
            refusal(1, "data", Code::PluginUnhealthy),
        ] {
            assert_eq!(limiter.admit(other, sender(), now), Admission::Told);
        }
    }

    #[test]
    fn a_flood_is_told_at_a_rate_and_retries_of_what_exceeded_it_are_told_later() {
        let begin = Instant::now();
        let mut limiter = RefusalLimiter::new(begin);
        let mut told_of = |traces: std::ops::Range<usize>, now| {
            let admit_one =
                |trace| limiter.admit(refusal(trace, "data", Code::Held), sender(), now);
            traces.map(admit_one).filter(|admission| *admission == Admission::Told).count()
        };
        assert_eq!(told_of(0..1_000, begin), 100);
        assert_eq!(told_of(1_000..2_000, begin + Duration::from_secs(2)), 40);
        assert_eq!(told_of(999..1_000, begin + Duration::from_secs(3)), 1);
        assert_eq!(told_of(2_000..9_000, begin + Duration::from_secs(3600)), 100);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut now = Instant::now();
        let mut limiter = RefusalLimiter::new(now);
        for trace in 0..3 * REMEMBERED_MAX {
            now += Duration::from_millis(50);
            assert_eq!(
                limiter.admit(refusal(trace, "data", Code::Held), sender(), now),
                Admission::Told
            );
        }
        assert_eq!(limiter.published.len(), REMEMBERED_MAX);
        assert_eq!(limiter.oldest_first.len(), REMEMBERED_MAX);
        let newest = refusal(3 * REMEMBERED_MAX - 1, "data", Code::Held);
        assert_eq!(limiter.admit(newest, sender(), now), Admission::Repeated);
        assert!(matches!(
            limiter.admit(refusal(0, "data", Code::Held), sender(), now),
            Admission::Told
        ));
    }

    #[test]
    fn ids_are_read_from_a_body_of_any_verb_and_nothing_else() {
        let read = |step, body: &str| {
            let about = RequestSubject::read(step, body.as_bytes());
            let volume = about.volume.map(|id| id.to_string());
            let alloc = about.alloc.map(|id| id.to_string());
            (volume.unwrap_or_default(), alloc.unwrap_or_default())
        };
        let of = |volume: &str, alloc: &str| (volume.to_owned(), alloc.to_owned());
        let take = r#"{"alloc": "a", "volume": "data", "node": 5, "unknown": {}}"#;
        assert_eq!(read("claim.take", take), of("data", "a"));
        assert_eq!(
            read("volume.register", r#"{"id": "data", "secrets": {"k": 1}}"#),
            of("data", "")
        );
        assert_eq!(read("alloc.register", r#"{"id": "a", "volumes": []}"#), of("", "a"));
        let about = |step, body: &str| {
            let about = RequestSubject::read(step, body.as_bytes());
            (about.volume.map(String::from), about.snapshot.map(String::from))
        };
        let monday = (Some("data".to_owned()), Some("monday".to_owned()));
        let create = r#"{"volumes": ["data"], "snapshot": "monday"}"#;
        assert_eq!(about("snapshot.create", create), monday);
        assert_eq!(about("snapshot.delete", r#"{"volume": "data", "snapshot": "monday"}"#), monday);
        let group = r#"{"volumes": ["data", "logs"], "snapshot": "monday"}"#;
        assert_eq!(about("snapshot.create", group), (None, Some("monday".to_owned())));
        assert_eq!(read("agent.mount", r#"{"alloc": "a", "volume": ""}"#), of("", "a"));
        for bad in ["", "[]", "{\"id\": ", "7"] {
            assert_eq!(read("volume.register", bad), of("", ""), "{bad}");
        }
    }
}
