//! The records of a directory of identities: JSON files without any secret.
//!
//! **Owns** their form. **Promises** that each key that was handed out is recorded until its token
//! has expired, so that it can be revoked.

use std::collections::BTreeMap;

use berth_domain::Timestamp;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::jwt::Lineage;
use berth_contract::role::Role;

/// The newest version of the directory's form.
pub const VERSION: u32 = 2;

/// The fleet: `directory.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DirectoryRecord {
    /// The version of the form.
    pub version: u32,
    /// The directory in which the servers find their files; `None`: in this directory.
    pub installed: Option<String>,
    /// The servers.
    pub servers: Vec<ServerRecord>,
    /// The TLS authorities that are trusted; the last one issues certificates.
    pub authorities: Vec<AuthorityRecord>,
    /// The place of the account's newest token in the order of its tokens.
    #[serde(default)]
    pub lineage: Lineage,
    /// Revoked keys that no identity of this directory has: made by a later state of it, which was
    /// lost. The ends of their tokens are not known, so they are kept for ever.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revoked: BTreeMap<String, Timestamp>,
    /// Tokens of all identities that were issued before this time are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_before: Option<Timestamp>,
}

impl DirectoryRecord {
    /// The oldest version whose programs may change the directory. Programs of version 1 would
    /// forget the revocations that are in no identity's record.
    pub(crate) fn needed_version(&self) -> u32 {
        if self.revoked.is_empty() && self.all_before.is_none() { 1 } else { VERSION }
    }
}

/// A server of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// The host, which is the server's name, too.
    pub host: Host,
    /// Further names and addresses in its certificate.
    #[serde(default)]
    pub also: Vec<Host>,
    /// Number of the authority that issued its certificate.
    pub authority: u32,
    /// When its certificate was issued.
    pub issued: Timestamp,
    /// When its certificate ends.
    pub expires: Timestamp,
}

/// A TLS authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityRecord {
    /// Counts from 1.
    pub number: u32,
    /// The name in its certificate.
    pub name: String,
    /// When its certificate ends.
    pub expires: Timestamp,
}

/// An identity: `identities/NAME.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityRecord {
    /// The name that nats-server shows, such as `node/n1`.
    pub name: String,
    /// The role of its newest key.
    pub role: Role,
    /// Its keys, the newest last.
    pub keys: Vec<KeyRecord>,
}

/// A key that was handed out with a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Its public half.
    pub public: String,
    /// When its token was signed.
    pub issued: Timestamp,
    /// When its token ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
}

/// Whether servers accept a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyState {
    /// Servers accept it.
    Valid,
    /// Its token has ended.
    Expired,
    /// Servers refuse it once they have loaded the revocation.
    Revoked,
}

impl KeyState {
    /// The state in a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl KeyRecord {
    /// Whether servers accept the key at this time.
    pub fn state(&self, at: Timestamp) -> KeyState {
        match (self.revoked, self.expires) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(expires)) if expires <= at => KeyState::Expired,
            _ => KeyState::Valid,
        }
    }
}

impl IdentityRecord {
    /// The key of its `.creds` file.
    pub fn newest_key(&self) -> Option<&KeyRecord> {
        self.keys.last()
    }

    /// Whether servers accept any of its keys at this time.
    pub fn is_live(&self, at: Timestamp) -> bool {
        self.keys.iter().any(|key| key.state(at) == KeyState::Valid)
    }

    /// Earlier keys that servers still accept.
    pub fn replaced_keys(&self, at: Timestamp) -> impl Iterator<Item = &KeyRecord> {
        let earlier = self.keys.split_last().map_or(&[][..], |(_, earlier)| earlier);
        earlier.iter().filter(move |key| key.state(at) == KeyState::Valid)
    }
}
