//! A fleet of one machine: identities and TLS for `berth dev`, tests and benchmarks.
//!
//! **Promises** that everything is made within milliseconds, and that its servers run with the same
//! form of configuration as those of real hosts, on addresses that their command lines give.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use berth_domain::Timestamp;

use crate::directory::{Directory, FilePlace, NewIdentity, WhichKeys};
use crate::error::AccessError;
use crate::files;
use crate::host::Host;
use crate::install;
use crate::servers::{CLUSTER, ServerFiles, format_include};
use berth_contract::role::Role;

/// The identities, certificates and server configuration of one machine.
#[derive(Debug)]
pub struct LocalFleet {
    path: PathBuf,
    directory: Mutex<Directory>,
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl LocalFleet {
    /// Makes a fleet of servers with these names in a directory, which must be empty or absent.
    pub fn create(path: &Path, servers: &[&str]) -> Result<Self, AccessError> {
        let hosts = servers.iter().map(|name| Host::parse(name).map_err(AccessError::BadServers));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let path = files::absolute(path)?;
        let directory = Directory::create(&path, &hosts, &FilePlace::InDirectory, now())?;
        Ok(Self { path, directory: Mutex::new(directory) })
    }

    /// Opens the fleet that [`Self::create`] made in this directory.
    pub fn open(path: &Path) -> Result<Self, AccessError> {
        let path = files::absolute(path)?;
        let directory = Mutex::new(Directory::open(&path)?);
        Ok(Self { path, directory })
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Text to append to the configuration of this server: identities, TLS, and the cluster's name
    /// and TLS if there are several servers. Addresses and routes come from the command line.
    pub fn server_config(&self, server: &str) -> Result<String, AccessError> {
        self.format_config(server, |directory, _| Ok(directory.tokens()?.format()))
    }

    /// As [`Self::server_config`], for a file in the directory `config`, which is absolute. The
    /// server reads the identities from their own file, so a reload reads them again.
    pub fn server_config_in(&self, config: &Path, server: &str) -> Result<String, AccessError> {
        self.format_config(server, |_, dir| {
            Ok(format_include(config, &dir.join(install::ACCOUNTS)))
        })
    }

    fn format_config(
        &self,
        server: &str,
        format_accounts: impl Fn(&Directory, &Path) -> Result<String, AccessError>,
    ) -> Result<String, AccessError> {
        let directory = self.directory();
        let servers = &directory.record().servers;
        let Some(listed) = servers.iter().find(|listed| listed.host.as_str() == server) else {
            let servers = servers.iter().map(|server| server.host.to_string()).collect();
            return Err(AccessError::NoServer { unknown: vec![server.to_owned()], servers });
        };
        let dir = directory.server_dir(&listed.host);
        let files = ServerFiles(&dir);
        let cluster = if servers.len() > 1 {
            format!("cluster {{\n  name: {CLUSTER}\n{}}}\n", files.format_route_tls())
        } else {
            String::new()
        };
        Ok(format_accounts(&directory, &dir)? + &files.format_client_tls() + &cluster)
    }

    /// The authority that clients must trust, in PEM.
    pub fn ca(&self) -> PathBuf {
        self.path.join("ca.pem")
    }

    /// The `.creds` file of an identity with this role. It is made at the first call, and made
    /// again when the rights of the role have changed.
    pub fn creds(&self, role: &Role) -> Result<PathBuf, AccessError> {
        let mut directory = self.directory();
        let name = role.identity_name(None);
        let path = directory.creds_path(&name);
        let mut new = NewIdentity::of_role(role.clone());
        match directory.find(&name) {
            Ok(record) if record.role == *role && path.exists() => return Ok(path),
            Ok(_) => new.replace = true,
            Err(AccessError::NoIdentity(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(directory.issue(&new, now())?.creds)
    }

    /// Revokes an identity. Servers refuse it when they have read [`Self::server_config`] again.
    pub fn revoke(&self, name: &str) -> Result<(), AccessError> {
        self.directory().revoke(name, WhichKeys::All, now()).map(drop)
    }
}
