//! Keys of the bus: ed25519 in the text form that NATS calls nkeys.
//!
//! **Owns** how keys are made and read. **Never** shows a seed in a `Debug` text or an error.

use std::fmt;

use nkeys::{KeyPair, KeyPairType};

use crate::error::AccessError;

/// The kind of a key, which the first letters of its text show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Signs accounts. Public `O…`, seed `SO…`.
    Operator,
    /// Signs users. Public `A…`, seed `SA…`.
    Account,
    /// Connects. Public `U…`, seed `SU…`.
    User,
}

impl KeyKind {
    const fn of_nkeys(self) -> KeyPairType {
        match self {
            Self::Operator => KeyPairType::Operator,
            Self::Account => KeyPairType::Account,
            Self::User => KeyPairType::User,
        }
    }
}

/// A key pair with its secret half.
pub struct Key(KeyPair);

impl Key {
    /// Makes a new key from the system's randomness.
    pub fn make(kind: KeyKind) -> Self {
        Self(KeyPair::new(kind.of_nkeys()))
    }

    /// Reads a seed, which must be of this kind.
    pub fn from_seed(seed: &str, kind: KeyKind) -> Result<Self, AccessError> {
        let pair = KeyPair::from_seed(seed.trim());
        let pair = pair.map_err(|_| AccessError::Key("it is no seed of an nkey".to_owned()))?;
        if pair.key_pair_type() != kind.of_nkeys() {
            return Err(AccessError::Key(format!("it is no seed of the kind {kind:?}")));
        }
        Ok(Self(pair))
    }

    /// The public half, which names the key.
    pub fn public(&self) -> String {
        self.0.public_key()
    }

    /// The secret half.
    pub fn seed(&self) -> Result<String, AccessError> {
        self.0.seed().map_err(|error| AccessError::Key(error.to_string()))
    }

    /// The signature of these bytes.
    pub fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, AccessError> {
        self.0.sign(bytes).map_err(|error| AccessError::Key(error.to_string()))
    }
}

/// Whether a text is the public key of a user.
pub fn is_user_key(text: &str) -> bool {
    KeyPair::from_public_key(text).is_ok_and(|key| key.key_pair_type() == KeyPairType::User)
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.public())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_key_and_only_of_its_kind() {
        for (kind, public, seed) in [
            (KeyKind::Operator, 'O', "SO"),
            (KeyKind::Account, 'A', "SA"),
            (KeyKind::User, 'U', "SU"),
        ] {
            let key = Key::make(kind);
            assert!(key.public().starts_with(public) && key.seed().unwrap().starts_with(seed));
            let reread = Key::from_seed(&format!("{}\n", key.seed().unwrap()), kind).unwrap();
            assert_eq!(reread.public(), key.public());
        }
        let user = Key::make(KeyKind::User).seed().unwrap();
        let error = Key::from_seed(&user, KeyKind::Account).unwrap_err().to_string();
        assert!(!error.contains(&user), "{error}");
        assert!(Key::from_seed("SUnonsense", KeyKind::User).is_err());
        let public = |kind| Key::make(kind).public();
        assert!(is_user_key(&public(KeyKind::User)));
        for other in [public(KeyKind::Account), "UAKC".to_owned(), user] {
            assert!(!is_user_key(&other));
        }
    }

    #[test]
    fn a_debug_text_shows_no_seed() {
        let key = Key::make(KeyKind::User);
        assert_eq!(format!("{key:?}"), format!("Key({})", key.public()));
    }
}
