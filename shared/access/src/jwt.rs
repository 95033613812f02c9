//! Tokens of operators, accounts and users: NATS JWT, version 2.
//!
//! **Owns** their form: three parts in base64url without padding, divided by dots: a header, the
//! claims, and an ed25519 signature of both by the issuer, whose public key is in the claims. `jti`
//! is the SHA-512/256 hash of the standard claims without `jti`, in base32 without padding. This is
//! how `github.com/nats-io/jwt/v2` writes and nats-server reads them.
//!
//! **Never** reads the clock: the time of issue is passed in.

use std::collections::BTreeMap;

use berth_domain::Timestamp;
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512_256};
use thiserror::Error;

use crate::error::AccessError;
use crate::key::Key;
use berth_contract::permissions::Permissions;

/// The version of the claims of NATS.
const VERSION: u32 = 2;
const HEADER: &str = r#"{"typ":"JWT","alg":"ed25519-nkey"}"#;
/// The value of an absent limit.
const UNLIMITED: i64 = -1;

/// The standard claims. The order of the fields is that of the hash.
#[derive(Debug, Serialize)]
struct StandardClaims<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    iat: u64,
    iss: String,
    name: &'a str,
    sub: &'a str,
}

/// All claims of a token.
#[derive(Debug, Serialize)]
struct SignedClaims<'a> {
    #[serde(flatten)]
    standard: StandardClaims<'a>,
    nats: Value,
    // nats-server ignores claims that it does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    berth: Option<&'a Lineage>,
}

/// The place of an account's token in the order of its tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// Grows with each token.
    #[serde(default)]
    pub serial: u64,
    /// Fingerprints of the earlier tokens that this token follows, the newest last. It revokes
    /// whatever they revoke.
    #[serde(default)]
    pub after: Vec<String>,
}

/// Seconds since the Unix epoch.
fn seconds(at: Timestamp) -> u64 {
    at.unix_ms() / 1000
}

fn from_seconds(seconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(seconds.saturating_mul(1000))
}

fn sign_claims(
    (name, subject): (&str, &str),
    (at, expires): (Timestamp, Option<Timestamp>),
    (nats, berth): (Value, Option<&Lineage>),
    issuer: &Key,
) -> Result<String, AccessError> {
    let fail = |error: serde_json::Error| AccessError::Key(error.to_string());
    let exp = expires.map(seconds);
    let iss = issuer.public();
    let mut standard = StandardClaims { exp, jti: None, iat: seconds(at), iss, name, sub: subject };
    let hash = Sha512_256::digest(serde_json::to_vec(&standard).map_err(fail)?);
    standard.jti = Some(BASE32_NOPAD.encode(&hash));
    let claims = serde_json::to_vec(&SignedClaims { standard, nats, berth }).map_err(fail)?;
    let header = BASE64URL_NOPAD.encode(HEADER.as_bytes());
    let signed = format!("{header}.{}", BASE64URL_NOPAD.encode(&claims));
    let signature = issuer.sign(signed.as_bytes())?;
    Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
}

/// The token of an operator, signed by itself.
pub fn sign_operator(
    name: &str,
    operator: &Key,
    system_account: &str,
    at: Timestamp,
) -> Result<String, AccessError> {
    let nats = json!({ "system_account": system_account, "type": "operator", "version": VERSION });
    sign_claims((name, &operator.public()), (at, None), (nats, None), operator)
}

/// The content of an account's token.
#[derive(Debug)]
pub struct AccountToken<'a> {
    /// The account's name.
    pub name: &'a str,
    /// The account's public key.
    pub public: &'a str,
    /// Whether the account may have streams, without limits. An absent limit would be 0: none.
    pub jetstream: bool,
    /// Public keys of users whose tokens issued up to this time are refused.
    pub revoked: BTreeMap<String, Timestamp>,
    /// Tokens of all users that were issued before this time are refused.
    pub all_before: Option<Timestamp>,
    /// The token's place in the order of the account's tokens; none for an account that is signed
    /// once.
    pub lineage: Option<&'a Lineage>,
}

/// Stands for the keys of all users in revocations.
const EVERY_KEY: &str = "*";

impl<'a> AccountToken<'a> {
    /// The token of an account that is signed once: it revokes no user and has no streams.
    pub const fn without_changes(name: &'a str, public: &'a str) -> Self {
        let revoked = BTreeMap::new();
        Self { name, public, jetstream: false, revoked, all_before: None, lineage: None }
    }

    /// The token, signed by the operator.
    pub fn sign(&self, operator: &Key, at: Timestamp) -> Result<String, AccessError> {
        let mut limits = Map::new();
        for name in ["subs", "data", "payload", "imports", "exports", "conn", "leaf"] {
            limits.insert(name.to_owned(), json!(UNLIMITED));
        }
        limits.insert("wildcards".to_owned(), json!(true));
        // Users must prove that they have their key.
        limits.insert("disallow_bearer".to_owned(), json!(true));
        if self.jetstream {
            for name in ["mem_storage", "disk_storage", "streams", "consumer"] {
                limits.insert(name.to_owned(), json!(UNLIMITED));
            }
        }
        let mut nats = json!({ "limits": limits, "type": "account", "version": VERSION });
        let revoked = self.revoked.iter().map(|(key, at)| (key.clone(), json!(seconds(*at))));
        let mut revocations: Map<String, Value> = revoked.collect();
        // Servers refuse tokens that were issued up to this second.
        let everyone = self.all_before.map(|at| json!(seconds(at).saturating_sub(1)));
        revocations.extend(everyone.map(|at| (EVERY_KEY.to_owned(), at)));
        if !revocations.is_empty() {
            nats["revocations"] = Value::Object(revocations);
        }
        sign_claims((self.name, self.public), (at, None), (nats, self.lineage), operator)
    }
}

/// The content of a user's token.
#[derive(Debug)]
pub struct UserToken<'a> {
    /// The name that nats-server shows.
    pub name: &'a str,
    /// The user's public key.
    pub public: &'a str,
    /// What the user may do.
    pub permissions: Permissions,
    /// When the server refuses the token and ends its connections.
    pub expires: Option<Timestamp>,
}

impl UserToken<'_> {
    /// The token, signed by the account.
    pub fn sign(&self, account: &Key, at: Timestamp) -> Result<String, AccessError> {
        let mut nats = self.permissions.claims();
        for name in ["subs", "data", "payload"] {
            nats.insert(name.to_owned(), json!(UNLIMITED));
        }
        nats.insert("type".to_owned(), json!("user"));
        nats.insert("version".to_owned(), json!(VERSION));
        let nats = Value::Object(nats);
        sign_claims((self.name, self.public), (at, self.expires), (nats, None), account)
    }
}

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It does not have the form of a token.
    #[error("is no token of NATS")]
    Malformed,
    /// Its signature is not that of the named issuer.
    #[error("has a signature that is not its issuer's")]
    BadSignature,
}

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TokenClaims {
    /// The public key of its signer.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// The public key of the account or user that it is for.
    #[serde(rename = "sub")]
    pub subject: String,
    /// The name.
    #[serde(default)]
    pub name: String,
    /// Seconds since the Unix epoch when it was signed.
    #[serde(rename = "iat")]
    pub issued_s: u64,
    /// Seconds since the Unix epoch when it ends.
    #[serde(rename = "exp", default)]
    pub expires_s: Option<u64>,
    /// The claims of NATS.
    #[serde(default)]
    pub nats: Value,
    /// The place in the order of the account's tokens. Tokens of older versions have none.
    #[serde(default)]
    pub berth: Lineage,
}

impl TokenClaims {
    /// The revocations in the token of an account.
    pub fn revocations(&self) -> Revocations {
        let entries = self.nats["revocations"].as_object().into_iter().flatten();
        let mut revocations = Revocations::default();
        for (key, at) in entries.filter_map(|(key, at)| Some((key, at.as_u64()?))) {
            if key == EVERY_KEY {
                revocations.all_before = Some(from_seconds(at.saturating_add(1)));
            } else {
                revocations.keys.insert(key.clone(), from_seconds(at));
            }
        }
        revocations
    }
}

/// The revocations in the token of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revocations {
    /// Public keys, each with the time up to which its tokens are refused.
    pub keys: BTreeMap<String, Timestamp>,
    /// Every token that was issued before this time.
    pub all_before: Option<Timestamp>,
}

/// The length of a fingerprint in characters. A collision gives no attacker an advantage.
const FINGERPRINT_CHARS: usize = 8;

/// A short name of a token.
pub fn fingerprint(token: &str) -> String {
    let mut text = BASE64URL_NOPAD.encode(&Sha512_256::digest(token));
    text.truncate(FINGERPRINT_CHARS);
    text
}

/// Reads a token and checks its signature against the issuer that it names. The caller decides
/// whether that issuer is trusted.
pub fn read_token(token: &str) -> Result<TokenClaims, TokenError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    let decode =
        |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| TokenError::Malformed);
    decode(header)?;
    let claims: TokenClaims =
        serde_json::from_slice(&decode(claims)?).map_err(|_| TokenError::Malformed)?;
    let signature = decode(signature)?;
    let issuer = KeyPair::from_public_key(&claims.issuer).map_err(|_| TokenError::Malformed)?;
    issuer.verify(signed.as_bytes(), &signature).map_err(|_| TokenError::BadSignature)?;
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyKind;

    const AT: Timestamp = Timestamp::from_unix_ms(1_700_000_000_123);

    fn payload(token: &str) -> Value {
        let claims = token.split('.').nth(1).unwrap();
        serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn a_user_token_has_the_fields_that_the_server_reads() {
        let account = Key::make(KeyKind::Account);
        let permissions =
            Permissions { publish_allow: vec!["a".to_owned()], ..Permissions::default() };
        let expires = Some(Timestamp::from_unix_ms(1_800_000_000_999));
        let token = UserToken { name: "user/é", public: "UABC", permissions, expires };
        let token = token.sign(&account, AT).unwrap();
        let mut claims = payload(&token);
        let jti = claims.as_object_mut().unwrap().remove("jti").unwrap();
        assert_eq!(jti.as_str().unwrap().len(), 52, "32 bytes in base32 without padding");
        let expected = json!({
            "exp": 1_800_000_000, "iat": 1_700_000_000,
            "iss": account.public(), "name": "user/é", "sub": "UABC",
            "nats": {
                "pub": { "allow": ["a"] }, "sub": { "deny": [">"] },
                "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2,
            },
        });
        assert_eq!(claims, expected);
        assert_eq!(read_token(&token).unwrap().expires_s, Some(1_800_000_000));
    }

    /// The id is the hash of the other standard claims in the order of Go's struct.
    #[test]
    fn the_id_is_the_hash_of_the_standard_claims() {
        let key = Key::make(KeyKind::Operator);
        let token = sign_operator("berth", &key, "AX", AT).unwrap();
        let public = key.public();
        let hashed =
            format!(r#"{{"iat":1700000000,"iss":"{public}","name":"berth","sub":"{public}"}}"#);
        let expected = BASE32_NOPAD.encode(&Sha512_256::digest(hashed));
        assert_eq!(payload(&token)["jti"], json!(expected));
    }

    #[test]
    fn an_account_lists_who_is_revoked_and_has_streams_without_limits() {
        let operator = Key::make(KeyKind::Operator);
        let revoked = BTreeMap::from([("UABC".to_owned(), AT)]);
        let after = vec![fingerprint("one")];
        let lineage = Lineage { serial: 2, after };
        let token = AccountToken {
            name: "berth",
            public: "AX",
            jetstream: true,
            revoked,
            all_before: Some(AT),
            lineage: Some(&lineage),
        };
        let token = token.sign(&operator, AT).unwrap();
        let claims = payload(&token);
        let revocations = json!({ "UABC": 1_700_000_000, "*": 1_699_999_999 });
        assert_eq!(claims["nats"]["revocations"], revocations);
        let read = read_token(&token).unwrap();
        assert_eq!(read.berth, lineage);
        let second = Timestamp::from_unix_ms(1_700_000_000_000);
        assert_eq!(read.revocations().all_before, Some(second));
        assert_eq!(read.revocations().keys, BTreeMap::from([("UABC".to_owned(), second)]));
        for limit in ["mem_storage", "disk_storage", "streams", "consumer", "subs", "conn"] {
            assert_eq!(claims["nats"]["limits"][limit], json!(-1), "{limit}");
        }
        let system = AccountToken::without_changes("system", "AY");
        let claims = payload(&system.sign(&operator, AT).unwrap());
        assert_eq!(claims["nats"]["limits"].get("disk_storage"), None);
        assert_eq!(claims["nats"].get("revocations"), None);
        assert_eq!(claims.get("berth"), None);
    }

    #[test]
    fn a_changed_token_is_refused() {
        let operator = Key::make(KeyKind::Operator);
        let token = sign_operator("berth", &operator, "AX", AT).unwrap();
        let other_token = sign_operator("other", &operator, "AX", AT).unwrap();
        let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
        let (token_parts, other_parts) = (parts(&token), parts(&other_token));
        let mixed = format!("{}.{}.{}", token_parts[0], other_parts[1], token_parts[2]);
        assert_eq!(read_token(&mixed), Err(TokenError::BadSignature));
        for malformed in ["", "a.b.c", "a.b", &token[..token.len() / 2]] {
            assert_eq!(read_token(malformed), Err(TokenError::Malformed), "{malformed}");
        }
    }
}
