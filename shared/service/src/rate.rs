//! A rate with a burst: a token bucket.

use tokio::time::Instant;

/// What may be spent: a burst at once, and then so much each second.
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

    /// Whether nothing was taken for so long that the bucket is full again.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_followed_by_a_rate() {
        let begin = Instant::now();
        let mut bucket = TokenBucket::new(10.0, 2.0, begin);
        assert!(bucket.is_full(begin));
        let mut taken = |at| (0..100).filter(|_| bucket.take(1.0, at)).count();
        assert_eq!(taken(begin), 10);
        assert_eq!(taken(begin + Duration::from_secs(3)), 6);
        assert_eq!(taken(begin + Duration::from_secs(3600)), 10);
        let later = begin + Duration::from_secs(3602);
        assert!(!bucket.is_full(later) && !bucket.take(5.0, later));
        assert!(bucket.is_full(begin + Duration::from_secs(3605)));
    }
}
