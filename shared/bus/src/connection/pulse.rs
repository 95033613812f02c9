//! Detects a connection that is open and carries nothing.
//!
//! A host that vanishes, or a firewall that forgets the connection, closes nothing: everything sent
//! is lost, and no error says so.
//!
//! **Promises** that such a connection is tested within a few seconds, and replaced if the server
//! does not answer. It is tested when something was sent and nothing was received since, or when an
//! answer did not come in time.
//!
//! The client's own pings take much longer, or cost each idle process a message every few seconds.
//! A client that publishes all the time may not send any
//! ([nats.rs 1593](https://github.com/nats-io/nats.rs/issues/1593)).
//!
//! **Never** tests a connection that receives, or one that is idle.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::connection::handle::{Bus, WeakBus};

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the connection may be silent before it is tested.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long the server has to answer the test. A connection that is replaced loses the answers on
/// their way, and their callers wait until their deadlines. So a connection that stalls for a
/// moment is kept.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Checks the connection until the last handle of the bus is dropped.
pub(crate) async fn watch_pulse(bus: WeakBus) {
    let mut looks = interval(CHECK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = LastHeard::default();
    loop {
        looks.tick().await;
        let Some(bus) = bus.upgrade() else { return };
        if heard.is_doubtful(&bus) && !bus.flush(ANSWER_MAX).await && heard.is_silent(&bus) {
            tracing::warn!(
                connection = bus.name(),
                "the connection is open and carries nothing; the client reconnects"
            );
            let reconnected = timeout(ANSWER_MAX, bus.client().force_reconnect()).await;
            if !matches!(reconnected, Ok(Ok(()))) {
                tracing::warn!(
                    "the client does not take the order; its own pings will end the connection"
                );
            }
        }
    }
}

/// The connection's counters when something was last received.
#[derive(Debug)]
struct LastHeard {
    connection: u64,
    bytes: u64,
    /// The count of sent messages at that time.
    sent: u64,
    /// The count of missing answers at that time.
    unanswered: u64,
    at: Instant,
}

impl Default for LastHeard {
    fn default() -> Self {
        Self { connection: 0, bytes: 0, sent: 0, unanswered: 0, at: Instant::now() }
    }
}

impl LastHeard {
    /// Whether something was sent and nothing was received for longer than [`SILENCE_MAX`], or an
    /// answer did not come.
    fn is_doubtful(&mut self, bus: &Bus) -> bool {
        let sent = bus.client().statistics().out_messages.load(Ordering::Relaxed);
        let unanswered = bus.link().unanswered();
        let is_unanswered = unanswered > self.unanswered;
        if !self.is_silent(bus) {
            let (connection, bytes) = Self::now(bus);
            *self = Self { connection, bytes, sent, unanswered, at: Instant::now() };
        }
        is_unanswered || sent > self.sent && self.at.elapsed() >= SILENCE_MAX
    }

    /// Whether nothing was received since then, on the same connection.
    fn is_silent(&self, bus: &Bus) -> bool {
        bus.connected() && Self::now(bus) == (self.connection, self.bytes)
    }

    fn now(bus: &Bus) -> (u64, u64) {
        (bus.connection(), bus.client().statistics().in_bytes.load(Ordering::Relaxed))
    }
}
