//! Points in time, passed in and never read here.
//!
//! **Owns** how a time is stored: milliseconds since the Unix epoch, written as RFC 3339 in UTC, so
//! that a person who looks at a record can read it.
//!
//! **Never** asks the clock: see `service::clock`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Milliseconds since the Unix epoch, UTC.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(u64);

/// Why a string is no time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("is no RFC 3339 time such as 2026-01-31T12:00:00.000Z")]
pub struct TimestampFault;

impl Timestamp {
    /// A time from milliseconds since the Unix epoch.
    pub const fn from_unix_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn unix_ms(self) -> u64 {
        self.0
    }

    /// This time plus a duration; stays at the end of time rather than wrap.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }

    /// So much earlier, not before the first moment there is.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How far this is ahead of another time, in milliseconds; negative when it is behind.
    pub fn ms_ahead_of(self, other: Self) -> i64 {
        let ms = i64::try_from(self.0.abs_diff(other.0)).unwrap_or(i64::MAX);
        if self < other { -ms } else { ms }
    }

    /// How long from `earlier` to this; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // jiff ends a day before the year 10000; nothing of ours lives that long.
        let ms = i64::try_from(self.0).unwrap_or(i64::MAX);
        let at = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{at:.3}")
    }
}

impl From<Timestamp> for String {
    fn from(at: Timestamp) -> String {
        at.to_string()
    }
}

impl TryFrom<String> for Timestamp {
    type Error = TimestampFault;
    fn try_from(text: String) -> Result<Self, TimestampFault> {
        let at: jiff::Timestamp = text.parse().map_err(|_| TimestampFault)?;
        Ok(Self(u64::try_from(at.as_millisecond()).map_err(|_| TimestampFault)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_like_times_and_round_trip() {
        let at = Timestamp::from_unix_ms(1_795_300_000_123);
        let text = serde_json::to_string(&at).unwrap();
        assert_eq!(text, "\"2026-11-21T22:26:40.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), at);
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }

    #[test]
    fn the_end_of_time_does_not_wrap() {
        let end = Timestamp::from_unix_ms(u64::MAX);
        assert_eq!(end.after(Duration::from_secs(1)), end);
        assert_eq!(serde_json::to_string(&end).unwrap(), "\"9999-12-30T22:00:00.999Z\"");
        assert_eq!(end.to_string(), "9999-12-30T22:00:00.999Z");
        assert_eq!(Timestamp::from_unix_ms(1).since(end), Duration::ZERO);
    }
}
