//! How far this process's clock is from nats-server's.
//!
//! **Owns** the newest measurement: one request for a stream's description, which carries the time
//! of the stream's leader.
//!
//! **Promises** a warning in the log when the clock is off by more than
//! [`limits::CLOCK_SKEW_REPORTED_MS`], one line
//! when it is right again, a gauge, and the skew in the metadata that `nats micro info` shows.
//!
//! **Never** decides anything by it: nats-server's clock may be the wrong one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use berth_domain::{ClockOffset, limits};
use berth_telemetry::metric::CLOCK_SKEW;
use tokio::time::{Instant, sleep};

use crate::bucket::Bucket;
use crate::connect::{Bus, Unheld};
use crate::request::now;

const MEASURE_EVERY: Duration = Duration::from_secs(30);

/// The newest measurement, in milliseconds; positive when this process's clock is ahead.
#[derive(Debug, Default)]
pub(crate) struct ClockSkew(Mutex<Option<i64>>);

impl ClockSkew {
    pub(crate) fn newest_ms(&self) -> Option<i64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, skew_ms: i64) {
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

impl Bucket {
    /// Measures this process's clock every 30 s, for as long as the bus is open.
    pub fn watch_clock(&self) {
        tokio::spawn(watch(self.bus.unheld(), self.shape.stream.clone()));
    }
}

async fn watch(bus: Unheld, stream: String) {
    loop {
        let Some(bus) = bus.hold() else { return };
        bus.measure_clock(&stream).await;
        drop(bus);
        sleep(MEASURE_EVERY).await;
    }
}

impl Bus {
    async fn measure_clock(&self, stream: &str) {
        let (sent, began) = (now(), Instant::now());
        let Ok(description) = self.describe(stream).await else { return };
        let Ok(server) = description.now() else { return };
        let offset = ClockOffset::from_exchange(sent, server, began.elapsed());
        self.clock_skew().record(offset.nearest(0));
    }
}
