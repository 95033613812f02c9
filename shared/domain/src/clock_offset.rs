//! How far one clock is ahead of another, as one request and its response bound it.
//!
//! The other clock was read at some moment between the request and the response. So the offset lies
//! in an interval as wide as the round trip: a slow exchange widens it, and proves no skew.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The offset lies between these, in milliseconds; negative means behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// At least so far ahead.
    pub min_ms: i64,
    /// At most so far ahead.
    pub max_ms: i64,
}

impl ClockOffset {
    /// From one exchange: our clock when the request was sent, the other clock as the response
    /// gives it, and how long the exchange took.
    pub fn from_exchange(sent: Timestamp, other: Timestamp, round_trip: Duration) -> Self {
        Self { min_ms: sent.ms_ahead_of(other), max_ms: sent.after(round_trip).ms_ahead_of(other) }
    }

    /// The offset in the interval that is nearest to a known one. Without a known one take 0: what
    /// may be no skew is none.
    pub fn nearest(self, known_ms: i64) -> i64 {
        known_ms.max(self.min_ms).min(self.max_ms)
    }

    /// Whether the offset may be this, give or take a tolerance.
    pub fn allows(self, ms: i64, tolerance_ms: u64) -> bool {
        self.nearest(ms).abs_diff(ms) <= tolerance_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Timestamp = Timestamp::from_unix_ms(10_000);

    #[test]
    fn the_true_offset_is_in_the_interval_wherever_the_delay_was() {
        let round_trip = Duration::from_millis(3_500);
        for (there_ms, ahead_ms) in [(0, 0_i64), (3_500, 0), (1_000, 400), (3_500, -60_000)] {
            let read = SENT.unix_ms() + there_ms;
            let other = Timestamp::from_unix_ms(read.checked_add_signed(-ahead_ms).unwrap());
            let offset = ClockOffset::from_exchange(SENT, other, round_trip);
            assert!(offset.allows(ahead_ms, 0), "{there_ms} {ahead_ms}: {offset:?}");
            assert_eq!(offset.max_ms - offset.min_ms, 3_500);
        }
    }

    #[test]
    fn a_skew_within_the_round_trip_is_none() {
        let delayed = Timestamp::from_unix_ms(13_500);
        let offset = ClockOffset::from_exchange(SENT, delayed, Duration::from_millis(3_501));
        assert_eq!(offset, ClockOffset { min_ms: -3_500, max_ms: 1 });
        assert_eq!(offset.nearest(0), 0);
        assert_eq!((offset.nearest(-9_000), offset.nearest(50)), (-3_500, 1));
        assert!(offset.allows(-3_510, 50) && !offset.allows(-3_551, 50));
    }
}
