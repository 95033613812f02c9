//! Measures this process's clock against nats-server's.
//!
//! One measurement is one request for a stream's description, which carries the time of the
//! stream's leader.

use std::time::Duration;

use berth_domain::ClockOffset;
use tokio::time::{Instant, sleep};

use crate::clock::now;
use crate::connection::handle::{Bus, WeakBus};
use crate::store::bucket::Bucket;

const MEASURE_EVERY: Duration = Duration::from_secs(30);

impl Bucket {
    /// Measures this process's clock every 30 s, for as long as the bus is open.
    pub fn watch_clock(&self) {
        tokio::spawn(watch(self.bus.downgrade(), self.shape.stream.clone()));
    }
}

async fn watch(bus: WeakBus, stream: String) {
    loop {
        let Some(bus) = bus.upgrade() else { return };
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
