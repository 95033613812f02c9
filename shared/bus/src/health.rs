//! What keeps this process from answering, as far as its connection and its mirrors can tell.
//!
//! **Owns** the list of open buckets and mirrors of one connection, without keeping any open.
//!
//! **Promises** that each fault is a line of text without a secret, and that a bucket or mirror that
//! was dropped is not reported.

use std::sync::{PoisonError, RwLock, Weak};
use std::time::Duration;

use crate::handle::Bus;

/// A bucket or a mirror.
pub(crate) trait FaultSource: Send + Sync {
    /// Its fault now, in words.
    fn fault(&self) -> Option<String>;
}

/// The open buckets and mirrors of a connection.
#[derive(Default)]
pub(crate) struct FaultSources(RwLock<Vec<Weak<dyn FaultSource>>>);

impl FaultSources {
    /// Adds one, and forgets those that were dropped.
    pub(crate) fn add(&self, source: Weak<dyn FaultSource>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(source);
    }

    fn faults(&self) -> Vec<String> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|source| source.upgrade()?.fault()).collect()
    }
}

impl Bus {
    /// Why requests to this process may not be answered now, one line each; empty while nothing is
    /// wrong: the bus is connected and answers within this time, the server knows every
    /// subscription, every mirror follows its bucket, no bucket is lost, and writes are stored.
    pub async fn find_faults(&self, within: Duration) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.connected() {
            let last = self.link().last_error();
            let last = last.map(|last| format!(" (last: {last})")).unwrap_or_default();
            faults.push(format!("the bus is not connected{last}"));
        } else if !self.flush(within).await {
            faults.push(format!("nats-server has not answered within {within:?}"));
        }
        faults.extend(self.losses().all().iter().map(ToString::to_string));
        faults.extend(self.fault_sources().faults());
        faults
    }
}
