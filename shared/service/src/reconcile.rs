//! The reconcile loop: works on keys, each one alone, when a change or a time wakes it.
//!
//! **Owns** which key is worked on when:
//! - A key that is woken while it is queued is not queued twice.
//! - A key that is woken while it is worked on is worked on once more.
//! - A key is never worked on twice at once.
//! - Keys that need the same resource share a lane. A key begins when its lane has room, in order
//!   of arrival.
//!
//! **Promises** that a lost wake-up only delays the work: every key that is not at rest has a time
//! at which it is checked again. A full lane delays no other lane, and a key that waits for its
//! lane holds nothing.
//!
//! **Never** knows what the work is. The work's only input is the key: the record says what is to
//! be done.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_telemetry::metric::{RECONCILE_HELD_BACK, RECONCILE_QUEUED, RECONCILE_RUNNING};
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::shutdown::Shutdown;
use crate::slots::{Slot, Slots};

/// When a key is to be worked on again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// After this time, or earlier if the key is woken.
    After(Duration),
    /// When the key is woken.
    AwaitChange,
}

/// Wakes keys. Cheap to clone; holds each key at most once.
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
    /// Wakes the key, so that it is worked on soon.
    pub fn wake(&self, key: K) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.notify.notify_one();
    }

    /// Waits until keys are woken, and returns all of them. For one listener only.
    pub async fn woken(&self) -> HashSet<K> {
        self.notify.notified().await;
        self.take()
    }

    /// The keys that were woken so far.
    pub fn take(&self) -> HashSet<K> {
        std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The bounds of a loop.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Keys worked on at once.
    pub max_in_flight: usize,
    /// How long work in progress may continue after the shutdown.
    pub drain: Duration,
}

/// Works until the shutdown. Then waits for the work in progress, at most for [`Options::drain`].
pub async fn run<K, F>(waker: Waker<K>, options: Options, shutdown: Shutdown, work: impl Fn(K) -> F)
where
    K: Clone + Eq + Hash + Ord + Send + 'static,
    F: Future<Output = Next> + Send + 'static,
{
    let one_lane = Lanes { slots: Slots::new(options.max_in_flight), place: |_: &K| Ok(()) };
    let work = |key, slot: Slot<()>| {
        let work = work(key);
        async move {
            let next_work = work.await;
            drop(slot);
            next_work
        }
    };
    run_in_lanes(waker, one_lane, options.drain, shutdown, work).await;
}

/// The slots, and the lane of each key.
#[derive(Debug)]
pub struct Lanes<L, P> {
    /// The slots of each lane.
    pub slots: Slots<L>,
    /// The lane of a key that is due, or the delay until a key that is not due is checked again.
    /// Called whenever the key is woken. It must be quick, because the loop waits.
    pub place: P,
}

/// As [`run`], with bounded room in each lane. The work gives its slot back as soon as it no longer
/// needs it.
pub async fn run_in_lanes<K, L, F>(
    waker: Waker<K>,
    lanes: Lanes<L, impl Fn(&K) -> Result<L, Next>>,
    drain: Duration,
    shutdown: Shutdown,
    work: impl Fn(K, Slot<L>) -> F,
) where
    K: Clone + Eq + Hash + Ord + Send + 'static,
    L: Clone + Eq + Hash + Ord,
    F: Future<Output = Next> + Send + 'static,
{
    let Lanes { slots, place } = lanes;
    let mut schedule: Schedule<K> = Schedule { due: BTreeSet::new(), at: HashMap::new() };
    let mut queues = Queues { slots: slots.clone(), waiting: BTreeMap::new() };
    let mut running: JoinSet<Next> = JoinSet::new();
    let mut keys: HashMap<Id, K> = HashMap::new();
    let mut busy: HashMap<K, KeyStage> = HashMap::new();
    loop {
        while let Some(key) = schedule.take_due(Instant::now()) {
            match place(&key) {
                Ok(lane) => {
                    busy.insert(key.clone(), KeyStage::HeldBack);
                    queues.put(lane, key);
                }
                Err(next) => schedule.again(key, next),
            }
        }
        queues.begin(|key, slot| {
            busy.insert(key.clone(), KeyStage::Running { again: false });
            keys.insert(running.spawn(work(key.clone(), slot)).id(), key);
        });
        let held_back = busy.len().saturating_sub(running.len());
        RECONCILE_QUEUED.set((schedule.at.len() + held_back) as u64, []);
        RECONCILE_HELD_BACK.set(held_back as u64, []);
        RECONCILE_RUNNING.set(running.len() as u64, []);
        tokio::select! {
            () = shutdown.requested() => break,
            woken = waker.woken() => for key in woken {
                match busy.get_mut(&key) {
                    // The work reads the record when it begins.
                    Some(KeyStage::HeldBack) => {}
                    Some(KeyStage::Running { again }) => *again = true,
                    None => schedule.put(key, Instant::now()),
                }
            },
            () = sleep_until(schedule.next()) => {}
            () = slots.freed() => {}
            Some(ended) = running.join_next_with_id() => {
                if let Some((key, after)) = ended_key(ended, &mut keys) {
                    match busy.remove(&key) {
                        Some(KeyStage::Running { again: true }) => {
                            schedule.put(key, Instant::now());
                        }
                        _ => schedule.again(key, after),
                    }
                }
            }
        }
    }
    let drained = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(drain, drained).await.is_err() {
        tracing::warn!(
            "work was still in progress at the shutdown; its records say how far it came"
        );
    }
}

/// The stage of a key that does not wait for its time.
enum KeyStage {
    /// The key is due, and its lane is full.
    HeldBack,
    /// The key is worked on. `again` says that it was woken meanwhile.
    Running { again: bool },
}

/// Keys that are due, lane by lane.
struct Queues<K, L> {
    slots: Slots<L>,
    waiting: BTreeMap<L, VecDeque<K>>,
}

impl<K, L: Clone + Eq + Hash + Ord> Queues<K, L> {
    fn put(&mut self, lane: L, key: K) {
        self.slots.wait(&lane);
        self.waiting.entry(lane).or_default().push_back(key);
    }

    /// Begins every key whose lane has room.
    fn begin(&mut self, mut begin: impl FnMut(K, Slot<L>)) {
        self.waiting.retain(|lane, queue| {
            while !queue.is_empty() {
                let Some(slot) = self.slots.take_waiting(lane) else { break };
                if let Some(key) = queue.pop_front() {
                    begin(key, slot);
                }
            }
            !queue.is_empty()
        });
    }
}

/// Delay after a panic, which is a defect. The key is retried, not forgotten.
const PANIC_PAUSE: Duration = Duration::from_secs(5);

fn ended_key<K>(
    ended: Result<(Id, Next), JoinError>,
    keys: &mut HashMap<Id, K>,
) -> Option<(K, Next)> {
    match ended {
        Ok((id, next)) => keys.remove(&id).map(|key| (key, next)),
        Err(error) => {
            tracing::error!(%error, "the work panicked, which is a defect; it is retried");
            keys.remove(&error.id()).map(|key| (key, Next::After(PANIC_PAUSE)))
        }
    }
}

/// Sleeps until the time; for ever without a time.
pub async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Keys by the time at which they are due. The earliest time of a key counts.
struct Schedule<K> {
    due: BTreeSet<(Instant, K)>,
    at: HashMap<K, Instant>,
}

impl<K: Clone + Eq + Hash + Ord> Schedule<K> {
    fn again(&mut self, key: K, next: Next) {
        if let Next::After(wait) = next {
            self.put(key, Instant::now() + wait);
        }
    }

    fn put(&mut self, key: K, at: Instant) {
        if let Some(earlier) = self.at.get(&key).copied() {
            if earlier <= at {
                return;
            }
            self.due.remove(&(earlier, key.clone()));
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
        let last_truth_seen = Arc::new(AtomicUsize::new(0));
        let truth = Arc::new(AtomicUsize::new(0));
        let work = {
            let (inside, last_truth_seen, truth) =
                (Arc::clone(&inside), Arc::clone(&last_truth_seen), Arc::clone(&truth));
            move |_key: u32| {
                let (inside, last_truth_seen, truth) =
                    (Arc::clone(&inside), Arc::clone(&last_truth_seen), Arc::clone(&truth));
                async move {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    let at_start = truth.load(Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(7)).await;
                    last_truth_seen.store(at_start, Ordering::SeqCst);
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
        assert_eq!(
            last_truth_seen.load(Ordering::SeqCst),
            100,
            "the last change was not worked on"
        );
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

    #[tokio::test(start_paused = true)]
    async fn a_full_lane_delays_no_other() {
        let waker = Waker::default();
        let (trigger, shutdown) = Shutdown::new();
        let done = Arc::new(Mutex::new(Vec::new()));
        let work = {
            let done = Arc::clone(&done);
            move |key: u32, slot: Slot<&'static str>| {
                let done = Arc::clone(&done);
                async move {
                    if *slot.lane() == "hung" {
                        return std::future::pending().await;
                    }
                    done.lock().unwrap().push(key);
                    Next::AwaitChange
                }
            }
        };
        let slots = Slots::new(4);
        let place = |key: &u32| match key {
            0 => Err(Next::AwaitChange),
            1..=1_000 => Ok("hung"),
            _ => Ok("well"),
        };
        let lanes = Lanes { slots, place };
        let drain = Duration::from_secs(1);
        let runner = tokio::spawn(run_in_lanes(waker.clone(), lanes, drain, shutdown, work));
        for key in 0..1_010 {
            waker.wake(key);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut finished = done.lock().unwrap().clone();
        finished.sort_unstable();
        assert_eq!(finished, (1_001..1_010).collect::<Vec<_>>());
        trigger.request();
        runner.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_given_back_early_lets_the_next_begin() {
        let waker = Waker::default();
        let (trigger, shutdown) = Shutdown::new();
        let begun = Arc::new(AtomicUsize::new(0));
        let work = {
            let begun = Arc::clone(&begun);
            move |_key: u32, slot: Slot<()>| {
                let begun = Arc::clone(&begun);
                async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    drop(slot);
                    std::future::pending().await
                }
            }
        };
        let lanes = Lanes { slots: Slots::new(1), place: |_: &u32| Ok(()) };
        let drain = Duration::ZERO;
        let runner = tokio::spawn(run_in_lanes(waker.clone(), lanes, drain, shutdown, work));
        (0..10).for_each(|key| waker.wake(key));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(begun.load(Ordering::SeqCst), 10);
        trigger.request();
        runner.await.unwrap();
    }
}
