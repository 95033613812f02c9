//! When a failed step is tried again.
//!
//! **Owns** the schedule: exponential from [`Schedule::first`] to [`Schedule::max`], with full
//! jitter over the upper half, so that a thousand claims that failed together do not come back
//! together.
//!
//! **Never** gives up: a release is retried for as long as it takes (C1). The counter is on the
//! record.

use std::time::Duration;

use crate::limits;

/// The bounds of a retry schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// The longest first wait.
    pub first: Duration,
    /// The longest wait of all.
    pub max: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { first: limits::RETRY_FIRST, max: limits::RETRY_MAX }
    }
}

impl Schedule {
    /// The wait after the `tries`-th failure (1 for the first), between half of the exponential
    /// step and the whole of it; `jitter` is a random number of the caller's.
    pub fn wait(&self, tries: u32, jitter: u32) -> Duration {
        let half = self.longest(tries) / 2;
        half + half.mul_f64(f64::from(jitter) / f64::from(u32::MAX))
    }

    /// The same without jitter: the exponential step.
    pub fn longest(&self, tries: u32) -> Duration {
        let doublings = tries.saturating_sub(1).min(20);
        self.first.saturating_mul(1 << doublings).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_stay_within_bounds_and_are_jittered() {
        let schedule = Schedule::default();
        for tries in 1..100 {
            let (short, long) = (schedule.wait(tries, 0), schedule.wait(tries, u32::MAX));
            assert!(short < long && long <= schedule.max, "{tries}: {short:?} {long:?}");
        }
        assert_eq!(schedule.wait(1, u32::MAX), schedule.first);
        assert_eq!(schedule.wait(3, u32::MAX), schedule.first * 4);
        assert_eq!(schedule.wait(u32::MAX, 0), schedule.max / 2);
    }
}
