//! Connecting: one connection per process, kept for as long as the process lives.
//!
//! **Owns** how a service connects and stays connected. The first connection has a deadline, and
//! its error says all that is known. Afterwards the client reconnects for ever, with pauses of at
//! most a second.
//!
//! **Never** prints a password or a seed, nor a server address with one in it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::ConnectOptions;
use berth_domain::retry::Schedule;
use rand::RngExt as _;
use thiserror::Error;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::config::{Config, Credentials};
use crate::handle::Bus;
use crate::link::Link;
use crate::pulse;
use crate::version::{OLDEST, Version};

/// How long one TCP and NATS handshake may take before the next server is tried.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// How often the client itself pings an idle connection; three unanswered pings end it. `pulse`
/// tests a connection in use sooner. A fleet has thousands of idle connections.
const PING_EVERY: Duration = Duration::from_secs(30);
/// The pauses between attempts to reconnect: their jitter spreads a fleet that comes back.
const RECONNECT: Schedule =
    Schedule { first: Duration::from_millis(20), max: Duration::from_secs(1) };

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// No NATS server answered in time, or the server refused the credentials.
    #[error(
        "no connection to nats-server at {servers} within {after:?} (last: {last}); \
         start it, or check the address and credentials"
    )]
    Unreachable {
        /// The addresses, without credentials.
        servers: String,
        /// How long the process tried.
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
    /// The server lacks what Berth needs: TTL per key, guards over a subtree.
    #[error("nats-server {found} is too old; Berth needs {OLDEST} or newer")]
    TooOld {
        /// The server's version.
        found: String,
    },
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
        let bus = Self::new(client, link, config);
        let config = bus.config();
        if !bus.wait_connected(started + config.start_timeout).await {
            return Err(ConnectError::Unreachable {
                servers: config.shown(),
                after: config.start_timeout,
                last: bus.link().last_error().unwrap_or_else(|| "no answer".to_owned()),
            });
        }
        bus.check_version()?;
        tokio::spawn(pulse::watch_pulse(bus.unheld()));
        Ok(bus)
    }

    fn check_version(&self) -> Result<(), ConnectError> {
        let found = self.client().try_server_info().map(|info| info.version).unwrap_or_default();
        // An unreadable version belongs to a custom build: let it try.
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
        .reconnect_delay_callback(|attempts| {
            let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
            RECONNECT.wait(attempts, rand::rng().random())
        })
        .event_callback(move |event| {
            events.record_event(&name, &event);
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
