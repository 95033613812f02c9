//! The incarnation of the bucket of volumes. Each answer for a node's lease tells it to the agent.
//!
//! **Promises** that agents learn of a restored bucket within one renewal of their lease, without
//! further requests.
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

/// Interval at which each replica asks the server for it, however many nodes there are.
const INTERVAL: Duration = Duration::from_secs(2);

/// The number of the newest incarnation, if records of claims may be missing in it.
#[derive(Debug, Default)]
pub struct VolumesIncarnation(AtomicU64);

impl VolumesIncarnation {
    /// The number; none if it is unknown, or if no record can be missing.
    pub fn number(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|number| *number > 0)
    }

    /// Reads the number from the bucket, for a decision that must not rest on an older one.
    pub async fn read(&self, bus: &Bus) -> Result<Option<u64>, Problem> {
        let unread = |error| Problem::new(Code::BusUnavailable, chain(&error)).retryable();
        self.refresh(bus).await.map_err(unread)?;
        Ok(self.number())
    }

    /// Repeats the read until it is dropped.
    pub async fn follow(&self, bus: &Bus) {
        loop {
            if let Err(error) = self.refresh(bus).await {
                tracing::debug!(why = chain(&error), "no incarnation is known");
            }
            sleep(INTERVAL).await;
        }
    }

    /// Reads the number. It stays as it is while the stream is absent or being restored.
    async fn refresh(&self, bus: &Bus) -> Result<(), Cause> {
        if let Some(incarnation) = bus.read_incarnation(bucket::VOLUMES.name).await? {
            let number = if incarnation.origin.may_lack_records() { incarnation.number } else { 0 };
            self.0.store(number, Ordering::Relaxed);
        }
        Ok(())
    }
}
