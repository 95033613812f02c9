//! A fingerprint of mount options. Mount flags may hold secrets (A11), so the journal keeps this
//! instead of the options.
//!
//! **Promises** that equal options are recognized and that nothing else can be read from it.

use std::fmt::Write as _;

use berth_domain::volume::MountOptions;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A salted hash of mount options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionsFingerprint {
    salt: String,
    hash: String,
}

impl OptionsFingerprint {
    /// Hashes options. The caller passes 16 random bytes as the salt.
    pub fn salted_hash(options: &MountOptions, salt: [u8; 16]) -> Self {
        Self::hash_with_salt(options, hex(&salt))
    }

    fn hash_with_salt(options: &MountOptions, salt: String) -> Self {
        let MountOptions { fs_type, flags, group } = options;
        // Debug quotes and escapes each part: two different options never give the same text.
        let text = format!("{salt} {fs_type:?} {flags:?} {group:?}");
        Self { hash: hex(&Sha256::digest(text)), salt }
    }

    /// Whether it is the fingerprint of these options. The order of flags counts, because `mount`
    /// may depend on it.
    pub fn matches(&self, options: &MountOptions) -> bool {
        *self == Self::hash_with_salt(options, self.salt.clone())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_differs_for_each_field_and_does_not_show_the_options() {
        let one = MountOptions {
            fs_type: Some("ext4".to_owned()),
            flags: vec!["password=hunter2".to_owned(), "sync".to_owned()],
            group: None,
        };
        let kept = OptionsFingerprint::salted_hash(&one, [7; 16]);
        assert!(kept.matches(&one));
        let others = [
            MountOptions::default(),
            MountOptions { fs_type: None, ..one.clone() },
            MountOptions { group: Some("7".to_owned()), ..one.clone() },
            MountOptions { flags: vec!["password=hunter2, sync".to_owned()], ..one.clone() },
            MountOptions { flags: one.flags[..1].to_vec(), ..one.clone() },
        ];
        for other in others {
            assert!(!kept.matches(&other), "{other:?}");
        }
        assert!(!serde_json::to_string(&kept).unwrap().contains("hunter2"));
        assert_ne!(
            kept,
            OptionsFingerprint::salted_hash(&one, [8; 16]),
            "two nodes' journals have nothing in common"
        );
    }
}
