//! How to reach the bus, as a value.
//!
//! **Never** shows a password or a seed: not in `Debug`, and not with an address that holds one.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use berth_contract::actor::Actor;

use crate::connection::credentials::{Credentials, take_from_address};

/// How the connection is encrypted. The server's certificate must be of an authority that the host
/// trusts, or of the one that is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that the server's certificate must be of, in PEM.
    pub ca_file: Option<PathBuf>,
    /// The process's own certificate and its key, in PEM, for a server that asks for one.
    pub client: Option<ClientCertificate>,
}

/// The process's own certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate and its chain.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
}

/// How to reach the bus, and how long to wait for it. Its `Debug` shows no secret.
#[derive(Clone)]
pub struct Config {
    /// The servers, such as `nats://127.0.0.1:4222`. An entry may hold several, separated by
    /// commas. The client learns the cluster's other servers from them.
    pub servers: Vec<String>,
    /// `service/host/pid`, as `nats server report connections` shows it.
    pub name: String,
    /// Who sends: it is at the end of the subject of each request and event.
    pub actor: Actor,
    /// How the process authenticates.
    pub credentials: Credentials,
    /// How the connection is encrypted.
    pub tls: Tls,
    /// Whether the process may also connect without credentials and without TLS. Then the actor of
    /// a request is not proved.
    pub insecure: bool,
    /// Timeout of the first connection, and of opening a bucket. A cluster of three needs 10 to 12
    /// s from its start until it makes a stream.
    pub start_timeout: Duration,
    /// How long one exchange with the server may take before it counts as lost.
    pub request_timeout: Duration,
    /// Writes of a bucket that are sent alone at the same time; further writes go in one batch. On
    /// one server a batch costs three disk syncs and its staging, as much as 30 writes. On three
    /// servers single writes are replicated together anyway (both measured).
    pub alone_max: usize,
    /// How long a write is retried in all, through lost acknowledgements and elections (4 to 9 s).
    pub commit_timeout: Duration,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("servers", &self.shown())
            .field("name", &self.name)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// The defaults: the first part of the name as actor, no credentials; 30 s to start, 2 s for
    /// one exchange, 12 s for a write.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, name: &str) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            name: name.to_owned(),
            actor: Actor::user(name.split('/').next().unwrap_or_default()),
            credentials: Credentials::None,
            tls: Tls::default(),
            insecure: false,
            start_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(2),
            alone_max: 32,
            commit_timeout: Duration::from_secs(12),
        }
    }

    /// The same, also without credentials and without TLS.
    #[must_use]
    pub fn insecure(self) -> Self {
        Self { insecure: true, ..self }
    }

    /// Each server's address, and the credentials: those that an address contains, unless others
    /// are given.
    pub(crate) fn reach(&self) -> (Vec<String>, Credentials) {
        let mut credentials = self.credentials.clone();
        let mut bare = Vec::new();
        for address in self.servers.iter().flat_map(|entry| entry.split(',')) {
            let (address, contained) = take_from_address(address);
            if let (Credentials::None, Some(contained)) = (&credentials, contained) {
                credentials = contained;
            }
            bare.push(address);
        }
        (bare, credentials)
    }

    /// Each server's address, without the credentials before an `@`.
    pub fn addresses(&self) -> Vec<String> {
        self.reach().0
    }

    /// The addresses for people.
    pub(crate) fn shown(&self) -> String {
        self.addresses().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_printed() {
        let servers = ["nats://u:secret@h:1,u:secret@h:2", "nats://h:3"];
        let mut config = Config::new(servers, "test");
        assert_eq!(config.shown(), "nats://h:1, h:2, nats://h:3");
        config.credentials =
            Credentials::Password { user: "u".to_owned(), password: "secret".to_owned() };
        assert!(!format!("{config:?}").contains("secret"), "{config:?}");
    }
}
