//! Revocations: of an identity, of an unrecorded key, of all keys before a time, and revocations of
//! servers that this directory lacks.
//!
//! **Promises** that a revocation is never taken back: a key stays revoked until its token has
//! ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use berth_domain::Timestamp;

use super::Directory;
use super::identities::is_forgotten;
use crate::error::AccessError;
use crate::files;
use crate::install::ServerAccounts;
use crate::jwt::{AccountToken, Lineage, fingerprint};
use crate::key::{KeyKind, is_user_key};
use crate::record::{IdentityRecord, KeyRecord, KeyState};

/// Most earlier tokens that a new one names. A host with older files refuses the new ones until the
/// directory has adopted the host's.
const AFTER_MAX: usize = 4096;

/// Which keys of an identity are revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichKeys {
    /// All keys, so that the identity is shut out.
    All,
    /// The keys that newer ones have replaced.
    Replaced,
}

/// What a revocation has changed.
#[derive(Debug, Clone)]
pub struct RevokedKeys {
    /// The identity; the key if it is not recorded.
    pub name: String,
    /// The recorded public keys that were revoked by this.
    pub keys: Vec<String>,
    /// The files that the servers must load: the same text, one file for each host.
    pub files: Vec<PathBuf>,
}

/// What was taken over from the files of servers.
#[derive(Debug, Clone)]
pub struct AdoptedFiles {
    /// The identities that these files shut out and this directory did not, and keys of identities
    /// that it does not know.
    pub revoked: Vec<String>,
    /// Everything that was issued before this time is shut out.
    pub all_before: Option<Timestamp>,
    /// The serial of the files that were written.
    pub serial: u64,
    /// The files that the servers must load.
    pub files: Vec<PathBuf>,
}

impl Directory {
    /// Revokes keys of an identity, or an unrecorded key. Servers refuse them once they have loaded
    /// the files.
    pub fn revoke(
        &mut self,
        name: &str,
        which: WhichKeys,
        at: Timestamp,
    ) -> Result<RevokedKeys, AccessError> {
        let _lock = self.lock()?;
        let (name, keys) = match self.find(name) {
            Ok(record) => {
                let count = match which {
                    WhichKeys::All => record.keys.len(),
                    WhichKeys::Replaced => record.keys.len().saturating_sub(1),
                };
                let name = record.name.clone();
                let due: Vec<String> =
                    record.keys.iter().take(count).map(|key| key.public.clone()).collect();
                (
                    name,
                    self.mark_revoked(record, at, |key| due.contains(&key.public).then_some(at))?,
                )
            }
            Err(AccessError::NoIdentity(key)) if which == WhichKeys::All && is_user_key(&key) => {
                let is_new = self.record.revoked.insert(key.clone(), at).is_none();
                (key.clone(), if is_new { vec![key] } else { Vec::new() })
            }
            Err(error) => return Err(error),
        };
        // Written even if no key was revoked, because an earlier run may have ended before this.
        Ok(RevokedKeys { name, keys, files: self.renew_servers(at)? })
    }

    /// Revokes every key whose token was issued before this time, also unrecorded keys. Tokens
    /// count whole seconds.
    pub fn revoke_all_before(
        &mut self,
        before: Timestamp,
        at: Timestamp,
    ) -> Result<RevokedKeys, AccessError> {
        let _lock = self.lock()?;
        let before_s = Timestamp::from_unix_ms(before.unix_ms() / 1000 * 1000);
        let all_before = self.record.all_before.max(Some(before_s));
        self.record.all_before = all_before;
        let keys = self.mark_all(&BTreeMap::new(), all_before, at)?;
        let name = "*".to_owned();
        let keys = keys.into_iter().flat_map(|(_, keys)| keys).collect();
        Ok(RevokedKeys { name, keys, files: self.renew_servers(at)? })
    }

    /// Takes over the files of servers, which come from a later state of this directory that was
    /// lost: their revocations, and their place in the order. After that, the next files may
    /// replace them.
    pub fn adopt(
        &mut self,
        accounts: &[ServerAccounts],
        at: Timestamp,
    ) -> Result<AdoptedFiles, AccessError> {
        let _lock = self.lock()?;
        let (operator, account) = (
            self.key("operator", KeyKind::Operator)?.public(),
            self.key("account", KeyKind::Account)?.public(),
        );
        if let Some(other) = accounts.iter().find(|file| !file.is_of_fleet(&operator, &account)) {
            return Err(AccessError::OtherFleet { path: other.path.clone() });
        }
        let mut revoked: BTreeMap<String, Timestamp> = BTreeMap::new();
        let known_keys: BTreeSet<String> = self
            .identities()?
            .into_iter()
            .flat_map(|identity| identity.keys)
            .map(|key| key.public)
            .chain(self.record.revoked.keys().cloned())
            .collect();
        let mut names = Vec::new();
        for file in accounts {
            let revocations = file.claims.revocations();
            self.record.all_before = self.record.all_before.max(revocations.all_before);
            for (key, since) in revocations.keys {
                let latest = revoked.entry(key).or_insert(since);
                *latest = since.max(*latest);
            }
            let lineage = &mut self.record.lineage;
            lineage.serial = lineage.serial.max(file.claims.berth.serial);
            let earlier = file.claims.berth.after.iter().cloned();
            remember(lineage, earlier.chain([file.fingerprint()]));
        }
        for (key, since) in revoked.iter().filter(|(key, _)| !known_keys.contains(*key)) {
            self.record.revoked.insert(key.clone(), *since);
            names.push(key.clone());
        }
        let all_before = self.record.all_before;
        let marked = self.mark_all(&revoked, all_before, at)?;
        names.extend(marked.into_iter().filter(|(_, keys)| !keys.is_empty()).map(|(name, _)| name));
        let files = self.renew_servers(at)?;
        let serial = self.record.lineage.serial;
        Ok(AdoptedFiles { revoked: names, all_before, serial, files })
    }

    /// Marks these keys as revoked in the records of their identities, and all keys that were
    /// issued before that time. Returns the newly revoked keys, by identity.
    fn mark_all(
        &mut self,
        keys: &BTreeMap<String, Timestamp>,
        all_before: Option<Timestamp>,
        at: Timestamp,
    ) -> Result<Vec<(String, Vec<String>)>, AccessError> {
        let mut marked = Vec::new();
        for record in self.identities()? {
            let name = record.name.clone();
            let keys = self.mark_revoked(record, at, |key| {
                // A token has the second of its issue.
                let is_before =
                    |all: &Timestamp| key.issued.unix_ms() / 1000 < all.unix_ms() / 1000;
                keys.get(&key.public).copied().max(all_before.filter(is_before))
            })?;
            marked.push((name, keys));
        }
        Ok(marked)
    }

    /// Marks keys of an identity as revoked, each at the time that `find_time` returns. Returns the
    /// newly revoked keys.
    fn mark_revoked(
        &self,
        mut record: IdentityRecord,
        at: Timestamp,
        find_time: impl Fn(&KeyRecord) -> Option<Timestamp>,
    ) -> Result<Vec<String>, AccessError> {
        let mut keys = Vec::new();
        for key in record.keys.iter_mut().filter(|key| key.revoked.is_none()) {
            let Some(since) = find_time(key) else { continue };
            // Servers refuse tokens that were issued up to this time. The clock may have been set
            // back since the issue.
            key.revoked = Some(since.max(key.issued));
            keys.push(key.public.clone());
        }
        if !keys.is_empty() {
            self.save_identity(&record)?;
        }
        if record.newest_key().is_some_and(|key| key.state(at) == KeyState::Revoked) {
            files::remove(&self.creds_path(&record.name))?;
        }
        Ok(keys)
    }

    /// Signs the token of Berth's account, which lists the revoked keys and names the token before
    /// it.
    pub(super) fn sign_account(&mut self, at: Timestamp) -> Result<(), AccessError> {
        let operator = self.key("operator", KeyKind::Operator)?;
        let public = self.key("account", KeyKind::Account)?.public();
        let keys = self.identities()?.into_iter().flat_map(|identity| identity.keys);
        let keys = keys.filter(|key| !is_forgotten(key, at));
        let mut revoked = self.record.revoked.clone();
        revoked.extend(keys.filter_map(|key| Some((key.public, key.revoked?))));
        if self.path().join("account.jwt").exists() {
            let before = fingerprint(&self.read("account.jwt")?);
            remember(&mut self.record.lineage, [before]);
        }
        self.record.lineage.serial += 1;
        // Recorded first, so that no serial is used twice, whatever happens next.
        self.save_record()?;
        let token = AccountToken {
            name: "berth",
            public: &public,
            jetstream: true,
            revoked,
            all_before: self.record.all_before,
            lineage: Some(&self.record.lineage),
        };
        self.write("account.jwt", &token.sign(&operator, at)?)
    }
}

/// Adds fingerprints to those of the tokens that the next one follows.
fn remember(lineage: &mut Lineage, earlier: impl IntoIterator<Item = String>) {
    for fingerprint in earlier {
        if !lineage.after.contains(&fingerprint) {
            lineage.after.push(fingerprint);
        }
    }
    let beyond = lineage.after.len().saturating_sub(AFTER_MAX);
    lineage.after.drain(..beyond);
}
