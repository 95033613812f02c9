//! One watch for all waits of a scheduler.
//!
//! **Owns** one subscription to the events of its own allocs. An event wakes a read of the alloc
//! that it is about. Events may be lost, so the list of the owner's allocs is compared now and
//! then, in one request.
//!
//! **Promises** that an alloc that nobody waits for is not read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_bus::Call;
use berth_bus::event::LiveEvents;
use berth_contract::code::Code;
use berth_contract::event::Event;
use berth_contract::message::alloc::{AllocStatus, Allocs, List, Status};
use berth_contract::problem::Problem;
use berth_contract::subject::{EventsOf, wanted_filter};
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::limits::REQUEST_TIMEOUT;
use berth_domain::{AllocId, OwnerId};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::{Asker, PAGES_MAX};

/// How often the list of allocs is compared.
const COMPARE: Duration = Duration::from_secs(5);

/// An alloc as it was seen last.
#[derive(Debug, Clone, Default)]
pub(super) enum Seen {
    /// It was not read yet.
    #[default]
    NotYet,
    /// As it is.
    As(Box<AllocStatus>),
    /// It is not on record any more.
    Gone,
}

type Watched = Arc<Mutex<HashMap<AllocId, watch::Sender<Seen>>>>;

/// The watch, and the task behind it.
#[derive(Debug)]
pub(super) struct Watch {
    watched: Watched,
    asker: Asker,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    pub(super) async fn start(asker: &Asker, owner: &OwnerId) -> Result<Self, Problem> {
        let bus = asker.client.bus();
        let of = EventsOf::Namespace(&asker.namespace);
        let filter = wanted_filter(of, bus.actor());
        let events = bus.live_events(&[filter]).await;
        let events = events.map_err(|error| Problem::new(Code::BusUnavailable, error))?;
        let watched = Watched::default();
        let task =
            Task { watched: Arc::clone(&watched), asker: asker.clone(), owner: owner.clone() };
        let task = tokio::spawn(task.run(events));
        Ok(Self { watched, asker: asker.clone(), task })
    }

    /// Follows an alloc from now on.
    pub(super) async fn follow(&self, id: &AllocId) -> watch::Receiver<Seen> {
        let mut receiver = {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            let sender = watched.entry(id.clone()).or_default();
            if sender.receiver_count() == 0 {
                // Nothing was read of it meanwhile.
                sender.send_replace(Seen::NotYet);
            }
            sender.subscribe()
        };
        if matches!(*receiver.borrow_and_update(), Seen::NotYet) {
            read(&self.asker, &self.watched, id).await;
        }
        receiver.mark_changed();
        receiver
    }

    /// The alloc may have changed by a request of this process.
    pub(super) async fn look_again(&self, id: &AllocId) {
        if is_followed(&self.watched, id) {
            read(&self.asker, &self.watched, id).await;
        }
    }
}

struct Task {
    watched: Watched,
    asker: Asker,
    owner: OwnerId,
}

impl Task {
    async fn run(self, mut events: LiveEvents) {
        let mut compare = interval(COMPARE);
        compare.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = events.next() => {
                    let Some(body) = event else { return };
                    let event = serde_json::from_slice::<Event>(&body).ok();
                    let Some(id) = event.and_then(|event| event.alloc) else { continue };
                    if is_followed(&self.watched, &id) {
                        read(&self.asker, &self.watched, &id).await;
                    }
                }
                _ = compare.tick() => self.compare().await,
            }
        }
    }

    /// Reads each followed alloc again that the list shows otherwise, or does not show.
    async fn compare(&self) {
        let followed: Vec<AllocId> = {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.retain(|_, sender| sender.receiver_count() > 0);
            watched.keys().cloned().collect()
        };
        if followed.is_empty() {
            return;
        }
        let mut listed = HashMap::new();
        let list = List { owner: Some(self.owner.clone()), ..List::default() };
        let call = Call::within(TraceContext::begin(&mut rand::rng()), REQUEST_TIMEOUT);
        let take = |page: Allocs| {
            listed.extend(
                page.allocs.into_iter().map(|one| (one.id, (one.modify_index, one.claims))),
            );
        };
        let to = &self.asker.namespace;
        let client = &self.asker.client;
        if client.pages::<verb::AllocList>(to, list, &call, PAGES_MAX, take).await.is_err() {
            return;
        }
        for id in followed {
            let known = {
                let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
                match watched.get(&id).map(|sender| sender.borrow().clone()) {
                    Some(Seen::As(alloc)) => Some((alloc.modify_index, alloc.claims.len())),
                    _ => None,
                }
            };
            if known.is_none() || listed.get(&id) != known.as_ref() {
                read(&self.asker, &self.watched, &id).await;
            }
        }
    }
}

fn is_followed(watched: &Watched, id: &AllocId) -> bool {
    let watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
    watched.get(id).is_some_and(|sender| sender.receiver_count() > 0)
}

/// Reads the alloc, and tells those who follow it. What cannot be read now is read again later.
async fn read(asker: &Asker, watched: &Watched, id: &AllocId) {
    let call = Call::within(TraceContext::begin(&mut rand::rng()), REQUEST_TIMEOUT);
    let status = Status::current(id.clone());
    let read = asker.client.once::<verb::AllocStatus>(&asker.namespace, &status, &call).await;
    let seen = match read {
        Ok(alloc) => Seen::As(Box::new(alloc)),
        Err(problem) if problem.code == Code::NoSuchAlloc => Seen::Gone,
        Err(_) => return,
    };
    let watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = watched.get(id) {
        sender.send_replace(seen);
    }
}
