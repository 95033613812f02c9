//! The servers of a fleet: their configuration, their certificates, the authorities.

use std::path::{Path, PathBuf};

use berth_domain::Timestamp;

use super::Directory;
use super::server_files::{FilePlace, check_servers};
use crate::error::AccessError;
use crate::files;
use crate::host::Host;
use crate::key::KeyKind;
use crate::record::{AuthorityRecord, ServerRecord};
use crate::servers::{ServerFiles, TrustedTokens, format_host_config};
use crate::tls::Authority;

/// The names of a server's own host, which programs on the host use: in every certificate.
const OWN_HOST: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Authorities that are not trusted any more.
#[derive(Debug, Clone)]
pub struct RetiredAuthorities {
    /// Their names.
    pub names: Vec<String>,
}

impl Directory {
    /// Issues new certificates with new keys for these servers; for all servers if none is given.
    /// From now on certificates of these servers are also for the names in `also`.
    pub fn certify(
        &mut self,
        hosts: &[Host],
        also: &[Host],
        at: Timestamp,
    ) -> Result<Vec<ServerRecord>, AccessError> {
        let _lock = self.lock()?;
        let known: Vec<Host> =
            self.record.servers.iter().map(|server| server.host.clone()).collect();
        let names = |hosts: Vec<&Host>| hosts.into_iter().map(Host::to_string).collect::<Vec<_>>();
        let unknown: Vec<&Host> = hosts.iter().filter(|host| !known.contains(host)).collect();
        if !unknown.is_empty() {
            let servers = names(known.iter().collect());
            return Err(AccessError::NoServer { unknown: names(unknown), servers });
        }
        let mut certified = Vec::new();
        for index in 0..self.record.servers.len() {
            let mut server = self.record.servers[index].clone();
            if !hosts.is_empty() && !hosts.contains(&server.host) {
                continue;
            }
            let added =
                also.iter().filter(|name| !server.also.contains(name) && **name != server.host);
            let added: Vec<Host> = added.cloned().collect();
            server.also.extend(added);
            self.issue_certificate(&mut server, at)?;
            self.record.servers[index] = server.clone();
            certified.push(server);
        }
        self.renew_servers(at)?;
        Ok(certified)
    }

    /// Adds servers to the fleet, with certificates, and writes the routes of all.
    pub fn add_servers(&mut self, hosts: &[Host], at: Timestamp) -> Result<(), AccessError> {
        let _lock = self.lock()?;
        let servers = self.record.servers.iter().map(|server| server.host.clone());
        let all_servers: Vec<Host> = servers.chain(hosts.iter().cloned()).collect();
        let place = match &self.record.installed {
            Some(at) => FilePlace::Installed(PathBuf::from(at)),
            None => FilePlace::InDirectory,
        };
        check_servers(&all_servers, &place)?;
        self.add_server_records(hosts, at)?;
        self.renew_servers(at)?;
        Ok(())
    }

    /// Adds servers, with certificates.
    pub(super) fn add_server_records(
        &mut self,
        hosts: &[Host],
        at: Timestamp,
    ) -> Result<(), AccessError> {
        for host in hosts {
            let mut server = ServerRecord {
                host: host.clone(),
                also: Vec::new(),
                authority: 0,
                issued: at,
                expires: at,
            };
            files::make_dir(&self.server_dir(host))?;
            self.issue_certificate(&mut server, at)?;
            self.record.servers.push(server);
        }
        Ok(())
    }

    /// Makes another authority, which issues certificates from now on, and writes a trust file with
    /// all of them. The servers keep their certificates.
    pub fn add_authority(&mut self, at: Timestamp) -> Result<AuthorityRecord, AccessError> {
        let _lock = self.lock()?;
        let authority = self.make_authority(at)?;
        self.renew_servers(at)?;
        Ok(authority)
    }

    /// Ends the trust in all authorities but the newest.
    pub fn retire_authorities(&mut self, at: Timestamp) -> Result<RetiredAuthorities, AccessError> {
        let _lock = self.lock()?;
        let Some((newest, older)) = self.record.authorities.split_last() else {
            return Err(AccessError::LastAuthority);
        };
        if older.is_empty() {
            return Err(AccessError::LastAuthority);
        }
        let behind = self.record.servers.iter().filter(|server| server.authority != newest.number);
        let behind: Vec<String> = behind.map(|server| server.host.to_string()).collect();
        if !behind.is_empty() {
            return Err(AccessError::AuthorityInUse(behind));
        }
        let (newest, older) = (newest.clone(), older.to_vec());
        self.record.authorities = vec![newest];
        self.write_trust()?;
        self.renew_servers(at)?;
        for authority in &older {
            files::remove(&self.path().join(format!("authority/{}.key", authority.number)))?;
            files::remove(&self.path().join(format!("authority/{}.pem", authority.number)))?;
        }
        Ok(RetiredAuthorities {
            names: older.into_iter().map(|authority| authority.name).collect(),
        })
    }

    /// The tokens that servers of this fleet trust.
    pub fn tokens(&self) -> Result<TrustedTokens, AccessError> {
        let account = |name: &str| {
            let public = self.key(name, KeyKind::Account)?.public();
            Ok::<_, AccessError>((public, self.read(&format!("{name}.jwt"))?))
        };
        Ok(TrustedTokens {
            serial: self.record.lineage.serial,
            operator: self.read("operator.jwt")?,
            system: account("system")?,
            account: account("account")?,
        })
    }

    /// The directory with the files of this server.
    pub fn server_dir(&self, host: &Host) -> PathBuf {
        self.path().join("servers").join(host.as_str())
    }

    pub(super) fn make_authority(&mut self, at: Timestamp) -> Result<AuthorityRecord, AccessError> {
        let number = self.record.authorities.last().map_or(1, |last| last.number + 1);
        // Two authorities with the same name would be confused with each other. The account's key
        // makes the name unique to this fleet.
        let fleet = self.key("account", KeyKind::Account)?.public();
        let name = format!("Berth authority {number} of {}", &fleet[..fleet.len().min(12)]);
        let (_, pem) = Authority::make(&name, at)?;
        self.write(&format!("authority/{number}.key"), &pem.key)?;
        self.write(&format!("authority/{number}.pem"), &pem.certificate)?;
        let record = AuthorityRecord { number, name, expires: pem.expires };
        self.record.authorities.push(record.clone());
        self.write_trust()?;
        Ok(record)
    }

    fn write_trust(&self) -> Result<(), AccessError> {
        let mut trusted = String::new();
        for authority in &self.record.authorities {
            let pem =
                files::read(&self.path().join(format!("authority/{}.pem", authority.number)))?;
            trusted += &pem;
        }
        self.write("ca.pem", &trusted)
    }

    /// Writes a server's certificate and key, of the newest authority.
    fn issue_certificate(
        &self,
        server: &mut ServerRecord,
        at: Timestamp,
    ) -> Result<(), AccessError> {
        let authority = self.record.authorities.last().ok_or(AccessError::LastAuthority)?;
        let key = files::read(&self.path().join(format!("authority/{}.key", authority.number)))?;
        let own = OWN_HOST.iter().filter_map(|host| Host::parse(host).ok());
        let mut hosts = vec![server.host.clone()];
        for host in server.also.iter().cloned().chain(own) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        let pem = Authority::load(&authority.name, &key)?.certify(&hosts, at)?;
        let dir = self.server_dir(&server.host);
        self.writer.replace(&dir.join("server.pem"), &pem.certificate)?;
        self.writer.replace(&dir.join("server.key"), &pem.key)?;
        server.authority = authority.number;
        server.issued = at;
        server.expires = pem.expires;
        Ok(())
    }

    /// Ends each change of the servers' files: signs the account's token, which names the tokens
    /// that it follows, and writes the files. Returns the files that a revocation changes.
    pub(super) fn renew_servers(&mut self, at: Timestamp) -> Result<Vec<PathBuf>, AccessError> {
        self.sign_account(at)?;
        let place = files::absolute(self.path())?;
        self.write_servers(&place)
    }

    /// Writes the configuration and the trust file of each server. `place` is the final path of the
    /// directory.
    pub(super) fn write_servers(&self, place: &Path) -> Result<Vec<PathBuf>, AccessError> {
        let accounts = self.tokens()?.format();
        let trusted = files::read(&self.ca())?;
        let fleet: Vec<Host> =
            self.record.servers.iter().map(|server| server.host.clone()).collect();
        let mut written = Vec::new();
        for host in &fleet {
            let dir = self.server_dir(host);
            let reads_at = match &self.record.installed {
                Some(installed) => PathBuf::from(installed),
                None => place.join("servers").join(host.as_str()),
            };
            let config = format_host_config(host, &fleet, &ServerFiles(&reads_at));
            self.writer.replace(&dir.join("host.conf"), &config)?;
            self.writer.replace(&dir.join("ca.pem"), &trusted)?;
            let path = dir.join("accounts.conf");
            self.writer.replace(&path, &accounts)?;
            written.push(path);
        }
        Ok(written)
    }
}
