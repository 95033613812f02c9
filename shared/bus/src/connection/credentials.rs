//! The credentials of this process for nats-server.
//!
//! **Owns** the credentials: it reads their files for each connection, so a replaced file is used
//! from the next one on, without a restart.
//!
//! **Promises** that credentials that cannot work are refused before anything is sent, with the
//! file and what is wrong with it.
//!
//! **Never** shows a secret: not in `Debug`, and not in an error.

use std::fmt;
use std::path::{Path, PathBuf};

use async_nats::{Auth, AuthError, ConnectOptions};
use berth_contract::actor::Actor;
use berth_contract::creds;
use berth_contract::permissions::Permissions;
use berth_contract::subject;
use berth_domain::Timestamp;
use data_encoding::BASE64URL_NOPAD;
use nkeys::{KeyPair, KeyPairType};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::clock::now;

/// How the process authenticates to nats-server. Its `Debug` shows no secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// No credentials, or those in a server's address.
    #[default]
    None,
    /// A file with a user's token and the seed of its key (`.creds`), as `berth access` and `nsc`
    /// write it.
    CredsFile(PathBuf),
    /// The seed of an nkey in a file; the seed never leaves this process.
    NkeySeedFile(PathBuf),
    /// A user and a password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token that the server compares.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::CredsFile(path) => f.debug_tuple("CredsFile").field(path).finish(),
            Self::NkeySeedFile(path) => f.debug_tuple("NkeySeedFile").field(path).finish(),
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
            Self::Token(_) => f.debug_tuple("Token").finish_non_exhaustive(),
        }
    }
}

/// Why a credentials file cannot be used.
#[derive(Debug, Error)]
#[error("the credentials file {} cannot be used: {problem}", file.display())]
pub struct BadCredentials {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// What the process knows of its own identity before it connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The public key of the user, which the server knows it by.
    pub key: String,
    /// The user's name in its token.
    pub name: Option<String>,
    /// When the token expires.
    pub expires: Option<Timestamp>,
    /// What the token allows; none where only the server has the permissions.
    pub permissions: Option<Permissions>,
}

impl Identity {
    /// The prefix of the only inboxes that this identity may read. No other identity may read them.
    pub fn inbox_prefix(&self) -> String {
        subject::inbox_prefix(&self.key)
    }

    /// Whether the token has expired, by this host's clock.
    pub fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= now())
    }
}

/// The name without the kind of identity that it has in tokens of `berth access`: `user/anna`.
fn strip_kind(name: &str) -> &str {
    let kinds = ["user/", "admin/", "inspect/"];
    kinds.iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name)
}

impl Credentials {
    /// The identity in the credentials file; none if there is no file, or it names none.
    pub fn identity(&self) -> Result<Option<Identity>, BadCredentials> {
        match self {
            Self::CredsFile(file) => Ok(Some(CredsFile::read(file)?.identity)),
            Self::NkeySeedFile(file) => {
                let key = read_seed(file)?.public_key();
                Ok(Some(Identity { key, name: None, expires: None, permissions: None }))
            }
            Self::None | Self::Password { .. } | Self::Token(_) => Ok(None),
        }
    }

    /// The actor of a person or a program: by the name in the credentials, or else `otherwise`.
    pub fn user_actor(&self, otherwise: &str) -> Result<Actor, BadCredentials> {
        let name = match self {
            Self::Password { user, .. } => Some(user.clone()),
            credentials => credentials.identity()?.and_then(|identity| identity.name),
        };
        Ok(Actor::user(strip_kind(name.as_deref().unwrap_or(otherwise))))
    }

    /// Options with these credentials.
    pub(crate) fn options(&self) -> ConnectOptions {
        match self.clone() {
            Self::None => ConnectOptions::new(),
            Self::Password { user, password } => {
                ConnectOptions::with_user_and_password(user, password)
            }
            Self::Token(token) => ConnectOptions::with_token(token),
            Self::CredsFile(file) => {
                let first = CredsFile::read(&file).ok();
                proving(move |nonce| {
                    let current = CredsFile::read(&file)?;
                    keep_key(first.as_ref(), &current, |creds| creds.key.public_key()).prove(nonce)
                })
            }
            Self::NkeySeedFile(file) => {
                let first = read_seed(&file).ok();
                proving(move |nonce| {
                    let current = read_seed(&file)?;
                    let key = keep_key(first.as_ref(), &current, KeyPair::public_key);
                    let signature = sign(key, &file, nonce)?;
                    let mut auth = Auth::new();
                    (auth.nkey, auth.signature) = (Some(key.public_key()), Some(signature));
                    Ok(auth)
                })
            }
        }
    }
}

/// The key to connect with: the file's current key, unless it differs from the first. Replies come
/// to an inbox of the first key, so another key is used from the next start of this process on.
fn keep_key<'a, T>(first: Option<&'a T>, current: &'a T, key: impl Fn(&T) -> String) -> &'a T {
    first.filter(|first| key(first) != key(current)).unwrap_or(current)
}

/// Options by which each connection signs the nonce that the server sends it.
fn proving(
    prove: impl Fn(&[u8]) -> Result<Auth, BadCredentials> + Send + Sync + 'static,
) -> ConnectOptions {
    ConnectOptions::with_auth_callback(move |nonce| {
        std::future::ready(prove(&nonce).map_err(AuthError::new))
    })
}

/// What a `.creds` file holds.
struct CredsFile {
    file: PathBuf,
    token: String,
    key: KeyPair,
    identity: Identity,
}

/// The fields of a user's token that are read.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    exp: u64,
    #[serde(default)]
    nats: Value,
}

impl CredsFile {
    fn read(file: &Path) -> Result<Self, BadCredentials> {
        let text = read_text(file)?;
        let bad = |problem: &str| BadCredentials::new(file, problem);
        let part =
            |part| creds::find_part(&text, part).ok_or_else(|| bad(&format!("it has no {part}")));
        let (token, seed) = (part(creds::TOKEN)?, part(creds::SEED)?);
        let claims = token.split('.').nth(1).and_then(|claims| {
            serde_json::from_slice::<Claims>(&BASE64URL_NOPAD.decode(claims.as_bytes()).ok()?).ok()
        });
        let claims = claims.ok_or_else(|| bad("its token is damaged"))?;
        let key = user_key(file, seed)?;
        if key.public_key() != claims.sub {
            return Err(bad("its key is not the one that its token is for"));
        }
        let expires = (claims.exp > 0).then(|| Timestamp::from_unix_ms(claims.exp * 1000));
        let permissions = Some(Permissions::from_claims(&claims.nats));
        let identity = Identity { key: claims.sub, name: claims.name, expires, permissions };
        Ok(Self { file: file.to_owned(), token: token.to_owned(), key, identity })
    }

    fn prove(&self, nonce: &[u8]) -> Result<Auth, BadCredentials> {
        let mut auth = Auth::new();
        auth.signature = Some(sign(&self.key, &self.file, nonce)?);
        auth.jwt = Some(self.token.clone());
        Ok(auth)
    }
}

impl BadCredentials {
    fn new(file: &Path, problem: impl Into<String>) -> Self {
        Self { file: file.to_owned(), problem: problem.into() }
    }
}

fn read_text(file: &Path) -> Result<String, BadCredentials> {
    std::fs::read_to_string(file).map_err(|error| BadCredentials::new(file, error.to_string()))
}

fn read_seed(file: &Path) -> Result<KeyPair, BadCredentials> {
    user_key(file, read_text(file)?.trim())
}

fn user_key(file: &Path, seed: &str) -> Result<KeyPair, BadCredentials> {
    match KeyPair::from_seed(seed) {
        Ok(key) if key.key_pair_type() == KeyPairType::User => Ok(key),
        Ok(_) => Err(BadCredentials::new(file, "its seed is not the seed of a user (SU…)")),
        Err(_) => Err(BadCredentials::new(file, "its seed is damaged")),
    }
}

fn sign(key: &KeyPair, file: &Path, nonce: &[u8]) -> Result<Vec<u8>, BadCredentials> {
    key.sign(nonce).map_err(|error| BadCredentials::new(file, error.to_string()))
}

/// Takes the user and the password, or the token, out of a server's address.
pub(crate) fn take_from_address(address: &str) -> (String, Option<Credentials>) {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    let Some((given, host)) = rest.rsplit_once('@') else { return (address.to_owned(), None) };
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let credentials = match given.split_once(':') {
        Some((user, password)) => {
            Credentials::Password { user: plain(user), password: plain(password) }
        }
        None => Credentials::Token(plain(given)),
    };
    (format!("{scheme}{host}"), Some(credentials))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actor_of_a_token_is_the_name_alone() {
        for (name, actor) in [("user/anna", "anna"), ("admin/a/b", "a/b"), ("anna", "anna")] {
            assert_eq!(strip_kind(name), actor);
        }
    }

    #[test]
    fn an_address_gives_its_credentials_up() {
        let password = |user: &str, password: &str| Credentials::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        let cases = [
            ("nats://h:1", "nats://h:1", None),
            ("h", "h", None),
            ("nats://u:p%40ss@h:1", "nats://h:1", Some(password("u", "p@ss"))),
            ("u:p@h", "h", Some(password("u", "p"))),
            ("tls://t0ken@h", "tls://h", Some(Credentials::Token("t0ken".to_owned()))),
        ];
        for (address, bare, credentials) in cases {
            assert_eq!(take_from_address(address), (bare.to_owned(), credentials), "{address}");
        }
    }

    #[test]
    fn an_unusable_credentials_file_is_named_with_the_reason_and_without_its_secret() {
        let dir = berth_harness::dirs::Dir::new("creds");
        let (user, other) = (KeyPair::new_user(), KeyPair::new_user());
        let seed = user.seed().unwrap();
        let claims = format!(r#"{{"sub":"{}","name":"anna","exp":1}}"#, user.public_key());
        // One signature in about 3 000 has three dashes.
        let token = format!("e30.{}.c2---ln", BASE64URL_NOPAD.encode(claims.as_bytes()));
        let creds = |token: &str, seed: &str| {
            format!(
                "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
                 -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
            )
        };
        let read = |text: &str| {
            let file = dir.join("test.creds");
            std::fs::write(&file, text).unwrap();
            let identity = Credentials::CredsFile(file).identity();
            identity.map(Option::unwrap).map_err(|error| error.to_string())
        };
        let parsed = read(&creds(&token, &seed)).unwrap();
        assert_eq!((parsed.name.as_deref(), parsed.has_expired()), (Some("anna"), true));
        assert_eq!(parsed.inbox_prefix(), format!("_INBOX.{}", user.public_key()));
        assert_eq!(CredsFile::read(&dir.join("test.creds")).unwrap().token, token);
        let cases = [
            (String::new(), "no NATS USER JWT"),
            (creds(&token, ""), "no USER NKEY SEED"),
            (creds("rubbish", &seed), "token is damaged"),
            (creds(&token, "SUAX"), "seed is damaged"),
            (creds(&token, &KeyPair::new_account().seed().unwrap()), "not the seed of a user"),
            (creds(&token, &other.seed().unwrap()), "not the one that its token is for"),
        ];
        for (text, reason) in cases {
            let refusal = read(&text).unwrap_err();
            assert!(refusal.contains("test.creds") && refusal.contains(reason), "{refusal}");
            assert!(!refusal.contains(&seed), "{refusal}");
        }
    }
}
