//! The places of an endpoint's requests.
//!
//! **Owns** how many requests are handled at once: those that work, those that only wait for a
//! change, and all those of one sender.
//!
//! **Promises** that requests which wait take no place from those that work, and that one sender
//! never has more than its share of either, whatever it sends. Work that was begun is finished: a
//! request that has waited gets a place before any new request.

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// The places of one endpoint: as many to wait as to work.
#[derive(Debug)]
pub(crate) struct RequestPlaces {
    most: u32,
    /// Most requests of one sender, at work and waiting; none: bounded by the places alone.
    per_sender: Option<u32>,
    work: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    senders: Mutex<HashMap<String, u32>>,
}

/// The place of one request. It is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct RequestPlace {
    places: Arc<RequestPlaces>,
    /// The sender in whose share it counts; none for Berth's own services, which have no share.
    sender: Option<String>,
    held: Mutex<OwnedSemaphorePermit>,
}

/// The sender with the most requests in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BusiestSender {
    pub(crate) sender: String,
    pub(crate) requests: u32,
}

impl RequestPlaces {
    pub(crate) fn new(most: u32, per_sender: Option<u32>) -> Arc<Self> {
        let semaphore = || Arc::new(Semaphore::new(most as usize));
        let (work, waiting) = (semaphore(), semaphore());
        Arc::new(Self { most, per_sender, work, waiting, senders: Mutex::default() })
    }

    /// A place to work, or why there is none.
    pub(crate) fn enter(self: &Arc<Self>, actor: Option<&Actor>) -> Result<RequestPlace, Problem> {
        let is_ours = self.per_sender.is_none() || matches!(actor, Some(Actor::Service(_)));
        // All senders without a name share one share.
        let sender = (!is_ours).then(|| actor.map(Actor::tokens).unwrap_or_default());
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let own = sender.as_ref().and_then(|sender| senders.get(sender)).copied().unwrap_or(0);
        if self.per_sender.is_some_and(|max| own >= max) {
            let sender_name = sender.filter(|sender| !sender.is_empty());
            let sender_name = sender_name.unwrap_or_else(|| "its sender".to_owned());
            let message =
                format!("{sender_name} has {own} requests here, as many as one sender may have");
            return Err(full(message).next("ask again when some of them are answered"));
        }
        let Ok(permit) = Arc::clone(&self.work).try_acquire_owned() else {
            let message = format!("{} requests are under way, as many as are taken", self.most);
            return Err(full(message));
        };
        if let Some(sender) = &sender {
            *senders.entry(sender.clone()).or_default() += 1;
        }
        drop(senders);
        Ok(RequestPlace { places: Arc::clone(self), sender, held: Mutex::new(permit) })
    }

    pub(crate) fn working(&self) -> usize {
        (self.most as usize).saturating_sub(self.work.available_permits())
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        (self.most as usize).saturating_sub(self.waiting.available_permits())
    }

    pub(crate) fn busiest(&self) -> Option<BusiestSender> {
        let senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, requests) = senders.iter().max_by_key(|(_, requests)| **requests)?;
        Some(BusiestSender { sender: sender.clone(), requests: *requests })
    }

    /// Waits until every request is answered; false if some are not by the deadline.
    pub(crate) async fn drain(&self, deadline: Instant) -> bool {
        // Waiting requests come first, because they need a place to work before they end.
        let waiting = timeout_at(deadline, self.waiting.acquire_many(self.most));
        let Ok(Ok(_waiting)) = waiting.await else { return false };
        matches!(timeout_at(deadline, self.work.acquire_many(self.most)).await, Ok(Ok(_)))
    }
}

impl RequestPlace {
    /// Waits with a place of those that wait, and lets another request work meanwhile. Fails if as
    /// many wait as may, or if there is no place to work again before the deadline.
    pub(crate) async fn wait_aside<F: Future>(
        &self,
        wait: F,
        deadline: Instant,
    ) -> Result<F::Output, Problem> {
        let RequestPlaces { most, work, waiting, .. } = &*self.places;
        let Ok(permit) = Arc::clone(waiting).try_acquire_owned() else {
            return Err(full(format!("{most} requests wait here, as many as may")));
        };
        drop(self.hold(permit));
        let output = wait.await;
        match timeout_at(deadline, Arc::clone(work).acquire_owned()).await {
            Ok(Ok(permit)) => drop(self.hold(permit)),
            _ => return Err(full(format!("{most} requests are under way, as many as are taken"))),
        }
        Ok(output)
    }

    fn hold(&self, permit: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
        mem::replace(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner), permit)
    }
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        let Some(sender) = &self.sender else { return };
        let mut senders = self.places.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = senders.get_mut(sender) {
            *requests -= 1;
            if *requests == 0 {
                senders.remove(sender);
            }
        }
    }
}

fn full(message: String) -> Problem {
    Problem::new(Code::Overloaded, message).retryable()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_contract::service::CLAIM;
    use tokio::sync::oneshot;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_sender_cannot_take_more_than_its_share_of_the_places() {
        let places = RequestPlaces::new(8, Some(2));
        let (bob, ann) = (Actor::user("bob"), Actor::user("ann"));
        let held = [places.enter(Some(&bob)).unwrap(), places.enter(Some(&bob)).unwrap()];
        let refused = places.enter(Some(&bob)).unwrap_err();
        assert_eq!((refused.code, refused.retryable), (Code::Overloaded, true));
        assert!(refused.message.contains("user.bob has 2 requests"), "{refused}");
        drop(places.enter(Some(&ann)).unwrap());
        assert_eq!(places.busiest().unwrap(), BusiestSender { sender: bob.tokens(), requests: 2 });
        // All senders without a name have one share together.
        let unnamed = [places.enter(None).unwrap(), places.enter(None).unwrap()];
        assert!(places.enter(None).is_err());
        // Berth's own services are bounded by the places alone.
        let claim = Actor::service(CLAIM);
        let own: Vec<_> = (0..4).map(|_| places.enter(Some(&claim)).unwrap()).collect();
        assert!(places.enter(Some(&claim)).is_err() && places.enter(Some(&ann)).is_err());
        drop((held, unnamed, own));
        assert_eq!((places.working(), places.busiest()), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_take_no_place_from_those_that_work() {
        let places = RequestPlaces::new(2, Some(2));
        let (bob, ann) = (Actor::user("bob"), Actor::user("ann"));
        let (end, ended) = oneshot::channel::<()>();
        let waits = places.enter(Some(&bob)).unwrap();
        let waiting = tokio::spawn(async move { waits.wait_aside(ended, soon()).await.is_ok() });
        let other = places.enter(Some(&bob)).unwrap();
        let forever = tokio::spawn(async move {
            other.wait_aside(std::future::pending::<()>(), soon()).await.is_ok()
        });
        tokio::task::yield_now().await;
        assert_eq!((places.working(), places.waiting()), (0, 2));
        assert!(places.enter(Some(&bob)).is_err(), "a share counts those that wait, too");
        let working = [places.enter(Some(&ann)).unwrap(), places.enter(Some(&ann)).unwrap()];
        let refused = working[0].wait_aside(async {}, soon()).await.unwrap_err();
        assert!(refused.message.contains("2 requests wait here"), "{refused}");
        // The waiting request continues before a new one, once there is a place.
        end.send(()).unwrap();
        tokio::task::yield_now().await;
        drop(working);
        assert!(waiting.await.unwrap());
        forever.abort();
        let _: Result<bool, _> = forever.await;
        assert!(places.drain(soon()).await && places.busiest().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_finds_no_place_to_work_again_says_so_at_its_deadline() {
        let places = RequestPlaces::new(1, None);
        let waits = places.enter(None).unwrap();
        let mut worker = None;
        let refused =
            waits.wait_aside(async { worker = places.enter(None).ok() }, soon()).await.unwrap_err();
        assert_eq!((refused.code, worker.is_some()), (Code::Overloaded, true));
        assert!(!places.drain(soon()).await);
    }
}
