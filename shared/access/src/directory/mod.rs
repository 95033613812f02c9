//! The operator's directory: every key, token, certificate and server configuration of a fleet.
//!
//! **Owns** its layout:
//!
//! ```text
//! directory.json                 the servers and authorities
//! operator.seed  operator.jwt    signs the accounts; signed once
//! system.seed    system.jwt      the system account; signed once
//! account.seed   account.jwt     Berth's account; signed again at each change for servers
//! authority/N.key  N.pem         the TLS authorities
//! ca.pem                         the authorities that everybody trusts
//! identities/NAME.json           who has which keys; no secrets
//! creds/NAME.creds               what is handed out
//! servers/HOST/                  host.conf accounts.conf server.pem server.key ca.pem
//! ```
//!
//! **Promises** that a running nats-server can reload whatever is written here: it accepts no other
//! token of its operator or system account, so these are signed once and kept. A change is made by
//! one process at a time. Each change of the servers' files signs the account's token again, which
//! names those before it: so a host can refuse the files of a directory that was set back
//! ([`crate::install`]).

mod fleet;
mod identities;
mod revocations;
mod server_files;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_domain::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use fleet::RetiredAuthorities;
pub use identities::{IssuedIdentity, NewIdentity};
pub use revocations::{AdoptedFiles, RevokedKeys, WhichKeys};
pub use server_files::FilePlace;

use crate::error::AccessError;
use crate::files::{self, FileWriter};
use crate::host::Host;
use crate::jwt::{AccountToken, sign_operator};
use crate::key::{Key, KeyKind};
use crate::record::{DirectoryRecord, VERSION};
use server_files::check_servers;

/// The file that marks a directory of identities.
const DIRECTORY: &str = "directory.json";
/// How long a change waits for a change of another process.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// A directory of identities.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    writer: FileWriter,
    record: DirectoryRecord,
}

impl Directory {
    /// Makes a directory for a fleet with these servers. It is complete, or there is none.
    pub fn create(
        path: &Path,
        servers: &[Host],
        place: &FilePlace,
        at: Timestamp,
    ) -> Result<Self, AccessError> {
        check_servers(servers, place)?;
        if files::is_occupied(path) {
            return Err(AccessError::DirectoryExists(path.to_owned()));
        }
        let Some(name) = path.file_name() else {
            return Err(AccessError::DirectoryExists(path.to_owned()));
        };
        let mut beside = name.to_owned();
        beside.push(format!(".unfinished-{}", std::process::id()));
        let unfinished = path.with_file_name(beside);
        let installed = match place {
            FilePlace::Installed(at) => Some(at.to_string_lossy().into_owned()),
            FilePlace::InDirectory => None,
        };
        let record = DirectoryRecord { installed, ..DirectoryRecord::default() };
        let writer = FileWriter { synced: *place != FilePlace::InDirectory, owner: None };
        let mut directory = Self { path: unfinished.clone(), writer, record };
        let filled = directory.fill(path, servers, at);
        let filled = filled.and_then(|()| files::put_in_place(&unfinished, path));
        if let Err(error) = filled {
            // The first error matters more than an error of the removal.
            let _ = std::fs::remove_dir_all(&unfinished);
            return Err(error);
        }
        path.clone_into(&mut directory.path);
        Ok(directory)
    }

    fn fill(&mut self, path: &Path, servers: &[Host], at: Timestamp) -> Result<(), AccessError> {
        for name in ["authority", "identities", "creds", "servers"] {
            files::make_dir(&self.path.join(name))?;
        }
        let operator = self.make_key("operator", KeyKind::Operator)?;
        let system = self.make_key("system", KeyKind::Account)?;
        self.make_key("account", KeyKind::Account)?;
        let token = sign_operator("berth", &operator, &system.public(), at)?;
        self.write("operator.jwt", &token)?;
        let public = system.public();
        let token = AccountToken::without_changes("system", &public);
        self.write("system.jwt", &token.sign(&operator, at)?)?;
        self.make_authority(at)?;
        self.add_server_records(servers, at)?;
        self.sign_account(at)?;
        // The configuration names files by their final paths.
        self.write_servers(&files::absolute(path)?)?;
        Ok(())
    }

    /// Opens a directory.
    pub fn open(path: &Path) -> Result<Self, AccessError> {
        let record = load_record(path)?;
        let synced = record.installed.is_some();
        Ok(Self { path: path.to_owned(), writer: FileWriter { synced, owner: None }, record })
    }

    /// The directory on disk.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The servers and authorities.
    pub fn record(&self) -> &DirectoryRecord {
        &self.record
    }

    /// The authorities that clients and servers must trust, in PEM.
    pub fn ca(&self) -> PathBuf {
        self.path.join("ca.pem")
    }

    /// Locks the directory against other processes, and reads the changes that they have made.
    fn lock(&mut self) -> Result<File, AccessError> {
        let lock = files::lock(&self.path.join("lock"), LOCK_PATIENCE)?;
        let lock = lock.ok_or_else(|| AccessError::DirectoryInUse(self.path.clone()))?;
        self.record = load_record(&self.path)?;
        Ok(lock)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), AccessError> {
        self.writer.replace(&self.path.join(name), text)
    }

    fn read(&self, name: &str) -> Result<String, AccessError> {
        Ok(files::read(&self.path.join(name))?.trim().to_owned())
    }

    fn make_key(&self, name: &str, kind: KeyKind) -> Result<Key, AccessError> {
        let key = Key::make(kind);
        self.write(&format!("{name}.seed"), &format!("{}\n", key.seed()?))?;
        Ok(key)
    }

    fn key(&self, name: &str, kind: KeyKind) -> Result<Key, AccessError> {
        let file = format!("{name}.seed");
        let damaged = |error: AccessError| AccessError::Damaged {
            path: self.path.join(&file),
            problem: error.to_string(),
        };
        Key::from_seed(&self.read(&file)?, kind).map_err(damaged)
    }

    fn save_record(&mut self) -> Result<(), AccessError> {
        self.record.version = self.record.needed_version();
        self.write_json(DIRECTORY, &self.record)
    }

    fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), AccessError> {
        let path = self.path.join(name);
        let text = serde_json::to_string_pretty(value);
        let text =
            text.map_err(|error| AccessError::Damaged { path, problem: error.to_string() })?;
        self.write(name, &format!("{text}\n"))
    }
}

fn load_record(path: &Path) -> Result<DirectoryRecord, AccessError> {
    let file = path.join(DIRECTORY);
    if !file.exists() && path.is_dir() || !path.exists() {
        return Err(AccessError::NoDirectory(path.to_owned()));
    }
    let version: VersionOnly = read_json(&file)?;
    if version.version > VERSION {
        let version = version.version;
        return Err(AccessError::NewerDirectory { path: file, version, known: VERSION });
    }
    read_json(&file)
}

#[derive(serde::Deserialize)]
struct VersionOnly {
    version: u32,
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, AccessError> {
    let text = files::read(path)?;
    serde_json::from_str(&text)
        .map_err(|error| AccessError::Damaged { path: path.to_owned(), problem: error.to_string() })
}

/// Added to the end of a token before its revocation is forgotten, because servers' clocks may be
/// behind.
const CLOCK_MARGIN: Duration = Duration::from_secs(24 * 3600);
