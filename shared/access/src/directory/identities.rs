//! Makes and finds identities.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::token;
use berth_domain::Timestamp;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha512_256};

use super::{CLOCK_MARGIN, Directory, read_json};
use crate::creds::{format_creds, inbox_prefix};
use crate::error::AccessError;
use crate::files;
use crate::jwt::UserToken;
use crate::key::{Key, KeyKind};
use crate::record::{IdentityRecord, KeyRecord};
use berth_contract::permissions::derive_permissions;
use berth_contract::role::{Role, SERVICES};

/// An identity that is to be made.
#[derive(Debug, Clone)]
pub struct NewIdentity<'a> {
    /// Its role.
    pub role: Role,
    /// The name of a service's identity, where a service has several.
    pub service: Option<&'a str>,
    /// How long its token is valid; for ever if not given.
    pub valid_for: Option<Duration>,
    /// Whether an existing identity of this name gets a new key. Servers accept the earlier key
    /// until it is revoked or has expired.
    pub replace: bool,
}

impl NewIdentity<'_> {
    /// An identity of this role, valid for ever.
    pub fn of_role(role: Role) -> Self {
        Self { role, service: None, valid_for: None, replace: false }
    }
}

/// An identity that was made.
#[derive(Debug, Clone)]
pub struct IssuedIdentity {
    /// What is on record.
    pub record: IdentityRecord,
    /// The file to hand out.
    pub creds: PathBuf,
}

/// The longest name of a file before its extension, in bytes.
const STEM_BYTES_MAX: usize = 200;

/// The name of an identity's files, without extension.
fn file_stem(name: &str) -> String {
    let stem = token::encode(name).replacen('/', "-", 1).replace('/', "=2F");
    if stem.len() <= STEM_BYTES_MAX {
        return stem;
    }
    let hash = HEXLOWER.encode(&Sha512_256::digest(name)[..16]);
    format!("{}.{hash}", &stem[..STEM_BYTES_MAX - hash.len() - 1])
}

impl Directory {
    /// Makes an identity: its key and its token.
    pub fn issue(
        &mut self,
        new: &NewIdentity<'_>,
        at: Timestamp,
    ) -> Result<IssuedIdentity, AccessError> {
        let _lock = self.lock()?;
        let name = new.role.identity_name(new.service);
        let creds = self.creds_path(&name);
        let record_path = self.identity_path(&name);
        let mut keys = Vec::new();
        self.check_actor(&name, &new.role, at)?;
        if record_path.exists() {
            if !new.replace {
                return Err(AccessError::IdentityExists { name, creds });
            }
            keys = read_json::<IdentityRecord>(&record_path)?.keys;
            // An expired key cannot be used, so it need not be remembered.
            keys.retain(|key| !is_forgotten(key, at));
        }
        let account = self.key("account", KeyKind::Account)?;
        let key = Key::make(KeyKind::User);
        let public = key.public();
        let expires = new.valid_for.map(|span| at.after(span));
        let permissions = derive_permissions(&new.role).with_inbox(&inbox_prefix(&public));
        let token = UserToken { name: &name, public: &public, permissions, expires };
        let text = format_creds(&token.sign(&account, at)?, &key)?;
        keys.push(KeyRecord { public, issued: at, expires, revoked: None });
        let record = IdentityRecord { name, role: new.role.clone(), keys };
        // Recorded before the key can be used, so that it can be revoked whatever happens next.
        self.save_identity(&record)?;
        self.writer.replace(&creds, &text)?;
        Ok(IssuedIdentity { record, creds })
    }

    /// Gives an identity a new key with the same rights. Servers accept the earlier key until it is
    /// revoked or has expired.
    pub fn rotate(
        &mut self,
        name: &str,
        valid_for: Option<Duration>,
        at: Timestamp,
    ) -> Result<IssuedIdentity, AccessError> {
        let IdentityRecord { name, role, keys } = self.find(name)?;
        if keys.last().is_some_and(|key| key.revoked.is_some()) {
            return Err(AccessError::IdentityRevoked(name));
        }
        let service = name.split_once('/').map(|(_, service)| service);
        self.issue(&NewIdentity { role, service, valid_for, replace: true }, at)
    }

    /// All identities, by name.
    pub fn identities(&self) -> Result<Vec<IdentityRecord>, AccessError> {
        let paths = files::list(&self.path().join("identities"), "json")?;
        let mut records: Vec<IdentityRecord> =
            paths.iter().map(|path| read_json(path)).collect::<Result<_, _>>()?;
        records.sort_by(|first, other| first.name.cmp(&other.name));
        Ok(records)
    }

    /// The identity of this name, or of `…/NAME` when there is only one, or with this public key:
    /// nats-server shows keys.
    pub fn find(&self, name: &str) -> Result<IdentityRecord, AccessError> {
        let path = self.identity_path(name);
        if path.exists() {
            return read_json(&path);
        }
        let mut matches = self.identities()?;
        matches.retain(|identity| {
            identity.name.split_once('/').is_some_and(|(_, rest)| rest == name)
                || identity.keys.iter().any(|key| key.public == name)
        });
        if matches.len() > 1 {
            let names = matches.into_iter().map(|identity| identity.name).collect();
            return Err(AccessError::Ambiguous { name: name.to_owned(), names });
        }
        matches.pop().ok_or_else(|| AccessError::NoIdentity(name.to_owned()))
    }

    /// The path of the `.creds` file of the identity with this full name.
    pub fn creds_path(&self, name: &str) -> PathBuf {
        self.path().join("creds").join(format!("{}.creds", file_stem(name)))
    }

    /// Refuses an identity that would be the same sender as another live identity. An identity may
    /// always get new keys. A service's replicas share its actor by design.
    fn check_actor(&self, name: &str, role: &Role, at: Timestamp) -> Result<(), AccessError> {
        if SERVICES.contains(role) {
            return Ok(());
        }
        let mut live = self.identities()?;
        live.retain(|identity| identity.role.actor() == role.actor() && identity.is_live(at));
        if live.iter().any(|identity| identity.name == name) {
            return Ok(());
        }
        let Some(other) = live.pop() else { return Ok(()) };
        let (name, actor) = (name.to_owned(), role.actor().tokens());
        Err(AccessError::ActorTaken { name, other: other.name, actor })
    }

    pub(super) fn save_identity(&self, record: &IdentityRecord) -> Result<(), AccessError> {
        self.write_json(&relative_identity_path(&record.name), record)
    }

    fn identity_path(&self, name: &str) -> PathBuf {
        self.path().join(Path::new(&relative_identity_path(name)))
    }
}

fn relative_identity_path(name: &str) -> String {
    format!("identities/{}.json", file_stem(name))
}

/// Whether the key's token has expired, also for servers whose clocks are behind.
pub(super) fn is_forgotten(key: &KeyRecord, at: Timestamp) -> bool {
    key.expires.is_some_and(|expires| expires.after(CLOCK_MARGIN) < at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_identity_has_files_of_its_own() {
        assert_eq!(file_stem("claim"), "claim");
        assert_eq!(file_stem("node/n1"), "node-n1");
        assert_eq!(file_stem("node/a/b.c"), "node-a=2Fb=2Ec");
        assert_eq!(file_stem("node/../../x"), "node-=2E=2E=2F=2E=2E=2Fx");
        let long = |last: &str| file_stem(&format!("node/{}{last}", "é".repeat(120)));
        assert_ne!(long("a"), long("b"));
        assert_eq!(long("a").len(), STEM_BYTES_MAX);
    }
}
