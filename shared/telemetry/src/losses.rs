//! Dropped spans and metrics, counted by reason.
//!
//! **Owns** the counts and the log lines about them.
//!
//! **Promises** one log line when an export begins to fail and one when it works again, however
//! many spans are lost in between.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::metric::TELEMETRY_DROPPED;

/// The losses of one signal.
#[derive(Debug)]
pub(crate) struct Losses {
    /// `traces` or `metrics`.
    signal: &'static str,
    /// The collector's endpoint, without credentials.
    endpoint: String,
    unsent: AtomicU64,
    overflowed: AtomicU64,
    failing: AtomicBool,
}

impl Losses {
    pub(crate) fn new(signal: &'static str, endpoint: String) -> Self {
        let (unsent, overflowed, failing) = Default::default();
        Self { signal, endpoint, unsent, overflowed, failing }
    }

    /// The numbers of items dropped since the start: not sent, and because the queue was full.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.unsent.load(Ordering::Relaxed), self.overflowed.load(Ordering::Relaxed))
    }

    /// Counts items that could not be sent.
    pub(crate) fn unsent(&self, count: u64, error: &dyn std::fmt::Display) {
        self.unsent.fetch_add(count, Ordering::Relaxed);
        TELEMETRY_DROPPED.add(count, [self.signal.into(), "unsent".into()]);
        self.log_failing(error);
    }

    /// Counts an item that did not fit in the queue.
    pub(crate) fn overflowed(&self) {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        TELEMETRY_DROPPED.add(1, [self.signal.into(), "overflowed".into()]);
        self.log_failing(&"the queue is full: the collector takes them too slowly");
    }

    fn log_failing(&self, error: &dyn std::fmt::Display) {
        if !self.failing.swap(true, Ordering::Relaxed) {
            let (signal, endpoint) = (self.signal, &self.endpoint);
            tracing::warn!(
                signal,
                endpoint,
                %error,
                "telemetry cannot be exported; it is dropped until the collector takes it again"
            );
        }
    }

    /// Records that an export succeeded.
    pub(crate) fn sent(&self) {
        // Loaded first, because a store by every export of every thread costs more.
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            let (signal, endpoint) = (self.signal, &self.endpoint);
            let (unsent, overflowed) = self.counts();
            tracing::info!(signal, endpoint, unsent, overflowed, "telemetry is exported again");
        }
    }
}
