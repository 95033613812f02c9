//! One watch for all waits of a scheduler.
//!
//! **Owns** one subscription to the events of its own allocs. An event is applied to the last known
//! status of its alloc; if that is not enough, the alloc is read. Events may be lost, so the list
//! of the owner's allocs is compared at intervals, in one request.
//!
//! **Promises** that an alloc that no caller waits for is not read, and that the usual course of an
//! alloc needs no read at all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_bus::Call;
use berth_bus::event::LiveEvents;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::message::alloc::{AllocQuery, AllocStatus, Allocs, ListAllocs};
use berth_contract::problem::Problem;
use berth_contract::subject::{EventsOf, wanted_filter};
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::alloc::AllocState;
use berth_domain::limits::REQUEST_TIMEOUT;
use berth_domain::{AllocId, OwnerId, Timestamp, VolumeId};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::asker::{Asker, PAGES_MAX};

/// Interval at which the list of allocs is compared.
const COMPARE_INTERVAL: Duration = Duration::from_secs(5);

/// The last known status of an alloc.
#[derive(Debug, Clone, Default)]
pub(super) enum SeenAlloc {
    /// Not read yet.
    #[default]
    NotYet,
    /// The last status.
    As(Box<AllocStatus>),
    /// Its record was removed.
    Gone,
}

/// An alloc that a caller waits for, or may wait for.
#[derive(Debug, Default)]
struct Followed {
    seen: watch::Sender<SeenAlloc>,
    /// Freed volumes with the time of their events, which may come before the alloc's status is
    /// known.
    freed: Vec<(VolumeId, Timestamp)>,
}

impl Followed {
    fn has_followers(&self) -> bool {
        self.seen.receiver_count() > 0
    }

    /// Stores a status that was read, without the claims that were freed since the alloc's end.
    fn put(&self, mut alloc: AllocStatus) {
        if alloc.state.is_terminal() {
            let since = alloc.since;
            let is_freed =
                |volume: &VolumeId| self.freed.iter().any(|(id, at)| id == volume && *at >= since);
            alloc.claims.retain(|claim| !is_freed(&claim.volume));
        }
        self.seen.send_replace(SeenAlloc::As(Box::new(alloc)));
    }

    /// Applies an event. Returns whether the alloc must be read for its waiting callers.
    fn apply(&mut self, event: Event) -> bool {
        let is_known = self.try_apply(event);
        if !is_known && !self.has_followers() {
            // It is read when a caller waits for it again.
            self.seen.send_replace(SeenAlloc::NotYet);
        }
        !is_known && self.has_followers()
    }

    /// Applies an event. False if it does not contain everything that matters: then the status has
    /// to be read. True before the first read, which the first follower makes.
    fn try_apply(&mut self, event: Event) -> bool {
        if event.event == EventName::ClaimFreed
            && let Some(volume) = event.volume.clone()
        {
            self.freed.push((volume, event.at));
        }
        let now = self.seen.borrow().clone();
        let SeenAlloc::As(mut alloc) = now else { return true };
        match event.event {
            EventName::AllocComplete => alloc.state = AllocState::Complete,
            EventName::AllocFailed => alloc.state = AllocState::Failed,
            EventName::AllocStopped => alloc.state = AllocState::Stopped,
            EventName::ClaimFreed if alloc.state.is_terminal() => {}
            // A call of a release in progress, which no caller waits for.
            EventName::ClaimUnpublishing
            | EventName::ClaimNodeDetached
            | EventName::VolumeUnmounted
            | EventName::CallDone
                if alloc.state.is_terminal() =>
            {
                return true;
            }
            _ => return false,
        }
        if event.event != EventName::ClaimFreed {
            (alloc.since, alloc.note) = (event.at, event.detail);
        }
        self.put(*alloc);
        true
    }
}

type Watched = Arc<Mutex<HashMap<AllocId, Followed>>>;

fn lock(watched: &Watched) -> MutexGuard<'_, HashMap<AllocId, Followed>> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watch, and its task.
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
    pub(super) async fn follow(&self, id: &AllocId) -> watch::Receiver<SeenAlloc> {
        let mut receiver = lock(&self.watched).entry(id.clone()).or_default().seen.subscribe();
        if matches!(*receiver.borrow_and_update(), SeenAlloc::NotYet) {
            read(&self.asker, &self.watched, id).await;
        }
        // The follower sees the present status as its first change.
        receiver.mark_changed();
        receiver
    }

    /// Keeps events of an alloc from now on, for a request whose answer will contain its status.
    pub(super) fn expect(&self, id: &AllocId) -> watch::Receiver<SeenAlloc> {
        lock(&self.watched).entry(id.clone()).or_default().seen.subscribe()
    }

    /// Stores the status that a service has just returned.
    pub(super) fn put(&self, alloc: AllocStatus) {
        if let Some(followed) = lock(&self.watched).get(&alloc.id) {
            followed.put(alloc);
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
        let mut compare = interval(COMPARE_INTERVAL);
        compare.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = events.next() => {
                    let Some(body) = event else { return };
                    let Ok(event) = serde_json::from_slice::<Event>(&body) else { continue };
                    let Some(id) = event.alloc.clone() else { continue };
                    let is_to_be_read = lock(&self.watched)
                        .get_mut(&id)
                        .is_some_and(|followed| followed.apply(event));
                    if is_to_be_read {
                        read(&self.asker, &self.watched, &id).await;
                    }
                }
                _ = compare.tick() => self.compare().await,
            }
        }
    }

    /// Reads each followed alloc that the list shows differently, or does not show.
    async fn compare(&self) {
        let followed: Vec<AllocId> = {
            let mut watched = lock(&self.watched);
            watched.retain(|_, followed| followed.has_followers());
            watched.keys().cloned().collect()
        };
        if followed.is_empty() {
            return;
        }
        let mut listed = HashMap::new();
        let list = ListAllocs { owner: Some(self.owner.clone()), ..ListAllocs::default() };
        let call = Call::within(TraceContext::begin(&mut rand::rng()), REQUEST_TIMEOUT);
        let take = |page: Allocs| {
            listed.extend(page.allocs.into_iter().map(|stub| (stub.id, (stub.state, stub.claims))));
        };
        let to = &self.asker.namespace;
        let client = &self.asker.client;
        if client.pages::<verb::AllocList>(to, list, &call, PAGES_MAX, take).await.is_err() {
            return;
        }
        for id in followed {
            let last_seen =
                lock(&self.watched).get(&id).map(|followed| followed.seen.borrow().clone());
            let last_seen = match last_seen {
                Some(SeenAlloc::As(alloc)) => Some((alloc.state, alloc.claims.len())),
                _ => None,
            };
            if last_seen.is_none() || listed.get(&id) != last_seen.as_ref() {
                read(&self.asker, &self.watched, &id).await;
            }
        }
    }
}

/// Reads the alloc, and notifies its waiting callers. A read that fails now is repeated later.
async fn read(asker: &Asker, watched: &Watched, id: &AllocId) {
    let call = Call::within(TraceContext::begin(&mut rand::rng()), REQUEST_TIMEOUT);
    let status = AllocQuery::current(id.clone());
    let read = asker.client.once::<verb::AllocStatus>(&asker.namespace, &status, &call).await;
    let watched = lock(watched);
    let Some(followed) = watched.get(id) else { return };
    match read {
        Ok(alloc) => followed.put(alloc),
        Err(problem) if problem.code == Code::NoSuchAlloc => {
            followed.seen.send_replace(SeenAlloc::Gone);
        }
        Err(_) => {}
    }
}
