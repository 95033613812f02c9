//! A rate with a burst (a token bucket), and such a rate for each of many senders.

use std::collections::HashMap;
use std::hash::Hash;

use tokio::time::Instant;

/// Most senders whose rate is remembered. Senders with a full bucket are forgotten first.
const SENDERS_MAX: usize = 10_000;

/// The tokens that may be spent: a burst at once, and then a number per second.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    burst: f64,
    per_second: f64,
    tokens: f64,
    filled_at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(burst: f64, per_second: f64, now: Instant) -> Self {
        Self { burst, per_second, tokens: burst, filled_at: now }
    }

    /// Takes this many tokens, if they are there.
    pub fn take(&mut self, tokens: f64, now: Instant) -> bool {
        self.fill(now);
        let is_there = self.tokens >= tokens;
        if is_there {
            self.tokens -= tokens;
        }
        is_there
    }

    /// Whether the bucket is full again.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.tokens >= self.burst
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        self.filled_at = now;
    }
}

/// The same rate for each sender; no sender spends the tokens of another.
#[derive(Debug)]
pub struct SenderRates<K> {
    burst: f64,
    per_second: f64,
    buckets: HashMap<K, TokenBucket>,
}

impl<K: Eq + Hash + Clone> SenderRates<K> {
    /// The rate of each sender.
    pub fn new(burst: f64, per_second: f64) -> Self {
        Self { burst, per_second, buckets: HashMap::new() }
    }

    /// Takes this many of the sender's tokens, if they are there.
    pub fn take(&mut self, sender: &K, tokens: f64, now: Instant) -> bool {
        if self.buckets.len() >= SENDERS_MAX && !self.buckets.contains_key(sender) {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        let full = || TokenBucket::new(self.burst, self.per_second, now);
        self.buckets.entry(sender.clone()).or_insert_with(full).take(tokens, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_followed_by_a_rate() {
        let begin = Instant::now();
        let mut bucket = TokenBucket::new(10.0, 2.0, begin);
        assert!(bucket.is_full(begin));
        let mut take_at = |at| (0..100).filter(|_| bucket.take(1.0, at)).count();
        assert_eq!(take_at(begin), 10);
        assert_eq!(take_at(begin + Duration::from_secs(3)), 6);
        assert_eq!(take_at(begin + Duration::from_secs(3600)), 10);
        let later = begin + Duration::from_secs(3602);
        assert!(!bucket.is_full(later) && !bucket.take(5.0, later));
        assert!(bucket.is_full(begin + Duration::from_secs(3605)));
    }

    #[test]
    fn no_sender_spends_what_is_anothers_and_those_that_are_quiet_are_forgotten() {
        let begin = Instant::now();
        let mut rates = SenderRates::new(2.0, 1.0);
        let granted = (0..9).filter(|_| rates.take(&0, 1.0, begin)).count();
        assert_eq!((granted, rates.take(&1, 2.0, begin)), (2, true));
        let later = begin + Duration::from_secs(60);
        for sender in 0..2 * SENDERS_MAX {
            rates.take(&sender, 1.0, later + Duration::from_millis(sender as u64));
        }
        assert!(rates.buckets.len() <= SENDERS_MAX);
    }
}
