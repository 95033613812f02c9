//! What all calls at one socket share.
//!
//! Owns: the log, the faults and the gate of one driver. Promises: tells when no call is on its
//! way. Never: makes a call.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::faults::Faults;
use crate::gate::Gate;
use crate::log::Recorder;
use crate::pass::Driver;

/// What all calls at one socket share.
pub struct Tap {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) faults: Faults,
    pub(crate) gate: Box<dyn Gate>,
    pub(crate) in_flight: watch::Sender<usize>,
}

/// A driver, with a tap in front.
#[derive(Clone)]
pub struct Tapped<S> {
    pub(crate) tap: Arc<Tap>,
    pub(crate) driver: S,
}

impl Tap {
    pub fn new(recorder: Recorder, faults: Faults, gate: impl Gate) -> Self {
        let in_flight = watch::Sender::new(0);
        Self { recorder: Arc::new(recorder), faults, gate: Box::new(gate), in_flight }
    }

    /// Waits until no call is on its way, not even one whose caller left.
    pub async fn idle(&self) {
        // Fails only if the sender is dropped, and this has it.
        let _ = self.in_flight.subscribe().wait_for(|in_flight| *in_flight == 0).await;
    }
}

impl<S: Driver> Tapped<S> {
    pub fn new(tap: Tap, driver: S) -> Self {
        Self { tap: Arc::new(tap), driver }
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("recorder", &self.recorder).finish_non_exhaustive()
    }
}
