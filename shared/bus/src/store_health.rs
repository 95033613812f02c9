//! Whether the server stores what this process writes to a bucket.
//!
//! **Promises** one warning in the log, with the server's reason, when a write is given up, and one
//! line when a write is stored again.
//!
//! **Never** counts a write that lost a race, or a connection that is lost.

use std::sync::{Mutex, PoisonError};

use berth_domain::Timestamp;

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
pub(crate) struct StoreHealth(Mutex<Option<StoreFault>>);

impl StoreHealth {
    pub(crate) fn fault(&self) -> Option<StoreFault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that a write was given up.
    pub(crate) fn record_failed_write(&self, bucket: &str, cause: &Cause) {
        let mut fault = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = cause.to_string();
        if let Some(fault) = &mut *fault {
            fault.reason = reason;
            return;
        }
        tracing::warn!(
            bucket,
            reason,
            "the server stores no writes; see `nats server report jetstream` and the log of \
             nats-server. A server whose disk was full stores nothing until it is restarted"
        );
        *fault = Some(StoreFault { since: now(), reason });
    }

    /// Records that the server acknowledged a write.
    pub(crate) fn record_stored_write(&self, bucket: &str) {
        let mut fault = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(StoreFault { since, reason }) = fault.take() {
            tracing::info!(bucket, %since, reason, "the server stores writes again");
        }
    }
}
