//! The connection: one per process, kept for as long as the process lives.
//!
//! **Owns** how a service gets onto the bus and stays there: the first connection has a deadline
//! and fails with all that is known; afterwards the client reconnects for ever, at most a second
//! apart, and every drop, refusal of a permission and slow consumer is logged and counted
//! ([`Counts`]).
//!
//! **Promises** that [`Bus::connected`] is current, so that callers refuse early: what is handed to
//! the client while it is disconnected would be sent after the reconnect, long after its caller
//! has given up.
//!
//! **Never** prints a password or a seed, nor a server address with one in it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, HeaderMap, jetstream};
use bytes::Bytes;
use rand::RngExt as _;
use thiserror::Error;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cause::Cause;
use crate::clock::ClockSkew;
use crate::config::{Config, Credentials};
use crate::exchange::ExchangeError;
use crate::link::{Counts, Link};
use crate::loss::Losses;
use crate::pulse;
use crate::version::{OLDEST, Version};

/// How long one TCP and NATS handshake may take before the next server is tried.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// How often an idle connection is checked by the client itself; three silent checks end it. One
/// that is used is felt for sooner (`pulse`). A fleet has thousands of idle ones.
const PING_EVERY: Duration = Duration::from_secs(30);
/// The longest pause between two attempts to reconnect.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Nobody answered as a NATS server in time, or it did not let us in.
    #[error(
        "no connection to nats-server at {servers} within {after:?} (last: {last}); \
         start it, or check the address and credentials"
    )]
    Unreachable {
        /// The addresses, without credentials.
        servers: String,
        /// How long it was tried.
        after: Duration,
        /// What the last attempt ended with.
        last: String,
    },
    /// An address cannot be read.
    #[error("the server addresses {servers} cannot be read; write nats://HOST:PORT")]
    Address {
        /// The addresses, without credentials.
        servers: String,
        /// What the client says.
        #[source]
        source: Cause,
    },
    /// The seed file cannot be read.
    #[error("the nkey seed file {} cannot be read", path.display())]
    Seed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The server lacks what Berth rests on: TTL per key, guards over a subtree.
    #[error("nats-server {found} is too old; Berth needs {OLDEST} or newer")]
    TooOld {
        /// What it is.
        found: String,
    },
}

/// The bus: a cheap handle that all parts of a process share.
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
}

/// A handle that does not keep the bus open.
pub(crate) struct Unheld(Weak<Inner>);

impl Unheld {
    /// The bus, if anybody still has it.
    pub(crate) fn hold(&self) -> Option<Bus> {
        Some(Bus { inner: self.0.upgrade()? })
    }
}

struct Inner {
    client: Client,
    jetstream: jetstream::Context,
    link: Arc<Link>,
    losses: Losses,
    clock_skew: ClockSkew,
    config: Config,
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("name", &self.inner.config.name).finish_non_exhaustive()
    }
}

impl Bus {
    /// Connects, within [`Config::start_timeout`].
    pub async fn connect(config: Config) -> Result<Self, ConnectError> {
        let link = Arc::new(Link::default());
        let started = Instant::now();
        let options = options(&config, &link).await?;
        let client = options.connect(config.addresses()).await.map_err(|error| {
            ConnectError::Address { servers: config.shown(), source: Cause::new(error) }
        })?;
        let bus = Self {
            inner: Arc::new(Inner {
                jetstream: jetstream::ContextBuilder::new()
                    .timeout(config.request_timeout)
                    .build(client.clone()),
                client,
                link,
                losses: Losses::default(),
                clock_skew: ClockSkew::default(),
                config,
            }),
        };
        let config = bus.config();
        if !bus.wait_connected(started + config.start_timeout).await {
            return Err(ConnectError::Unreachable {
                servers: config.shown(),
                after: config.start_timeout,
                last: bus.link().last_error().unwrap_or_else(|| "no answer".to_owned()),
            });
        }
        bus.check_version()?;
        tokio::spawn(pulse::feel(bus.unheld()));
        Ok(bus)
    }

    /// Whether the connection stands now.
    pub fn connected(&self) -> bool {
        self.client().connection_state() == State::Connected
    }

    /// What went wrong so far, for metrics.
    pub fn counts(&self) -> Counts {
        self.link().counts()
    }

    /// The name others see in `nats server report connections`.
    pub fn name(&self) -> &str {
        &self.config().name
    }

    /// Waits until the server has taken all that was sent so far, subscriptions too: whoever asks
    /// an endpoint after that is heard. False when that does not show within `within`.
    pub async fn flush(&self, within: Duration) -> bool {
        // Nobody listens there; that the server says so means that it has come to it.
        let nowhere = self.client().new_inbox();
        let answer = self.exchange(nowhere, HeaderMap::new(), Bytes::new(), within).await;
        matches!(answer, Err(ExchangeError::NoResponder))
    }

    /// Sends what is queued, ends every subscription and closes: the last thing a process does.
    /// Gives up at the deadline.
    pub async fn drain(&self, within: Duration) {
        let drained = timeout(within, async {
            // Written to the socket, if there is one; then the subscriptions end.
            if self.connected() && self.client().flush().await.is_err() {
                tracing::warn!("the connection ended before its queue was sent");
            }
            self.client().drain().await
        });
        if !matches!(drained.await, Ok(Ok(()))) {
            tracing::warn!(?within, "the bus was closed before it was drained");
        }
    }

    /// Waits until the connection stands; false when it does not by the deadline.
    pub(crate) async fn wait_connected(&self, deadline: Instant) -> bool {
        let mut changes = self.link().changes();
        loop {
            if self.connected() {
                return true;
            }
            // The link's events come through a queue that may lose some: look now and then.
            let look = Instant::now() + Duration::from_millis(50);
            let event = timeout_at(look.min(deadline), changes.changed());
            if event.await.is_err() && Instant::now() >= deadline {
                return self.connected();
            }
        }
    }

    /// Which connection stands, or stood last: they are counted from one.
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
    pub(crate) fn unheld(&self) -> Unheld {
        Unheld(Arc::downgrade(&self.inner))
    }

    pub(crate) fn clock_skew(&self) -> &ClockSkew {
        &self.inner.clock_skew
    }

    pub(crate) fn losses(&self) -> &Losses {
        &self.inner.losses
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    fn check_version(&self) -> Result<(), ConnectError> {
        let found = self.client().try_server_info().map(|info| info.version).unwrap_or_default();
        // A version that cannot be read is one of a build of its own: let it try.
        match Version::parse(&found) {
            Some(version) if version < OLDEST => Err(ConnectError::TooOld { found }),
            _ => Ok(()),
        }
    }
}

async fn options(config: &Config, link: &Arc<Link>) -> Result<ConnectOptions, ConnectError> {
    let events = Arc::clone(link);
    let name = config.name.clone();
    let options = ConnectOptions::new()
        .name(&config.name)
        .retry_on_initial_connect()
        .max_reconnects(None)
        .connection_timeout(HANDSHAKE)
        .ping_interval(PING_EVERY)
        .request_timeout(Some(config.request_timeout))
        .reconnect_delay_callback(|attempts| reconnect_delay(attempts, rand::rng().random()))
        .event_callback(move |event| {
            events.note(&name, &event);
            std::future::ready(())
        });
    let options = match &config.inbox_prefix {
        Some(prefix) => options.custom_inbox_prefix(prefix),
        None => options,
    };
    Ok(match &config.credentials {
        Credentials::None => options,
        Credentials::Password { user, password } => {
            options.user_and_password(user.clone(), password.clone())
        }
        Credentials::NkeySeedFile(path) => {
            let seed = tokio::fs::read_to_string(path)
                .await
                .map_err(|source| ConnectError::Seed { path: path.clone(), source })?;
            options.nkey(seed.trim().to_owned())
        }
    })
}

/// Short at first, never above a second, and spread so that a fleet does not come back as one.
fn reconnect_delay(attempts: usize, jitter: u32) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX).min(10);
    let whole = (Duration::from_millis(20) * 2_u32.pow(doublings)).min(RECONNECT_MAX);
    whole.mul_f64(0.5 + 0.5 * f64::from(jitter) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnects_are_quick_spread_and_never_far_apart() {
        assert!(reconnect_delay(1, u32::MAX) <= Duration::from_millis(20));
        for attempts in 0..100 {
            assert!(reconnect_delay(attempts, 0) < reconnect_delay(attempts, u32::MAX));
            assert!(reconnect_delay(attempts, u32::MAX) <= RECONNECT_MAX);
        }
    }
}
