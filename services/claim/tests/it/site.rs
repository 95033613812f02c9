//! A nats-server and the service, with events that a test publishes.

use std::time::Duration;

use berth_bus::{Bus, Call, Change, Config, Events, Guard, Write};
use berth_contract::bucket::BucketSpec;
use berth_contract::event::{Event, EventName};
use berth_contract::message::history::{EventPage, ListEvents};
use berth_contract::problem::Problem;
use berth_contract::service::CLAIM;
use berth_contract::stream::EVENTS;
use berth_contract::verb;
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::dirs::Dir;
use berth_harness::nats::Server;
use berth_harness::process::{Daemon, Program};
use berth_harness::wait;
use berth_service::clock;

/// A patience that only a broken run uses up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What it started ends with it.
pub struct Site {
    // Dropped in this order.
    pub claim: Daemon,
    pub bus: Bus,
    events: Events,
    pub server: Server,
    _dir: Dir,
}

impl Site {
    /// Starts a server and the service, and waits until it serves.
    pub async fn start() -> Self {
        Self::start_beside(async |_| ()).await.0
    }

    /// The same, beside what is there on the bus before the service.
    pub async fn start_beside<T>(before: impl AsyncFnOnce(Bus) -> T) -> (Self, T) {
        let server = Server::start().await;
        let bus =
            Bus::connect(Config::new([server.url()], "test/host/1").insecure()).await.unwrap();
        let before = before(bus.clone()).await;
        let dir = Dir::new("claim");
        let program = env!("CARGO_BIN_EXE_berth-claim");
        let claim = Program::service_at(program, "claim", &dir).on_bus(server.url(), 1).start();
        let events = bus.events(&EVENTS, 1).await.unwrap();
        let site = Self { claim, bus, events, server, _dir: dir };
        site.ready().await;
        (site, before)
    }

    /// Waits until the service serves.
    pub async fn ready(&self) {
        wait::until("the service serves", PATIENCE, async || {
            assert!(self.claim.is_running(), "{}", self.claim.log());
            self.list("*", &ListEvents::default()).await.map_err(|problem| problem.to_string())
        })
        .await;
    }

    /// One request, as a person sends it.
    pub async fn list(&self, namespace: &str, query: &ListEvents) -> Result<EventPage, Problem> {
        let namespace = Namespace::new(namespace).unwrap();
        let answer = self.bus.ask_service::<verb::HistoryList>(&namespace, query, &call()).await;
        answer.map_err(|error| error.into_problem("history.list"))
    }

    /// All pages: back from the newest, oldest first.
    pub async fn all(&self, namespace: &str, query: &ListEvents) -> Vec<Event> {
        let (mut query, mut found) = (query.clone(), Vec::new());
        loop {
            let page = self.list(namespace, &query).await.unwrap();
            found.splice(0..0, events_of(&page));
            match page.next {
                Some(next) => query.page.after = Some(next),
                None => return found,
            }
        }
    }

    /// Publishes events, and waits until the last is stored.
    pub async fn tell(&self, all: &[Event]) {
        for event in all {
            self.events.publish(&event.subject(), event, clock::begin_trace());
            // The queue in front of the stream has a bound.
            self.events.flush(PATIENCE).await;
        }
        let last = all.last().unwrap();
        wait::until("the events are stored", PATIENCE, async || {
            let stored = self.events.last("berth.v1.event.>", 1, PATIENCE).await.unwrap();
            let stored = stored.first().map(|event| serde_json::from_slice::<Event>(&event.body));
            match stored {
                Some(Ok(stored)) if stored == *last => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

/// Stores a value, whatever it says.
pub async fn plant(bus: &Bus, spec: &BucketSpec, key: &str, value: Vec<u8>) {
    let bucket = bus.bucket(spec, 1).await.unwrap();
    let revision = bucket.head(key).await.unwrap();
    let write = Write {
        key,
        change: Change::Put(value.into()),
        guard: Guard { filter: key, revision },
        operation: "test",
        trace: clock::begin_trace(),
    };
    bucket.commit(write).await.unwrap();
}

/// A request of a new trace.
pub fn call() -> Call {
    Call::within(clock::begin_trace(), PATIENCE)
}

/// The events of a page.
pub fn events_of(page: &EventPage) -> Vec<Event> {
    page.events.iter().map(|entry| entry.event.event().clone()).collect()
}

/// An event of an alloc's claim on a volume.
pub fn claim_event(name: EventName, namespace: &str, volume: &str, alloc: &str) -> Event {
    Event {
        namespace: Some(Namespace::new(namespace).unwrap()),
        volume: Some(VolumeId::new(volume).unwrap()),
        alloc: Some(AllocId::new(alloc).unwrap()),
        node: Some(NodeId::new("n1").unwrap()),
        trace: Some("a".repeat(32)),
        ..Event::new(name, clock::now(), CLAIM)
    }
}

/// An event of a node.
pub fn node_event(name: EventName, node: &str) -> Event {
    Event { node: Some(NodeId::new(node).unwrap()), ..Event::new(name, clock::now(), CLAIM) }
}
