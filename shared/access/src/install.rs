//! Installs a server's files on its host.
//!
//! **Promises** that files replace only files that they follow. So a directory of identities that
//! was restored from a backup cannot let in again an identity that the host shuts out: it must
//! [adopt](crate::Directory::adopt) the host's files first.
//!
//! **Never** decides by clocks or serials: two states of a directory may have the same ones.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::AccessError;
use crate::files::{self, FileWriter};
use crate::jwt::{TokenClaims, fingerprint, read_token};

/// The file with the accounts that a server lets in.
pub const ACCOUNTS: &str = "accounts.conf";
/// The files of a server. The last one to be written names the files that this set follows.
const FILES: [&str; 5] = ["ca.pem", "host.conf", "server.pem", "server.key", ACCOUNTS];

/// The content of an `accounts.conf`.
#[derive(Debug, Clone)]
pub struct ServerAccounts {
    /// The file.
    pub path: PathBuf,
    /// The token of Berth's account.
    pub token: String,
    /// The token's claims, whose signature was checked.
    pub claims: TokenClaims,
}

/// The result of an installation.
#[derive(Debug, Clone)]
pub struct InstalledFiles {
    /// The serial of the files that were there; `None` if there were none.
    pub before: Option<u64>,
    /// The serial of the files that are there now.
    pub serial: u64,
    /// The files that were written.
    pub files: Vec<PathBuf>,
}

impl ServerAccounts {
    /// Reads a file that `berth access` wrote.
    pub fn read(path: &Path) -> Result<Self, AccessError> {
        let no_accounts = || AccessError::NoAccounts { path: path.to_owned() };
        let text = files::read(path)?;
        let value = |line: &str| Some(line.split_once(": \"")?.1.strip_suffix('"')?.to_owned());
        let tokens = text.lines().filter_map(value);
        let mut accounts =
            tokens.filter_map(|token| read_token(&token).ok().map(|claims| (token, claims)));
        let (token, claims) =
            accounts.find(|(_, claims)| is_accounts(claims)).ok_or_else(no_accounts)?;
        Ok(Self { path: path.to_owned(), token, claims })
    }

    /// Whether the keys of this fleet signed it.
    pub fn is_of_fleet(&self, operator: &str, account: &str) -> bool {
        self.claims.issuer == operator && self.claims.subject == account
    }

    /// The short name of its token.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.token)
    }

    /// Whether it is the same as the other one, or follows it.
    fn is_after(&self, other: &Self) -> bool {
        self.token == other.token || self.claims.berth.after.contains(&other.fingerprint())
    }
}

/// Whether the token is of Berth's account, and not of the operator or the system account.
fn is_accounts(claims: &TokenClaims) -> bool {
    claims.name == "berth" && claims.nats["type"] == "account"
}

/// Copies the files of `servers/HOST/` into the directory that the host's server reads. They get
/// the owner of that directory.
pub fn install(from: &Path, to: &Path) -> Result<InstalledFiles, AccessError> {
    let new = ServerAccounts::read(&from.join(ACCOUNTS))?;
    let no_place = |source| AccessError::NoPlace { path: to.to_owned(), source };
    let target = fs::metadata(to).map_err(no_place)?;
    let before = match ServerAccounts::read(&to.join(ACCOUNTS)) {
        Ok(installed) => Some(installed),
        Err(AccessError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(before) = &before {
        if !before.is_of_fleet(&new.claims.issuer, &new.claims.subject) {
            return Err(AccessError::OtherFleet { path: before.path.clone() });
        }
        if !new.is_after(before) {
            return Err(AccessError::NotAfter {
                installed: before.path.clone(),
                serial: before.claims.berth.serial,
                new: new.path,
                new_serial: new.claims.berth.serial,
            });
        }
    }
    let texts = FILES.map(|name| files::read(&from.join(name)).map(|text| (to.join(name), text)));
    let writer = FileWriter { synced: true, owner: Some((target.uid(), target.gid())) };
    let mut written = Vec::new();
    for (path, text) in texts.into_iter().collect::<Result<Vec<_>, _>>()? {
        writer.replace(&path, &text)?;
        written.push(path);
    }
    let before = before.map(|before| before.claims.berth.serial);
    Ok(InstalledFiles { before, serial: new.claims.berth.serial, files: written })
}
