//! This process's clock, and how far it is from nats-server's.
//!
//! **Owns** the newest measurement ([`ClockSkew`]), which `clock_check` makes.
//!
//! **Promises** one warning in the log when the clock is off by more than
//! [`limits::CLOCK_SKEW_REPORTED_MS`], one line when it is right again, and a gauge. `nats micro
//! info` shows the skew in a service's metadata.
//!
//! **Never** decides anything by the skew: nats-server's clock may be the wrong one.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use berth_domain::{Timestamp, limits};
use berth_telemetry::metric::CLOCK_SKEW;

/// The newest measurement, in milliseconds; positive when this process's clock is ahead.
#[derive(Debug, Default)]
pub(crate) struct ClockSkew(Mutex<Option<i64>>);

impl ClockSkew {
    pub(crate) fn newest_ms(&self) -> Option<i64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, skew_ms: i64) {
        CLOCK_SKEW.set(skew_ms.unsigned_abs(), []);
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let was_off = newest.is_some_and(is_off);
        match (was_off, is_off(skew_ms)) {
            (false, true) => tracing::warn!(
                skew_ms,
                "this process's clock differs from nats-server's; set the wrong one of the two. \
                 Calls end at deadlines that hosts compare with their clocks"
            ),
            (true, false) => tracing::info!(skew_ms, "the clocks agree again"),
            _ => {}
        }
        *newest = Some(skew_ms);
    }
}

fn is_off(skew_ms: i64) -> bool {
    skew_ms.unsigned_abs() > limits::CLOCK_SKEW_REPORTED_MS
}

/// The time of day, by which hosts compare deadlines.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
