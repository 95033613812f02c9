//! Bounds for times on records that were written by a clock that was ahead.
//!
//! **Promises** that no such time delays work for longer than a right clock would have. Times are
//! bounded when their record is read, and again when this host's clock was set back, because they
//! were bounded by that clock.

use std::time::Duration;

use berth_domain::volume::{Claim, Policy, Progress};
use berth_domain::{Timestamp, limits};

/// How far ahead of the reader's clock the times of a record may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeBounds {
    call_timeout: Duration,
    retry_max: Duration,
    place_kept: Duration,
}

impl Default for TimeBounds {
    fn default() -> Self {
        Self::of_policy(&Policy::default())
    }
}

impl TimeBounds {
    pub(super) fn of_policy(policy: &Policy) -> Self {
        let Policy { call_timeout, place_kept, retry, .. } = *policy;
        Self { call_timeout, retry_max: retry.max, place_kept }
    }

    pub(super) fn bound_claim(self, claim: &mut Claim, now: Timestamp) {
        self.bound_progress(&mut claim.progress, now);
        bound(&mut claim.place_until, now, self.place_kept);
    }

    /// The times of the calls of a claim, an operation or a snapshot.
    pub(super) fn bound_progress(self, calls: &mut Progress, now: Timestamp) {
        if let Some(attempt) = &mut calls.attempt {
            attempt.bound_deadline(now, self.call_timeout);
        }
        bound(&mut calls.next_try, now, self.retry_max);
    }
}

fn bound(time: &mut Option<Timestamp>, now: Timestamp, longest: Duration) {
    *time = time.map(|time| time.min(now.after(longest + limits::CLOCK_MARGIN)));
}
