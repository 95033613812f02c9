//! How long this process has known of something.
//!
//! **Owns** when each key was first seen, by the monotonic clock of this process.
//!
//! **Promises** an age that depends on no wall clock. A record's times are by the clock of the
//! process that wrote it, which may be a day off.
//!
//! **Never** keeps ages over a restart: a restarted process counts again, so an age may be too
//! short, but never too long.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of keys from which on keys that have reached the age are forgotten.
const KEYS_MAX: usize = 4096;

/// When keys were first seen.
#[derive(Debug)]
pub struct FirstSeen<K> {
    reached_after: Duration,
    seen: Mutex<HashMap<K, Instant>>,
}

impl<K: Eq + Hash> FirstSeen<K> {
    /// Checks whether keys have reached this age.
    pub fn new(reached_after: Duration) -> Self {
        Self { reached_after, seen: Mutex::default() }
    }

    /// Whether the key has been known for longer than the age. The first call for a key begins the
    /// count.
    pub fn has_reached_age(&self, key: K) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= KEYS_MAX {
            seen.retain(|_, since| since.elapsed() <= self.reached_after);
        }
        let since = *seen.entry(key).or_insert_with(Instant::now);
        since.elapsed() > self.reached_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reaches_the_age_from_the_first_question_on() {
        let in_an_hour = FirstSeen::new(Duration::from_secs(3_600));
        assert!(!in_an_hour.has_reached_age("a") && !in_an_hour.has_reached_age("a"));
        let at_once = FirstSeen::new(Duration::ZERO);
        at_once.has_reached_age("a");
        std::thread::sleep(Duration::from_millis(1));
        assert!(at_once.has_reached_age("a"));
    }

    #[test]
    fn what_has_reached_the_age_is_forgotten_when_there_are_many() {
        let seen = FirstSeen::new(Duration::ZERO);
        for key in 0..3 * KEYS_MAX {
            seen.has_reached_age(key);
        }
        assert!(seen.seen.lock().unwrap().len() <= KEYS_MAX);
    }
}
