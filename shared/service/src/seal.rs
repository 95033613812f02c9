//! Sealing secrets for one reader (A9, safety rule 6).
//!
//! **Owns** the one form in which secrets cross the bus and are stored in a bucket: NATS's xkeys
//! (X25519 with XSalsa20-Poly1305). Each sealing uses a new sender key.
//!
//! **Promises** that secrets sealed for one volume do not open as another volume's, and that no
//! error reveals anything about them.
//!
//! **Never** prints a key or a secret: no type here has a printable form.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use berth_contract::message::secret::{Envelope, Sealed, Secrets};
use berth_domain::VolumeKey;
use data_encoding::BASE64;
use nkeys::XKey;
use thiserror::Error;

/// Why secrets were not sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SealError {
    /// The key to seal for is not valid.
    #[error("the key to seal for is no public X25519 key (`X…`)")]
    Key,
    /// The secrets do not open: they were sealed for another key, or are damaged.
    #[error("they were sealed for another key, or are damaged")]
    Closed,
    /// The secrets open, and belong to another volume.
    #[error("they were sealed for another volume")]
    Foreign,
}

/// Why a key file cannot be used.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("the key file {} cannot be read", path.display())]
    Read {
        /// The file that cannot be read.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A line is no seed. The error does not show the line.
    #[error(
        "line {line} of the key file {} is no X25519 seed (`SX…`); `berth keygen FILE` makes one",
        path.display()
    )]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// There is no seed in it.
    #[error("the key file {} holds no seed; `berth keygen FILE` makes one", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

/// The keys of a reader. Secrets are sealed for the first key; all keys open them. So a new key is
/// put first, and the old key is removed once no secrets are sealed for it.
pub struct Keys {
    first: XKey,
    older: Vec<XKey>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", 1 + self.older.len())
    }
}

impl Keys {
    /// One new key, for a reader that lives as long as its process.
    pub fn once() -> Self {
        Self { first: XKey::new(), older: Vec::new() }
    }

    /// The seeds in a file, one a line; empty lines and those that begin with `#` are skipped.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| KeyFileError::Read { path: path.to_owned(), source })?;
        let seeds = text.lines().map(str::trim).enumerate();
        let seeds = seeds.filter(|(_, seed)| !seed.is_empty() && !seed.starts_with('#'));
        let mut keys = Vec::new();
        for (line_number, seed) in seeds {
            let wrong = |_| KeyFileError::Line { path: path.to_owned(), line: line_number + 1 };
            keys.push(XKey::from_seed(seed).map_err(wrong)?);
        }
        let mut keys = keys.into_iter();
        let first = keys.next().ok_or_else(|| KeyFileError::Empty { path: path.to_owned() })?;
        Ok(Self { first, older: keys.collect() })
    }

    /// The public key to seal for.
    pub fn public(&self) -> String {
        self.first.public_key()
    }

    /// Opens secrets of this volume that were sealed for one of these keys.
    pub fn open(&self, volume: &VolumeKey, sealed: &Sealed) -> Result<Secrets, SealError> {
        let mut keys = std::iter::once(&self.first).chain(&self.older);
        let opened = keys.find_map(|key| open_with(key, sealed)).ok_or(SealError::Closed)?;
        let envelope: Envelope = serde_json::from_slice(&opened).map_err(|_| SealError::Closed)?;
        if (&envelope.namespace, &envelope.volume) != (&volume.namespace, &volume.volume) {
            return Err(SealError::Foreign);
        }
        Ok(envelope.secrets)
    }

    /// Whether the secrets open without an older key.
    pub fn is_sealed_for_first(&self, sealed: &Sealed) -> bool {
        open_with(&self.first, sealed).is_some()
    }
}

fn open_with(key: &XKey, sealed: &Sealed) -> Option<Vec<u8>> {
    let sender = XKey::from_public_key(&sealed.from).ok()?;
    let bytes = BASE64.decode(sealed.sealed.as_bytes()).ok()?;
    key.open(&bytes, &sender).ok()
}

/// A seed for a new file of keys, and its public key.
pub fn new_seed() -> Result<(String, String), SealError> {
    let key = XKey::new();
    Ok((key.seed().map_err(|_| SealError::Key)?, key.public_key()))
}

/// Whether something can be sealed for this public key.
pub fn is_public_key(key: &str) -> bool {
    XKey::from_public_key(key).is_ok()
}

/// Seals a volume's secrets for a public key.
pub fn seal(volume: &VolumeKey, secrets: Secrets, recipient: &str) -> Result<Sealed, SealError> {
    let recipient = XKey::from_public_key(recipient).map_err(|_| SealError::Key)?;
    let VolumeKey { namespace, volume } = volume.clone();
    let envelope = Envelope { namespace, volume, secrets };
    let bytes = serde_json::to_vec(&envelope).map_err(|_| SealError::Key)?;
    let sender = XKey::new();
    let sealed = sender.seal(&bytes, &recipient).map_err(|_| SealError::Key)?;
    Ok(Sealed { from: sender.public_key(), sealed: BASE64.encode(&sealed) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_domain::{Namespace, VolumeId};

    use super::*;

    fn volume(id: &str) -> VolumeKey {
        VolumeKey::new(Namespace::default(), VolumeId::new(id).unwrap())
    }

    fn secrets() -> Secrets {
        Secrets(BTreeMap::from([("password".to_owned(), "hunter2".to_owned())]))
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn what_is_sealed_opens_for_its_reader_and_its_volume_alone() {
        let reader = Keys::once();
        assert!(is_public_key(&reader.public()) && !is_public_key("nonsense"));
        let sealed = seal(&volume("a"), secrets(), &reader.public()).unwrap();
        assert!(!format!("{sealed:?}{}", sealed.sealed).contains("hunter2"));
        assert_eq!(reader.open(&volume("a"), &sealed), Ok(secrets()));
        assert_eq!(reader.open(&volume("b"), &sealed), Err(SealError::Foreign));
        assert_eq!(Keys::once().open(&volume("a"), &sealed), Err(SealError::Closed));
        let torn = Sealed { sealed: sealed.sealed[4..].to_owned(), ..sealed };
        assert_eq!(reader.open(&volume("a"), &torn), Err(SealError::Closed));
        assert_eq!(seal(&volume("a"), secrets(), "nonsense"), Err(SealError::Key));
    }

    #[test]
    fn an_older_key_opens_what_was_sealed_for_it() {
        let (old_seed, old_public) = new_seed().unwrap();
        let (new_seed, new_public) = new_seed().unwrap();
        let keys = file(&format!("# keys\n{new_seed}\n\n{old_seed}\n"));
        let keys = Keys::read(keys.path()).unwrap();
        assert_eq!(keys.public(), new_public);
        let sealed = seal(&volume("a"), secrets(), &old_public).unwrap();
        assert_eq!(keys.open(&volume("a"), &sealed), Ok(secrets()));
        assert!(!keys.is_sealed_for_first(&sealed));
        let sealed = seal(&volume("a"), secrets(), &new_public).unwrap();
        assert!(keys.is_sealed_for_first(&sealed));
    }

    #[test]
    fn a_file_that_holds_no_key_says_so_and_not_what_it_holds() {
        let nothing = file("# nothing\n");
        let error = Keys::read(nothing.path()).unwrap_err().to_string();
        assert!(error.contains("holds no seed"), "{error}");
        let wrong = file("# a key\nSXOOPS-secret\n");
        let error = Keys::read(wrong.path()).unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("OOPS"), "{error}");
    }
}
