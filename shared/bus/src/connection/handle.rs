//! The handle of the connection, which all parts of a process share.
//!
//! **Promises** that [`Bus::connected`] is current, so that callers refuse early. The client keeps
//! what it was given while disconnected and sends it after the reconnect, long after the caller has
//! given up.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, jetstream};
use berth_contract::actor::Actor;
use berth_contract::message::access::AccessReport;
use rand::RngExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::clock::ClockSkew;
use crate::connection::config::Config;
use crate::connection::credentials::Credentials;
use crate::connection::fault_source::FaultSources;
use crate::connection::link::{Counts, Link};
use crate::incarnation::loss::Losses;
use crate::incarnation::standing::Standings;

/// The bus: a cheap handle that all parts of a process share.
#[derive(Clone)]
pub struct Bus {
    inner: Arc<BusInner>,
}

/// A handle that does not keep the bus open.
pub(crate) struct WeakBus(Weak<BusInner>);

impl WeakBus {
    /// The bus, if another handle of it is left.
    pub(crate) fn upgrade(&self) -> Option<Bus> {
        Some(Bus { inner: self.0.upgrade()? })
    }
}

struct BusInner {
    client: Client,
    jetstream: jetstream::Context,
    link: Arc<Link>,
    losses: Losses,
    standings: Standings,
    clock_skew: ClockSkew,
    /// The streams that this process opened.
    opened: Mutex<BTreeSet<String>>,
    fault_sources: FaultSources,
    /// Distinguishes this process's kept events from those of other processes.
    id: String,
    /// The rights that its identity lacks, for monitoring.
    access: Mutex<Option<AccessReport>>,
    config: Config,
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("name", &self.inner.config.name).finish_non_exhaustive()
    }
}

impl Bus {
    /// A handle of this client's connection.
    pub(crate) fn new(client: Client, link: Arc<Link>, config: Config) -> Self {
        let jetstream =
            jetstream::ContextBuilder::new().timeout(config.request_timeout).build(client.clone());
        let (losses, standings, clock_skew, opened, fault_sources) = Default::default();
        let inner = BusInner {
            client,
            jetstream,
            link,
            losses,
            standings,
            clock_skew,
            opened,
            fault_sources,
            access: Mutex::default(),
            id: format!("{:016x}", rand::rng().random::<u64>()),
            config,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Whether the process is connected now.
    pub fn connected(&self) -> bool {
        self.client().connection_state() == State::Connected
    }

    /// Counts of events of the connection, for metrics.
    pub fn counts(&self) -> Counts {
        self.link().counts()
    }

    /// How the process authenticates.
    pub fn credentials(&self) -> &Credentials {
        &self.config().credentials
    }

    /// The name of the connection in `nats server report connections`.
    pub fn name(&self) -> &str {
        &self.config().name
    }

    /// Sends what is queued, ends every subscription and closes: the last thing a process does.
    /// Gives up at the deadline.
    pub async fn drain(&self, within: Duration) {
        if self.connected() && self.makes_streams() {
            self.record_ends(within / 2).await;
        }
        let drained = timeout(within, async {
            // The client writes its queue to the socket, if there is one; then the subscriptions
            // end.
            if self.connected() && self.client().flush().await.is_err() {
                tracing::warn!("the connection ended before its queue was sent");
            }
            self.client().drain().await
        });
        if !matches!(drained.await, Ok(Ok(()))) {
            tracing::warn!(?within, "the bus was closed before it was drained");
        }
    }

    /// Waits until the process is connected; false if the deadline or a refusal comes first.
    pub(crate) async fn wait_connected(&self, deadline: Instant) -> bool {
        let mut changes = self.link().changes();
        loop {
            if self.connected() {
                return true;
            }
            // The link's events come through a queue that may lose some, so the state is polled
            // too.
            let poll_at = Instant::now() + Duration::from_millis(50);
            let event = timeout_at(poll_at.min(deadline), changes.changed());
            let is_over = event.await.is_err() && Instant::now() >= deadline;
            if is_over || self.link().refusal().is_some() {
                return self.connected();
            }
        }
    }

    /// The number of the current or last connection, counted from one.
    pub(crate) fn connection(&self) -> u64 {
        self.client().statistics().connects.load(Ordering::Relaxed)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn jetstream(&self) -> &jetstream::Context {
        &self.inner.jetstream
    }

    pub(crate) fn link(&self) -> &Link {
        &self.inner.link
    }

    /// A handle for a task that ends with the last other handle of the bus.
    pub(crate) fn downgrade(&self) -> WeakBus {
        WeakBus(Arc::downgrade(&self.inner))
    }

    /// Sets the rights that the process's identity lacks; its services report them to monitoring.
    pub fn set_access(&self, report: Option<AccessReport>) {
        *self.inner.access.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// The rights that the process's identity lacks; none if it lacks none.
    pub fn access(&self) -> Option<AccessReport> {
        self.inner.access.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until there were more connections than `after`; returns their number.
    pub async fn await_connection(&self, after: u64) -> u64 {
        let mut changes = self.link().changes();
        while self.counts().connects <= after {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        self.counts().connects
    }

    /// A random id of this process.
    pub(crate) fn id(&self) -> &str {
        &self.inner.id
    }

    pub(crate) fn clock_skew(&self) -> &ClockSkew {
        &self.inner.clock_skew
    }

    /// Remembers a stream that this process uses.
    pub(crate) fn record_opened(&self, stream: &str) {
        let mut opened = self.inner.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if !opened.contains(stream) {
            opened.insert(stream.to_owned());
        }
    }

    /// The streams that this process uses.
    pub(crate) fn opened(&self) -> BTreeSet<String> {
        self.inner.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn fault_sources(&self) -> &FaultSources {
        &self.inner.fault_sources
    }

    pub(crate) fn losses(&self) -> &Losses {
        &self.inner.losses
    }

    pub(crate) fn standings(&self) -> &Standings {
        &self.inner.standings
    }

    /// The actor of the requests of this process.
    pub fn actor(&self) -> &Actor {
        &self.config().actor
    }

    /// The settings with which the bus was opened.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The addresses of further servers that the connected server announced.
    pub fn learned_servers(&self) -> Vec<String> {
        self.client().try_server_info().map(|info| info.connect_urls).unwrap_or_default()
    }
}

/// One connection, seen by a task that ends with the connection.
#[derive(Debug)]
pub(crate) struct Watch {
    bus: Bus,
    connection: u64,
    changes: watch::Receiver<u64>,
}

impl Watch {
    /// Watches the current connection.
    pub(crate) fn new(bus: &Bus) -> Self {
        Self { bus: bus.clone(), connection: bus.connection(), changes: bus.link().changes() }
    }

    /// Returns when the connection is gone, even if a new one exists by now. Cancel-safe.
    pub(crate) async fn broken(&mut self) {
        // The state is checked, because an event may be about an earlier connection.
        while self.bus.connected() && self.bus.connection() == self.connection {
            if self.changes.changed().await.is_err() {
                return;
            }
        }
    }
}
