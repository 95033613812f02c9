//! Notices that this host's clock was set back, and notifies the projection.
//!
//! A process that starts with a wrong clock reads and writes times by it. When the clock is mended,
//! those times are in the future, and only this process would believe them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::{Timestamp, limits};
use tokio::time::sleep;

use super::fold::Fold;
use super::state::MirrorShared;
use crate::clock::now;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Compares the clocks for as long as the mirror lives.
pub(super) async fn watch<F: Fold>(shared: Arc<MirrorShared<F>>) {
    let began = Instant::now();
    let mut clocks = ClockPair::default();
    loop {
        if clocks.was_set_back(now(), began.elapsed()) {
            let bucket = shared.bucket.name();
            tracing::warn!(bucket, "this host's clock was set back; times are bounded by it anew");
            shared.table_mut().fold_mut().clock_set_back();
            shared.count_change(true);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Compares the time of day with the time since the start, which is never set.
#[derive(Debug, Default)]
struct ClockPair {
    /// The largest lead of the time of day since the clock was last set back, in milliseconds.
    ahead_ms: Option<u64>,
}

impl ClockPair {
    /// Whether the time of day has fallen behind by more than clocks may differ, at once or slowly,
    /// since this function last returned true.
    fn was_set_back(&mut self, day: Timestamp, since_start: Duration) -> bool {
        let ahead_ms = day.before(since_start).unix_ms();
        let largest_lead = *self.ahead_ms.get_or_insert(ahead_ms);
        let fell = Duration::from_millis(largest_lead.saturating_sub(ahead_ms));
        let is_set_back = fell > limits::CLOCK_MARGIN;
        self.ahead_ms = Some(if is_set_back { ahead_ms } else { largest_lead.max(ahead_ms) });
        is_set_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_falls_behind_is_noticed_once_and_one_that_jumps_ahead_is_not() {
        let mut clocks = ClockPair::default();
        let mut was_set_back = |day: u64, since_start: u64| {
            let day = Timestamp::from_unix_ms(1_000_000_000 + day * 1000);
            clocks.was_set_back(day, Duration::from_secs(since_start))
        };
        assert!(!was_set_back(0, 0) && !was_set_back(1, 1));
        assert!(!was_set_back(3_602, 2), "an hour ahead");
        assert!(was_set_back(3, 3), "set right");
        assert!(!was_set_back(4, 4) && !was_set_back(3, 5), "within the margin");
        assert!(!was_set_back(4, 6) && was_set_back(4, 7), "slowly");
        assert!(!was_set_back(5, 8));
    }
}
