//! The reconcile loop: work through keys, each one at a time, woken by changes and by time.
//!
//! **Owns** which key is worked on when. A key that is woken while it waits is not queued twice;
//! one that is woken while it is worked on is worked on once more; no key is ever worked on twice
//! at once.
//!
//! **Promises** that a lost wake-up costs time and never the work: every key that is not at rest
//! has a time at which it is looked at again.
//!
//! **Never** knows what the work is, and passes it no input but the key: what is to be done is in
//! the record.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_telemetry::metric::{RECONCILE_QUEUED, RECONCILE_RUNNING};
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::shutdown::Shutdown;

/// When a key is to be worked on again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// After this time, or when it is woken before.
    After(Duration),
    /// When it is woken.
    AwaitChange,
}

/// Wakes keys. Cheap to clone; bounded by the number of keys there are.
#[derive(Debug)]
pub struct Waker<K> {
    woken: Arc<Mutex<HashSet<K>>>,
    notify: Arc<Notify>,
}

impl<K> Default for Waker<K> {
    fn default() -> Self {
        Self { woken: Arc::default(), notify: Arc::default() }
    }
}

impl<K> Clone for Waker<K> {
    fn clone(&self) -> Self {
        Self { woken: Arc::clone(&self.woken), notify: Arc::clone(&self.notify) }
    }
}

impl<K: Eq + Hash> Waker<K> {
    /// The key is to be worked on soon.
    pub fn wake(&self, key: K) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.notify.notify_one();
    }

    fn take(&self) -> HashSet<K> {
        std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How a loop works.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Keys worked on at once.
    pub max_in_flight: usize,
    /// How long work under way may go on after the shutdown.
    pub drain: Duration,
}

/// Works until the shutdown; then waits for what is under way, within the bound.
pub async fn run<K, F>(waker: Waker<K>, options: Options, shutdown: Shutdown, work: impl Fn(K) -> F)
where
    K: Clone + Eq + Hash + Ord + Send + 'static,
    F: Future<Output = Next> + Send + 'static,
{
    let mut schedule: Schedule<K> = Schedule { due: BTreeSet::new(), at: HashMap::new() };
    let mut running: JoinSet<Next> = JoinSet::new();
    let mut keys: HashMap<Id, K> = HashMap::new();
    let mut busy: HashMap<K, bool> = HashMap::new();
    loop {
        while running.len() < options.max_in_flight {
            let Some(key) = schedule.take_due(Instant::now()) else { break };
            busy.insert(key.clone(), false);
            keys.insert(running.spawn(work(key.clone())).id(), key);
        }
        RECONCILE_QUEUED.set(schedule.at.len() as u64, []);
        RECONCILE_RUNNING.set(running.len() as u64, []);
        let next = schedule.next().filter(|_| running.len() < options.max_in_flight);
        tokio::select! {
            () = shutdown.requested() => break,
            () = waker.notify.notified() => for key in waker.take() {
                match busy.get_mut(&key) {
                    Some(again) => *again = true,
                    None => schedule.put(key, Instant::now()),
                }
            },
            () = sleep_until(next) => {}
            Some(ended) = running.join_next_with_id() => {
                if let Some((key, after)) = ended_key(ended, &mut keys) {
                    let again = busy.remove(&key).unwrap_or(false);
                    match (again, after) {
                        (true, _) => schedule.put(key, Instant::now()),
                        (false, Next::After(wait)) => schedule.put(key, Instant::now() + wait),
                        (false, Next::AwaitChange) => {}
                    }
                }
            }
        }
    }
    let drained = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(options.drain, drained).await.is_err() {
        tracing::warn!("work was still under way at the end; its records say where it stands");
    }
}

/// A work that panicked is a defect; its key is tried again, not forgotten.
const AFTER_PANIC: Duration = Duration::from_secs(5);

fn ended_key<K>(
    ended: Result<(Id, Next), JoinError>,
    keys: &mut HashMap<Id, K>,
) -> Option<(K, Next)> {
    match ended {
        Ok((id, next)) => keys.remove(&id).map(|key| (key, next)),
        Err(error) => {
            tracing::error!(%error, "work ended by a defect; it is tried again");
            keys.remove(&error.id()).map(|key| (key, Next::After(AFTER_PANIC)))
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Keys by the time they are due; the earliest time of a key wins.
struct Schedule<K> {
    due: BTreeSet<(Instant, K)>,
    at: HashMap<K, Instant>,
}

impl<K: Clone + Eq + Hash + Ord> Schedule<K> {
    fn put(&mut self, key: K, at: Instant) {
        if let Some(known) = self.at.get(&key).copied() {
            if known <= at {
                return;
            }
            self.due.remove(&(known, key.clone()));
        }
        self.at.insert(key.clone(), at);
        self.due.insert((at, key));
    }

    fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    fn take_due(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.at.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn options() -> Options {
        Options { max_in_flight: 4, drain: Duration::from_secs(1) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_worked_on_twice_at_once_and_no_wake_is_lost() {
        let waker = Waker::default();
        let (trigger, shutdown) = Shutdown::new();
        let inside = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(AtomicUsize::new(0));
        let truth = Arc::new(AtomicUsize::new(0));
        let work = {
            let (inside, seen, truth) =
                (Arc::clone(&inside), Arc::clone(&seen), Arc::clone(&truth));
            move |_key: u32| {
                let (inside, seen, truth) =
                    (Arc::clone(&inside), Arc::clone(&seen), Arc::clone(&truth));
                async move {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    let at_start = truth.load(Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(7)).await;
                    seen.store(at_start, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    Next::AwaitChange
                }
            }
        };
        let runner = tokio::spawn(run(waker.clone(), options(), shutdown, work));
        for change in 1..=100 {
            truth.store(change, Ordering::SeqCst);
            waker.wake(1);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(seen.load(Ordering::SeqCst), 100, "the last change was not worked on");
        trigger.request();
        runner.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn time_wakes_a_key_and_a_panic_does_not_lose_it() {
        let waker = Waker::default();
        let (trigger, shutdown) = Shutdown::new();
        let count = Arc::new(AtomicUsize::new(0));
        let work = {
            let count = Arc::clone(&count);
            move |_key: u32| {
                let count = Arc::clone(&count);
                async move {
                    assert!(
                        count.fetch_add(1, Ordering::SeqCst) != 1,
                        "a defect of the test's own"
                    );
                    Next::After(Duration::from_secs(1))
                }
            }
        };
        let runner = tokio::spawn(run(waker.clone(), options(), shutdown, work));
        waker.wake(1);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(count.load(Ordering::SeqCst) >= 10, "{count:?}");
        trigger.request();
        runner.await.unwrap();
    }
}
