//! How to reach the bus, as a value.
//!
//! **Never** shows a password or a seed: not in `Debug`, and not with an address that holds one.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How the process authenticates to nats-server. Its `Debug` shows no secret.
#[derive(Clone, Default)]
pub enum Credentials {
    /// No authentication, as in development.
    #[default]
    None,
    /// The seed of an nkey in a file; the seed never leaves this process.
    NkeySeedFile(PathBuf),
    /// A user and a password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::NkeySeedFile(path) => f.debug_tuple("NkeySeedFile").field(path).finish(),
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
        }
    }
}

/// How to reach the bus, and how long to wait for it. Its `Debug` shows no secret.
#[derive(Clone)]
pub struct Config {
    /// The servers, such as `nats://127.0.0.1:4222`. An entry may hold several, separated by
    /// commas. The client learns the cluster's other servers from them.
    pub servers: Vec<String>,
    /// `service/host/pid`, as `nats server report connections` shows it.
    pub name: String,
    /// How the process authenticates.
    pub credentials: Credentials,
    /// Prefix of the inbox subjects; `_INBOX` if none is given. With permissions per service each
    /// service has its own prefix, so that no service can read another service's responses.
    pub inbox_prefix: Option<String>,
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
    /// The defaults: no credentials; 30 s to start, 2 s for one exchange, 12 s for a write.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, name: &str) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            name: name.to_owned(),
            credentials: Credentials::None,
            inbox_prefix: None,
            start_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(2),
            alone_max: 32,
            commit_timeout: Duration::from_secs(12),
        }
    }

    /// Each server's address.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        self.servers.iter().flat_map(|some| some.split(',')).collect()
    }

    /// The addresses for people, without the credentials before an `@`.
    pub(crate) fn shown(&self) -> String {
        let bare = |server: &str| match (server.find("://"), server.rfind('@')) {
            (Some(scheme), Some(at)) if at > scheme => {
                format!("{}{}", &server[..scheme + 3], &server[at + 1..])
            }
            (None, Some(at)) => server[at + 1..].to_owned(),
            _ => server.to_owned(),
        };
        self.addresses().into_iter().map(bare).collect::<Vec<_>>().join(", ")
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
