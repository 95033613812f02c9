//! The incarnation of the bucket of volumes. Agents are told with each answer for their lease.
//!
//! **Promises** that agents learn of a restored bucket within a renewal of their lease, by answers
//! that are sent anyway.
//!
//! **Never** reads a volume.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_bus::{Bus, Cause};
use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_service::process::chain;
use tokio::time::sleep;

/// Interval at which the stream is described: one request of each replica, however many nodes.
const INTERVAL: Duration = Duration::from_secs(2);

/// The number of the newest incarnation, if records of claims may be missing in it.
#[derive(Debug, Default)]
pub struct VolumesIncarnation(AtomicU64);

impl VolumesIncarnation {
    /// The number; none while it is not known, and where no record can be missing.
    pub fn number(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|number| *number > 0)
    }

    /// The number as the bucket has it now, for a decision that must not rest on an older one.
    pub async fn read(&self, bus: &Bus) -> Result<Option<u64>, Problem> {
        let unread = |error| Problem::new(Code::BusUnavailable, chain(&error)).retryable();
        self.refresh(bus).await.map_err(unread)?;
        Ok(self.number())
    }

    /// Follows the bucket for as long as this is polled.
    pub async fn follow(&self, bus: &Bus) {
        loop {
            if let Err(error) = self.refresh(bus).await {
                tracing::debug!(why = chain(&error), "no incarnation is known");
            }
            sleep(INTERVAL).await;
        }
    }

    /// A stream that is away, or is being restored, keeps the number of before.
    async fn refresh(&self, bus: &Bus) -> Result<(), Cause> {
        if let Some(found) = bus.read_incarnation(bucket::VOLUMES.name).await? {
            let number = if found.origin.may_lack_records() { found.number } else { 0 };
            self.0.store(number, Ordering::Relaxed);
        }
        Ok(())
    }
}
