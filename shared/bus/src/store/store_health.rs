//! Whether the server stores what this process writes to a bucket.
//!
//! **Promises** one warning in the log, with the server's reason, when a write is given up or was
//! lost twice, and one line when a write is stored again.
//!
//! **Never** counts a write that lost a race, or a connection that is lost.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use berth_domain::Timestamp;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::clock::now;

/// Why a bucket stores no write of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFault {
    /// When the first write failed, by this process's clock.
    pub since: Timestamp,
    /// Why the newest write failed.
    pub reason: String,
}

/// The health of one bucket.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<Option<Faulty>>);

#[derive(Debug)]
struct Faulty {
    fault: StoreFault,
    /// When the newest write failed.
    newest: Instant,
}

impl StoreHealth {
    pub(crate) fn fault(&self) -> Option<StoreFault> {
        let faulty = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faulty.as_ref().map(|faulty| faulty.fault.clone())
    }

    /// The fault, if a write failed within this time. A process that writes nothing does not notice
    /// that the server stores writes again.
    pub(crate) fn recent_fault(&self, within: Duration) -> Option<StoreFault> {
        let faulty = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = faulty.as_ref().filter(|faulty| faulty.newest.elapsed() < within);
        recent.map(|faulty| faulty.fault.clone())
    }

    /// Records that a write was given up, or lost twice.
    pub(crate) fn record_failed_write(&self, bucket: &str, cause: &Cause) {
        let mut faulty = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (reason, newest) = (cause.to_string(), Instant::now());
        if let Some(faulty) = &mut *faulty {
            (faulty.fault.reason, faulty.newest) = (reason, newest);
            return;
        }
        tracing::warn!(
            bucket,
            reason,
            "the server stores no writes; see `nats server report jetstream` and the log of \
             nats-server. A server whose disk was full stores nothing until it is restarted"
        );
        *faulty = Some(Faulty { fault: StoreFault { since: now(), reason }, newest });
    }

    /// Records that the server acknowledged a write.
    pub(crate) fn record_stored_write(&self, bucket: &str) {
        let mut faulty = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = faulty.take().map(|faulty| faulty.fault);
        if let Some(StoreFault { since, reason }) = fault {
            tracing::info!(bucket, %since, reason, "the server stores writes again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_recent_for_a_time_and_ends_with_a_stored_write() {
        let health = StoreHealth::default();
        let minute = Duration::from_secs(60);
        assert_eq!(health.recent_fault(minute), None);
        health.record_failed_write("b", &Cause::new("the disk is full"));
        assert_eq!(health.recent_fault(minute), health.fault());
        tokio::time::advance(minute).await;
        assert_eq!(health.recent_fault(minute), None, "nobody has tried since");
        health.record_failed_write("b", &Cause::new("still full"));
        assert_eq!(health.recent_fault(minute).unwrap().reason, "still full");
        health.record_stored_write("b");
        assert_eq!((health.fault(), health.recent_fault(minute)), (None, None));
    }
}
