//! The connection's events, handled once for all parts of the process.
//!
//! **Owns** the client's events: they are logged here, counted here, and wake the tasks that wait
//! for the connection to break ([`Watch`](crate::connection::handle::Watch)) or to come back.
//!
//! **Promises** that a refused permission is logged and counted, and that the exchange that met it
//! ends at once ([`denial`](crate::connection::denial)); and that each loss of the connection is
//! logged with the reason why it is not made again.
//!
//! **Never** connects: the client does, and chooses the server.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use async_nats::{ClientError, Event, Server, ServerError};
use berth_contract::subject;
use berth_telemetry::metric::{BUS_CONNECTED, BUS_CONNECTS, BUS_DENIALS, BUS_DISCONNECTS};
use tokio::sync::watch;

use crate::connection::denial::{Denial, Denials};
use crate::connection::refused_events::RefusedEvents;

/// Most refusals of one connection that are logged as errors.
const REFUSALS_LOGGED_MAX: usize = 64;

/// How often each event came since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections made, the first included.
    pub connects: u64,
    /// Connections lost.
    pub disconnects: u64,
    /// Publishes or subscriptions that the server's permissions refused.
    pub permission_violations: u64,
    /// Times that the client dropped messages because a subscriber took them too slowly.
    pub slow_consumers: u64,
    /// Other errors the server or the client told us of.
    pub errors: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Link {
    changes: watch::Sender<u64>,
    connects: AtomicU64,
    disconnects: AtomicU64,
    permission_violations: AtomicU64,
    slow_consumers: AtomicU64,
    errors: AtomicU64,
    unanswered: AtomicU64,
    last_error: Mutex<Option<String>>,
    refusal: Mutex<Option<String>>,
    denials: Denials,
    refused_events: RefusedEvents,
    /// The refusals of this connection that are in the log already.
    logged: Mutex<BTreeSet<String>>,
}

impl Link {
    /// A link for a process whose answers come to inboxes with this prefix.
    pub(crate) fn with_inbox(prefix: &str) -> Self {
        Self { denials: Denials::with_inbox(prefix), ..Self::default() }
    }

    /// The exchanges that a refusal would end.
    pub(crate) const fn denials(&self) -> &Denials {
        &self.denials
    }

    /// The events that the server's permissions refuse, and that wait for another connection.
    pub(crate) const fn refused_events(&self) -> &RefusedEvents {
        &self.refused_events
    }

    /// Why the last attempt to connect was refused, unless a connection was made since.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_refusal(&self, refusal: Option<String>) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    /// A number that grows whenever the connection is lost or made.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        let mut changes = self.changes.subscribe();
        changes.mark_unchanged();
        changes
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            connects: read(&self.connects),
            disconnects: read(&self.disconnects),
            permission_violations: read(&self.permission_violations),
            slow_consumers: read(&self.slow_consumers),
            errors: read(&self.errors),
        }
    }

    /// Counts an answer that did not come in time.
    pub(crate) fn record_unanswered(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    /// How many answers did not come in time.
    pub(crate) fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn record_event(&self, connection: &str, event: &Event) {
        let count = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        match event {
            Event::Connected => {
                count(&self.connects);
                BUS_CONNECTS.add(1, []);
                BUS_CONNECTED.set(1, []);
                tracing::info!(connection, "connected to the bus");
                self.set_refusal(None);
                // Cleared, so that the next loss of the connection is explained, too.
                *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.denials.forget_inbox();
                self.logged.lock().unwrap_or_else(PoisonError::into_inner).clear();
                self.refused_events.record_connected();
                self.changes.send_modify(|changes| *changes += 1);
            }
            Event::Disconnected => {
                count(&self.disconnects);
                BUS_DISCONNECTS.add(1, []);
                BUS_CONNECTED.set(0, []);
                tracing::warn!(connection, "the connection to the bus is lost; reconnecting");
                self.changes.send_modify(|changes| *changes += 1);
            }
            Event::SlowConsumer(subscription) => {
                count(&self.slow_consumers);
                tracing::warn!(
                    connection,
                    subscription,
                    "messages were dropped: a subscriber is too slow"
                );
            }
            Event::ServerError(ServerError::Other(error)) if is_permission(error) => {
                count(&self.permission_violations);
                self.keep(error);
                let denial = Denial::read(error);
                let kind = denial.as_ref().map_or("other", Denial::kind);
                BUS_DENIALS.add(1, [kind.into()]);
                if self.is_first_refusal(error) {
                    tracing::error!(
                        connection,
                        error,
                        "the server's permissions do not allow this"
                    );
                } else {
                    tracing::debug!(
                        connection,
                        error,
                        "the server's permissions do not allow this"
                    );
                }
                if let Some(denial) = denial {
                    if let Denial::Publish(subject) = &denial {
                        self.refused_events.record_denied(subject);
                    }
                    self.denials.record(&denial);
                }
            }
            Event::ServerError(error) => {
                count(&self.errors);
                self.keep(error);
                tracing::warn!(connection, %error, "the server reports an error");
            }
            Event::ClientError(ClientError::Other(error)) if is_authorization(error) => {
                count(&self.errors);
                self.keep(error);
                self.refuse(connection, error);
            }
            Event::ClientError(ClientError::Other(error)) => {
                count(&self.errors);
                if self.keep(error) {
                    tracing::warn!(connection, error, "an attempt to connect failed; trying again");
                } else {
                    tracing::debug!(connection, error, "an attempt to connect failed again");
                }
            }
            Event::ClientError(error) => {
                count(&self.errors);
                self.keep(error);
                tracing::warn!(connection, %error, "the client reports an error");
            }
            Event::LameDuckMode => {
                tracing::info!(
                    connection,
                    "the server shuts down; the client connects to another server"
                );
            }
            Event::Draining | Event::Closed => tracing::debug!(connection, "{event}"),
        }
    }

    /// Records the errors of the last attempt at each server. The client's own events only say `IO
    /// error`.
    pub(crate) fn record_attempts(&self, connection: &str, servers: &[Server]) {
        let errors = servers.iter().filter_map(|server| server.last_error.as_deref());
        let errors: BTreeSet<&str> = errors.collect();
        if errors.is_empty() {
            return;
        }
        let all_errors = errors.iter().copied().collect::<Vec<_>>().join("; ");
        if !self.keep(&all_errors) {
            return;
        }
        let is_untrusted = |server: &Server| {
            server.is_discovered || server.last_error.as_deref().is_some_and(is_certificate)
        };
        if servers.iter().all(is_untrusted) {
            self.refuse(connection, &all_errors);
        } else {
            tracing::warn!(
                connection,
                error = all_errors,
                "attempts to connect failed; trying again"
            );
        }
    }

    fn refuse(&self, connection: &str, error: &str) {
        self.set_refusal(Some(error.to_owned()));
        tracing::error!(connection, error, "nats-server and this process refuse each other");
    }

    /// Whether such a refusal is new on this connection. Events of all volumes count as one.
    fn is_first_refusal(&self, error: &str) -> bool {
        let subject = error.split('"').nth(1).unwrap_or(error);
        let family = subject::event_family(subject).map(|family| format!("{family:?}"));
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.len() < REFUSALS_LOGGED_MAX && logged.insert(family.unwrap_or(subject.to_owned()))
    }

    /// Keeps the error as the last one; returns whether it differs from the error before.
    fn keep(&self, error: &impl ToString) -> bool {
        let error = error.to_string();
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !last.as_deref().is_some_and(|last| last.contains(&error));
        if is_new {
            *last = Some(error);
        }
        is_new
    }
}

fn is_permission(error: &str) -> bool {
    error.to_ascii_lowercase().contains("permissions violation")
}

/// Whether the server refused the credentials.
fn is_authorization(error: &str) -> bool {
    let said = error.to_ascii_lowercase();
    ["authorization", "authentication"].iter().any(|word| said.contains(word))
}

/// Whether TLS failed by a certificate.
pub(crate) fn is_certificate(error: &str) -> bool {
    error.to_ascii_lowercase().contains("certificate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last_error: &str) -> Server {
        Server {
            addr: "nats://127.0.0.1:4222".parse().unwrap(),
            failed_attempts: 1,
            did_connect: false,
            is_discovered: false,
            last_error: Some(last_error.to_owned()),
        }
    }

    #[tokio::test]
    async fn each_loss_of_the_connection_is_explained() {
        let (link, untrusted) = (Link::default(), "IO error: invalid peer certificate: Expired");
        for _ in 0..2 {
            link.record_attempts("c", &[server(untrusted)]);
            link.record_event("c", &Event::ClientError(ClientError::Other("IO error".to_owned())));
            assert_eq!(link.last_error().as_deref(), Some(untrusted), "the event says less");
            assert_eq!(link.refusal().as_deref(), Some(untrusted));
            link.record_event("c", &Event::Connected);
            assert_eq!((link.last_error(), link.refusal()), (None, None));
        }
        // A server that is only unreachable may come back.
        link.record_attempts("c", &[server(untrusted), server("IO error: refused")]);
        assert_eq!(link.refusal(), None);
    }
}
