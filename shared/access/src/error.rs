//! Errors of the work on a directory of identities.
//!
//! **Promises** that each error names the file or the identity, and the next thing to try.
//!
//! **Never** contains a seed.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the work on a directory of identities failed.
#[derive(Debug, Error)]
pub enum AccessError {
    /// A file or directory could not be read or written.
    #[error("{} cannot be {doing}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What was tried: `read`, `written`.
        doing: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The directory that is to be made exists and is not empty.
    #[error("{} exists and is not empty", .0.display())]
    DirectoryExists(PathBuf),
    /// There is no directory of identities at this path.
    #[error("{} is no directory of identities: it has no directory.json", .0.display())]
    NoDirectory(PathBuf),
    /// A later version of Berth made the directory.
    #[error("{} has version {version}; this program knows versions up to {known}", path.display())]
    NewerDirectory {
        /// The file with the version.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// Another process changes the directory at this moment.
    #[error("another process is working in {}", .0.display())]
    DirectoryInUse(PathBuf),
    /// A file does not contain what it should.
    #[error("{} is damaged: {problem}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An identity of this name exists.
    #[error("the identity {name} exists: {}", creds.display())]
    IdentityExists {
        /// Its name.
        name: String,
        /// Its `.creds` file.
        creds: PathBuf,
    },
    /// Another identity is the same sender on the bus.
    #[error("the identity {name} cannot be made: {other} is already {actor} on the bus")]
    ActorTaken {
        /// The identity that was to be made.
        name: String,
        /// The identity that exists.
        other: String,
        /// The actor of both, at the end of the subjects that they send to.
        actor: String,
    },
    /// The identity has been shut out.
    #[error("the identity {0} is revoked")]
    IdentityRevoked(String),
    /// No identity has this name.
    #[error("there is no identity {0}")]
    NoIdentity(String),
    /// Several identities have this name, each with another role.
    #[error("{name} may be any of: {}", names.join(", "))]
    Ambiguous {
        /// The name that was given.
        name: String,
        /// The full names.
        names: Vec<String>,
    },
    /// These hosts are no servers of the fleet.
    #[error("no servers of this fleet: {}", unknown.join(", "))]
    NoServer {
        /// The hosts that were given.
        unknown: Vec<String>,
        /// The fleet's servers.
        servers: Vec<String>,
    },
    /// The list of servers cannot be used.
    #[error("{0}")]
    BadServers(String),
    /// The only authority cannot be retired.
    #[error("there is one authority only, and servers and clients need it")]
    LastAuthority,
    /// Certificates of these servers are of an authority that is to be retired.
    #[error("the certificates of these servers are of an older authority: {}", .0.join(", "))]
    AuthorityInUse(Vec<String>),
    /// A file is none that servers read whom to let in from.
    #[error(
        "{} has no token of Berth's account: it is no accounts.conf of `berth access`",
        path.display()
    )]
    NoAccounts {
        /// The file.
        path: PathBuf,
    },
    /// The directory of a server's files is not there.
    #[error("{} cannot be used: {source}", path.display())]
    NoPlace {
        /// The directory.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Files are of other keys than the directory's, or than the new ones'.
    #[error("{} is of another fleet: other keys signed it", path.display())]
    OtherFleet {
        /// The file.
        path: PathBuf,
    },
    /// Files would replace others that they do not come after.
    #[error(
        "{} (serial {new_serial}) does not come after {} (serial {serial}), and may let in again \
         whom that shuts out: its directory of identities was set back",
        new.display(), installed.display()
    )]
    NotAfter {
        /// The host's file.
        installed: PathBuf,
        /// Its serial; 0 if a version before serials wrote it.
        serial: u64,
        /// The file that was to replace it.
        new: PathBuf,
        /// Its serial.
        new_serial: u64,
    },
    /// A key could not be made or used.
    #[error("the key cannot be used: {0}")]
    Key(String),
    /// A certificate could not be made.
    #[error("the certificate cannot be made: {0}")]
    Certificate(String),
}

impl AccessError {
    /// The next thing to try, in one or more lines.
    pub fn next(&self) -> String {
        match self {
            Self::File { doing: "read", .. } => {
                "run this as the owner of the directory, or name another with --dir".to_owned()
            }
            Self::File { .. } => "name a directory that you may write with --dir".to_owned(),
            Self::DirectoryExists(_) => {
                "name another directory with --dir: keys in use must not be lost".to_owned()
            }
            Self::NoDirectory(_) => "name the directory with --dir, or make one: \
                                     berth access init --servers HOST,…"
                .to_owned(),
            Self::NewerDirectory { .. } => "use the newer `berth` for this directory".to_owned(),
            Self::DirectoryInUse(_) => "try again when it has ended".to_owned(),
            Self::Damaged { .. } => "restore the directory from its backup".to_owned(),
            Self::IdentityExists { name, .. } => format!(
                "use the file; or give it a new key: `berth access rotate {name}`; \
                 or repeat this with --replace, for a new key with other rights"
            ),
            Self::ActorTaken { other, .. } => format!(
                "choose another name; or shut that one out first: `berth access revoke {other}`"
            ),
            Self::IdentityRevoked(_) => {
                "to let it in again, make it anew by its own command with --replace".to_owned()
            }
            Self::NoIdentity(_) => "see the names: `berth access list`; an identity that this \
                                    directory does not know is revoked by its public key (U…)"
                .to_owned(),
            Self::Ambiguous { .. } => "give the full name".to_owned(),
            Self::NoServer { servers, .. } => format!(
                "name servers of the fleet ({}), or add new ones with --add",
                servers.join(", ")
            ),
            Self::BadServers(_) => {
                "name one or three hosts as the fleet reaches them, such as n1.example".to_owned()
            }
            Self::LastAuthority => {
                "make the next one first: berth access certify --authority".to_owned()
            }
            Self::AuthorityInUse(hosts) => {
                format!("issue new ones first: berth access certify {}", hosts.join(" "))
            }
            Self::NoAccounts { .. } => {
                "name the accounts.conf of a server, or the directory servers/HOST/ with it"
                    .to_owned()
            }
            Self::NoPlace { path, .. } => format!(
                "make it, for the user of nats-server: install -d -o berth -g berth -m 0700 {}",
                path.display()
            ),
            Self::OtherFleet { path } => format!(
                "use the files of this fleet's own directory; to give the server to a new fleet, \
                 remove {} first",
                path.display()
            ),
            Self::NotAfter { installed, .. } => format!(
                "copy {} to the machine with the directory of identities, and there: \
                 `berth access adopt accounts.conf`. Then install what that writes",
                installed.display()
            ),
            Self::Key(_) | Self::Certificate(_) => {
                "try again; if it stays so, report it".to_owned()
            }
        }
    }
}
