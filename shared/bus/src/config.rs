//! How to reach the bus, as a value.
//!
//! **Never** shows a password or a seed: not in `Debug`, and not with an address that holds one.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Who we are to the server. Its `Debug` shows no secret.
#[derive(Clone, Default)]
pub enum Credentials {
    /// An open server, as in development.
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
    /// The servers, such as `nats://127.0.0.1:4222`, one each or several with commas between;
    /// others of the cluster are learned from them.
    pub servers: Vec<String>,
    /// `service/host/pid`, as `nats server report connections` shows it.
    pub name: String,
    /// Who we are.
    pub credentials: Credentials,
    /// What the subjects of our inboxes begin with; `_INBOX` when none is given. With permissions
    /// per service each has its own, so that nobody can listen to another's answers.
    pub inbox_prefix: Option<String>,
    /// How long the first connection, or the opening of a bucket, may take: a cluster of three
    /// needs 10 to 12 s from its start until it makes a stream.
    pub start_timeout: Duration,
    /// How long one exchange with the server may take before it counts as lost.
    pub request_timeout: Duration,
    /// So many writes of a bucket go alone at once; what comes beyond them is stored in one step.
    /// On one server a step of many costs three syncs and its staging, as much as 30 writes; on
    /// three, writes that go alone travel together anyway (both measured).
    pub alone_max: usize,
    /// How long a write is pursued in all, lost acknowledgements and elections (4 to 9 s) included.
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

    /// The addresses for people, without what stands before an `@`.
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
