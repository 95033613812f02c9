//! `.creds` files: a user's token and seed, as every NATS client reads them.
//!
//! **Owns** their layout. A program can compute its inbox from its file alone: [`inbox_prefix`] of
//! the token's subject.

use berth_contract::creds::{SEED, TOKEN, find_part};
pub use berth_contract::subject::inbox_prefix;

use crate::error::AccessError;
use crate::jwt::{TokenClaims, read_token};
use crate::key::{Key, KeyKind};

/// The text of a `.creds` file.
pub fn format_creds(token: &str, key: &Key) -> Result<String, AccessError> {
    let seed = key.seed()?;
    Ok(format!(
        "-----BEGIN {TOKEN}-----\n{token}\n------END {TOKEN}------\n\n\
         ************************* IMPORTANT *************************\n\
         The seed below is a password: it is this identity.\n\n\
         -----BEGIN {SEED}-----\n{seed}\n------END {SEED}------\n\n\
         *************************************************************\n"
    ))
}

/// The content of a `.creds` file.
#[derive(Debug)]
pub struct UserCreds {
    /// The token's claims, whose signature was checked.
    pub claims: TokenClaims,
    /// The key that the token is for.
    pub key: Key,
}

impl UserCreds {
    /// Reads a file's text. The error names the fault, without the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let part = |part| find_part(text, part).ok_or_else(|| format!("it has no {part}"));
        let (token, seed) = (part(TOKEN)?, part(SEED)?);
        let claims = read_token(token).map_err(|fault| fault.to_string())?;
        let key = Key::from_seed(seed, KeyKind::User).map_err(|error| error.to_string())?;
        if claims.subject != key.public() {
            return Err("its token and its seed are of different users".to_owned());
        }
        Ok(Self { claims, key })
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::Timestamp;

    use super::*;
    use crate::jwt::UserToken;
    use berth_contract::permissions::Permissions;

    fn user_token(key: &Key) -> String {
        let permissions = Permissions::default();
        let public = key.public();
        let token = UserToken { name: "node/n1", public: &public, permissions, expires: None };
        token.sign(&Key::make(KeyKind::Account), Timestamp::from_unix_ms(1000)).unwrap()
    }

    #[test]
    fn a_file_is_read_back() {
        let key = Key::make(KeyKind::User);
        let text = format_creds(&user_token(&key), &key).unwrap();
        let creds = UserCreds::parse(&text).unwrap();
        assert_eq!(creds.claims.name, "node/n1");
        assert_eq!(creds.key.public(), key.public());
        assert_eq!(inbox_prefix(&creds.claims.subject), format!("_INBOX.{}", key.public()));
    }

    #[test]
    fn a_file_that_is_none_is_refused_without_its_seed() {
        let (key, other) = (Key::make(KeyKind::User), Key::make(KeyKind::User));
        let token = user_token(&key);
        let mixed = format_creds(&token, &other).unwrap();
        let valid_text = format_creds(&token, &key).unwrap();
        let cut = valid_text.split(SEED).next().unwrap();
        let broken = valid_text.replace(&token, token.split('.').next().unwrap());
        for (text, problem) in [
            ("", "it has no NATS USER JWT"),
            (cut, "it has no USER NKEY SEED"),
            (&mixed, "its token and its seed are of different users"),
            (&broken, "is no token of NATS"),
        ] {
            let error = UserCreds::parse(text).unwrap_err();
            assert!(error.contains(problem), "{error}");
            assert!(!error.contains(&key.seed().unwrap()), "{error}");
        }
    }
}
