//! Faults that keep this process from answering, by its connection and its mirrors.
//!
//! **Promises** that each fault is a line of text without a secret.

use std::time::Duration;

use crate::connection::handle::Bus;

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
        faults.extend(self.losses().list_all().iter().map(ToString::to_string));
        faults.extend(self.fault_sources().list_faults());
        faults
    }
}
