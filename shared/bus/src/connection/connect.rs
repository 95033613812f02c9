//! Connecting: one connection per process, kept for as long as the process lives.
//!
//! **Owns** how a service connects and stays connected. The first connection has a deadline, and
//! its error says all that is known. Afterwards the client reconnects for ever, with pauses of at
//! most a second.
//!
//! A server that refuses the credentials, or shows a certificate that is not trusted, ends the
//! first connection at once: waiting would not help. Later refusals are logged and retried, since
//! the files are read for each connection.
//!
//! **Never** prints a password or a seed, nor a server address with one in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_nats::ConnectOptions;
use berth_domain::retry::Schedule;
use rand::RngExt as _;
use thiserror::Error;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::connection::config::{Config, Tls};
use crate::connection::credentials::{BadCredentials, Credentials, Identity};
use crate::connection::handle::Bus;
use crate::connection::link::{Link, is_certificate};
use crate::connection::pulse;
use crate::connection::version::{OLDEST, Version};

/// How long one TCP and NATS handshake may take before the client tries the next server.
const HANDSHAKE_MAX: Duration = Duration::from_secs(2);
/// How often the client itself pings an idle connection; three unanswered pings end it. `pulse`
/// tests a connection in use sooner. A fleet has thousands of idle connections.
const PING_EVERY: Duration = Duration::from_secs(30);
/// The pauses between attempts to reconnect. Their jitter spreads the load when a server comes back
/// to many clients.
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
    /// The server does not take the credentials, or is not a server that is trusted.
    #[error("nats-server at {servers} and this process do not accept each other: {reason}")]
    Refused {
        /// The addresses, without credentials.
        servers: String,
        /// Which side refused what, and what to do.
        reason: String,
    },
    /// No credentials were given, and no permission to connect without them.
    #[error(
        "no credentials for nats-server at {servers}: give a .creds file (of `berth access`), \
         or say `insecure` where anyone on the bus may do anything"
    )]
    NoCredentials {
        /// The addresses.
        servers: String,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] BadCredentials),
    /// A file for TLS cannot be read.
    #[error("the {what} file {} cannot be read", path.display())]
    TlsFile {
        /// What the file holds: an authority, a certificate or a key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
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
        let (addresses, credentials) = config.reach();
        let is_anonymous = credentials == Credentials::None && config.tls.client.is_none();
        if is_anonymous && !config.insecure {
            return Err(ConnectError::NoCredentials { servers: config.shown() });
        }
        if config.insecure {
            let (connection, anonymous) = (&config.name, is_anonymous);
            tracing::warn!(
                connection,
                anonymous,
                "insecure: neither credentials nor TLS is required"
            );
        }
        let identity = credentials.identity()?;
        check_tls_files(&config.tls)?;
        let inbox = identity.as_ref().map(Identity::inbox_prefix);
        let link = Arc::new(Link::with_inbox(inbox.as_deref().unwrap_or(CLIENT_INBOX_PREFIX)));
        let started = Instant::now();
        let options = options(credentials.options(), inbox, &config, &link);
        let client = options.connect(addresses).await.map_err(|error| ConnectError::Address {
            servers: config.shown(),
            source: Cause::new(error),
        })?;
        let bus = Self::new(client, link, config);
        let config = bus.config();
        if !bus.wait_connected(started + config.start_timeout).await {
            let servers = config.shown();
            if let Some(refusal) = bus.link().refusal() {
                let reason = explain(&refusal, identity.as_ref());
                return Err(ConnectError::Refused { servers, reason });
            }
            let last = bus.link().last_error().unwrap_or_else(|| "no answer".to_owned());
            let after = config.start_timeout;
            return Err(ConnectError::Unreachable { servers, after, last });
        }
        bus.check_version()?;
        tokio::spawn(pulse::watch_pulse(bus.downgrade()));
        Ok(bus)
    }

    fn check_version(&self) -> Result<(), ConnectError> {
        let found = self.client().try_server_info().map(|info| info.version).unwrap_or_default();
        // An unreadable version belongs to a custom build, which may have what Berth needs.
        match Version::parse(&found) {
            Some(version) if version < OLDEST => Err(ConnectError::TooOld { found }),
            _ => Ok(()),
        }
    }
}

/// The prefix of inboxes that the client uses by default.
const CLIENT_INBOX_PREFIX: &str = "_INBOX";

fn check_tls_files(tls: &Tls) -> Result<(), ConnectError> {
    let check = |what, path: &Path| match std::fs::File::open(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(ConnectError::TlsFile { what, path: path.to_owned(), source }),
    };
    if let Some(authority) = &tls.ca_file {
        check("certificate authority's", authority)?;
    }
    if let Some(client) = &tls.client {
        check("client certificate's", &client.cert_file)?;
        check("client key's", &client.key_file)?;
    }
    Ok(())
}

/// The meaning of a refusal, and how to end it.
fn explain(refusal: &str, identity: Option<&Identity>) -> String {
    if is_certificate(refusal) {
        return explain_certificate(refusal.trim_start_matches("IO error: "));
    }
    let next = if identity.is_some_and(Identity::has_expired) {
        "the credentials have expired, by this host's clock; get new ones"
    } else if identity.is_some() {
        "the credentials are revoked, expired or of another operator; get new ones"
    } else {
        "give credentials that the server knows"
    };
    let name = identity.map(|own| own.name.as_deref().unwrap_or(&own.key));
    let subject = name.map(|name| format!(" for {name}")).unwrap_or_default();
    format!("{refusal}{subject}; {next}")
}

/// The meaning of an untrusted certificate, and how to end it.
fn explain_certificate(refusal: &str) -> String {
    let has = |text: &str| refusal.contains(text);
    let next = if has("expired") || has("not valid yet") {
        "set this host's clock, or renew the server's certificate"
    } else if has("UnknownIssuer") {
        "give the file of the authority that signed it"
    } else if has("not valid for name") {
        "connect by a name or address that it is for"
    } else {
        "check the certificate authority's file, the server's address, and this host's clock"
    };
    format!("{refusal}; {next}")
}

fn options(
    options: ConnectOptions,
    inbox: Option<String>,
    config: &Config,
    link: &Arc<Link>,
) -> ConnectOptions {
    let (events, attempts) = (Arc::clone(link), Arc::clone(link));
    let (name, connection) = (config.name.clone(), config.name.clone());
    let mut options = options
        .name(&config.name)
        .retry_on_initial_connect()
        .max_reconnects(None)
        .connection_timeout(HANDSHAKE_MAX)
        .ping_interval(PING_EVERY)
        .request_timeout(Some(config.request_timeout))
        .require_tls(!config.insecure)
        .reconnect_delay_callback(|attempts| {
            let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
            RECONNECT.wait(attempts, rand::rng().random())
        })
        // Only this callback gets the reason of a failed attempt. It returns the servers unchanged:
        // the client chooses one.
        .reconnect_to_server_callback(move |servers, _| {
            attempts.record_attempts(&connection, &servers);
            std::future::ready(None)
        })
        .event_callback(move |event| {
            events.record_event(&name, &event);
            std::future::ready(())
        });
    if let Some(inbox) = inbox {
        options = options.custom_inbox_prefix(inbox);
    }
    if let Some(authority) = &config.tls.ca_file {
        options = options.add_root_certificates(authority.clone());
    }
    if let Some(client) = &config.tls.client {
        options = options.add_client_certificate(client.cert_file.clone(), client.key_file.clone());
    }
    options
}
