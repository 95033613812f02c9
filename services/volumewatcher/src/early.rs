//! Tries before their time, because something changed.
//!
//! **Owns** which claims should be tried early, and when each was last tried early.
//!
//! **Promises** one early try of a claim in each configured interval, and at most [`BURST`] at
//! once, however often a plugin flaps. An early try that would come too soon comes later. Claims
//! that waited for the same change are tried at different moments.
//!
//! **Never** makes a call due that may not begin: only the pause after a failure is skipped.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::watch::WorkKey;

/// How long after a change an early try waits: the watcher may see the change before the executor
/// is ready for calls.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// Claims that wait for the same change are spread over this time.
const SPREAD: Duration = Duration::from_millis(300);

/// The most early tries of a claim that follow each other at once, after a time without any. The
/// return of a host is seen three times: by its lease, by its agent's first report, and by its
/// plugin's health. The plugin may answer only after the last of them.
const BURST: u32 = 3;

/// The claims that should be tried early.
#[derive(Debug)]
pub struct EarlyTries {
    every: Duration,
    tries: Mutex<PendingTries>,
}

#[derive(Debug, Default)]
struct PendingTries {
    /// The claims to try, by the time when each may be tried.
    due: BTreeSet<(Instant, WorkKey)>,
    expected: HashSet<WorkKey>,
    /// Claims that should be tried now.
    ready: HashSet<WorkKey>,
    /// The end of the intervals that each claim's early tries have used up, while it is ahead.
    used_until: HashMap<WorkKey, Instant>,
}

impl EarlyTries {
    /// One early try of a claim in this interval, and a few at once.
    pub fn new(every: Duration) -> Self {
        Self { every, tries: Mutex::default() }
    }

    /// Schedules an early try of the claim. `share`, from 0 to 1, is its position within
    /// [`SPREAD`].
    pub fn schedule(&self, claim: WorkKey, now: Instant, share: f64) {
        let mut tries = self.lock();
        if tries.ready.contains(&claim) || !tries.expected.insert(claim.clone()) {
            return;
        }
        let settled = now + SETTLE_TIME + SPREAD.mul_f64(share.clamp(0.0, 1.0));
        let used = tries.used_until.get(&claim);
        let allowed = used.and_then(|until| until.checked_sub(self.every * (BURST - 1)));
        let at = allowed.map_or(settled, |allowed| settled.max(allowed));
        tries.due.insert((at, claim));
    }

    /// When the next claim may be tried.
    pub fn next(&self) -> Option<Instant> {
        self.lock().due.first().map(|(at, _)| *at)
    }

    /// The claims that may be tried now.
    pub fn begin(&self, now: Instant) -> Vec<WorkKey> {
        let mut tries = self.lock();
        let every = self.every;
        tries.used_until.retain(|_, until| *until > now);
        let mut claims = Vec::new();
        while tries.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, claim)) = tries.due.pop_first() else { break };
            tries.expected.remove(&claim);
            let until = tries.used_until.entry(claim.clone()).or_insert(now);
            *until += every;
            tries.ready.insert(claim.clone());
            claims.push(claim);
        }
        claims
    }

    /// Whether the claim should be tried now.
    pub fn is_ready(&self, claim: &WorkKey) -> bool {
        let tries = self.lock();
        !tries.ready.is_empty() && tries.ready.contains(claim)
    }

    /// Ends the early try of a claim. Returns whether there was one.
    pub fn take(&self, claim: &WorkKey) -> bool {
        let mut tries = self.lock();
        !tries.ready.is_empty() && tries.ready.remove(claim)
    }

    fn lock(&self) -> MutexGuard<'_, PendingTries> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::volume::CallOwner;
    use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};

    use super::*;

    const EVERY: Duration = Duration::from_secs(15);

    fn claim() -> WorkKey {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("v").unwrap());
        (volume, CallOwner::Claim(AllocId::new("a").unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_flaps_is_tried_no_oftener_and_the_last_change_is_not_forgotten() {
        let (early, began, mut tried) = (EarlyTries::new(EVERY), Instant::now(), 0);
        // A minute of flapping, four times a second.
        for _ in 0..240 {
            early.schedule(claim(), Instant::now(), 0.5);
            tokio::time::advance(Duration::from_millis(250)).await;
            for claim in early.begin(Instant::now()) {
                tried += 1;
                assert!(early.is_ready(&claim) && early.take(&claim) && !early.is_ready(&claim));
            }
        }
        assert!((6..=7).contains(&tried), "{tried} in {:?}", began.elapsed());
        let last = early.next().expect("the last change is still to come");
        assert!(last <= Instant::now() + EVERY + SETTLE_TIME + SPREAD);
        tokio::time::advance(EVERY + SETTLE_TIME + SPREAD).await;
        assert_eq!(early.begin(Instant::now()), [claim()]);
        assert!(early.take(&claim()));
        assert_eq!(early.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn each_sign_of_a_hosts_return_is_followed_by_a_try() {
        let early = EarlyTries::new(EVERY);
        for sign in ["its lease", "its agent's report", "its plugin's health"] {
            early.schedule(claim(), Instant::now(), 0.5);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(early.begin(Instant::now()), [claim()], "{sign}");
            assert!(early.take(&claim()));
        }
        early.schedule(claim(), Instant::now(), 0.5);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(early.begin(Instant::now()), [], "a fourth waits for its interval");
    }
}
