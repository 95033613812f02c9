//! Warns about buckets and streams with fewer copies than the cluster could hold.
//!
//! **Promises** one line in the log for each check that finds some, one line when all have their
//! copies again, and a gauge for each stream that this process uses.
//!
//! **Never** changes a stream: an operator does, with `berth bus copies --raise`.

use std::time::Duration;

use berth_telemetry::metric::{BUCKETS, BUS_COPIES_MISSING};
use rand::RngExt as _;
use tokio::time::sleep;

use crate::connection::handle::{Bus, WeakBus};
use crate::stream::copies::Copies;
use crate::stream::replication::CopiesReport;

impl Bus {
    /// Checks the copies of the streams that this process uses, about this often, for as long as
    /// the bus is open.
    pub fn watch_copies(&self, copies: Copies, every: Duration) {
        tokio::spawn(watch(self.downgrade(), copies, every));
    }
}

async fn watch(bus: WeakBus, copies: Copies, every: Duration) {
    let mut was_short = false;
    // The first check comes after a tenth of the interval, so that the streams are open. The pauses
    // vary, so that not all services check at once.
    let mut pause = every / 10;
    loop {
        let jittered = pause.mul_f64(rand::rng().random_range(0.75..1.25));
        sleep(jittered).await;
        pause = every;
        let Some(bus) = bus.upgrade() else { return };
        let report = bus.copies_of(bus.opened(), copies).await;
        was_short = report_missing(&report, was_short);
    }
}

/// Returns whether a stream has too few copies.
fn report_missing(report: &CopiesReport, was_short: bool) -> bool {
    let mut short = Vec::new();
    for stream in &report.streams {
        // An unknown number is no finding: the bus elects a leader or is away, which other checks
        // report.
        let Some(copies) = stream.copies else { continue };
        let missing = stream.wanted.saturating_sub(copies);
        BUS_COPIES_MISSING.set(missing.into(), [BUCKETS.label(&stream.stream)]);
        if missing > 0 {
            short.push(format!("{} {copies} of {}", stream.stream, stream.wanted));
        }
    }
    if !short.is_empty() {
        tracing::warn!(
            servers = report.servers.len(),
            short = short.join(", "),
            "the cluster could hold more copies: what is lost with one server is lost for good; \
             run `berth bus copies --raise`"
        );
    } else if was_short {
        tracing::info!("every bucket and stream has its copies");
    }
    !short.is_empty()
}
