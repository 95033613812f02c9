//! Whether this process answers requests now: the answer of `GET /readyz`.
//!
//! **Owns** the stage of the process's start, and the conditions that its service adds.
//!
//! **Promises** that the process is ready only while all of these hold: the service has started,
//! the bus is connected and answers, the server knows every subscription, every bucket that the
//! process mirrors is read and followed, the server stores its writes, and no shutdown was
//! requested. Each condition that does not hold is a reason in words.
//!
//! **Never** stops a service: a process that is not ready still answers the requests that it can.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_bus::Bus;
use berth_telemetry::ReadyCheck;

use crate::shutdown::Shutdown;

/// How long nats-server may take to answer.
const BUS_ANSWER_MAX: Duration = Duration::from_secs(2);

/// How far the process has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Connecting,
    Starting,
    Serving,
}

impl Stage {
    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Connecting => Some("starting: the bus is not connected yet"),
            Self::Starting => Some("starting: the service does not answer requests yet"),
            Self::Serving => None,
        }
    }
}

/// Returns why the condition does not hold.
type Condition = Box<dyn Fn() -> Option<String> + Send>;

#[derive(Default)]
struct ReadinessState {
    stage: Stage,
    bus: Option<Bus>,
    shutdown: Option<Shutdown>,
    conditions: Vec<Condition>,
}

/// The readiness of one process. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub struct Readiness(Arc<Mutex<ReadinessState>>);

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(&self.lock().stage).finish()
    }
}

impl Readiness {
    /// Adds a condition of the service's own: it returns why the condition does not hold.
    pub fn require(&self, condition: impl Fn() -> Option<String> + Send + 'static) {
        self.lock().conditions.push(Box::new(condition));
    }

    /// Records that the bus is connected, so that the service can start.
    pub(crate) fn record_connected(&self, bus: Bus, shutdown: Shutdown) {
        let mut state = self.lock();
        state.stage = Stage::Starting;
        (state.bus, state.shutdown) = (Some(bus), Some(shutdown));
    }

    /// Records that the service answers requests, and that the server knows its subscriptions.
    pub(crate) fn record_serving(&self) {
        self.lock().stage = Stage::Serving;
    }

    /// Why the process is not ready; empty if it is.
    pub async fn reasons(&self) -> Vec<String> {
        let (mut reasons, bus) = self.own_reasons();
        if let Some(bus) = bus {
            reasons.extend(bus.find_faults(BUS_ANSWER_MAX).await);
        }
        reasons
    }

    fn own_reasons(&self) -> (Vec<String>, Option<Bus>) {
        let state = self.lock();
        let stopping = state.shutdown.as_ref().is_some_and(Shutdown::is_requested);
        let stopping = stopping.then(|| "the process is stopping".to_owned());
        let conditions = state.conditions.iter().filter_map(|condition| condition());
        let start = state.stage.reason().map(str::to_owned);
        (stopping.into_iter().chain(start).chain(conditions).collect(), state.bus.clone())
    }

    /// The answer of `/readyz`.
    pub(crate) fn as_check(&self) -> ReadyCheck {
        let readiness = self.clone();
        ReadyCheck::new(move || {
            let readiness = readiness.clone();
            async move { readiness.reasons().await }
        })
    }

    fn lock(&self) -> MutexGuard<'_, ReadinessState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_says_what_it_lacks_until_it_lacks_nothing() {
        let readiness = Readiness::default();
        assert_eq!(readiness.reasons().await, ["starting: the bus is not connected yet"]);
        let (lost, is_lost) = tokio::sync::watch::channel(true);
        readiness.require(move || is_lost.borrow().then(|| "the lease is lost".to_owned()));
        readiness.record_serving();
        assert_eq!(readiness.reasons().await, ["the lease is lost"]);
        lost.send_replace(false);
        assert!(readiness.reasons().await.is_empty());

        let (trigger, shutdown) = Shutdown::new();
        readiness.lock().shutdown = Some(shutdown);
        assert!(readiness.reasons().await.is_empty());
        trigger.request();
        assert_eq!(readiness.reasons().await, ["the process is stopping"]);
    }
}
