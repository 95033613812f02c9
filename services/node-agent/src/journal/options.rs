//! Mount options, told apart and not told: flags may hold secrets (A11), which stand in no journal.

use std::fmt::Write as _;

use berth_domain::volume::MountOptions;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A salted hash of mount options: it says whether others are the same, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionsFingerprint {
    salt: String,
    hash: String,
}

impl OptionsFingerprint {
    /// Of these, with a salt of 16 random bytes.
    pub fn salted_hash(options: &MountOptions, salt: [u8; 16]) -> Self {
        Self::salted(options, hex(&salt))
    }

    fn salted(options: &MountOptions, salt: String) -> Self {
        let MountOptions { fs_type, flags, group } = options;
        // Debug quotes and escapes each part, so that no two options have one text.
        let text = format!("{salt} {fs_type:?} {flags:?} {group:?}");
        Self { hash: hex(&Sha256::digest(text)), salt }
    }

    /// Whether they are these. The order of flags counts, since it may count to `mount`.
    pub fn are_same(&self, options: &MountOptions) -> bool {
        *self == Self::salted(options, self.salt.clone())
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
    fn options_are_told_apart_field_by_field_and_told_to_nobody() {
        let one = MountOptions {
            fs_type: Some("ext4".to_owned()),
            flags: vec!["password=hunter2".to_owned(), "sync".to_owned()],
            group: None,
        };
        let kept = OptionsFingerprint::salted_hash(&one, [7; 16]);
        assert!(kept.are_same(&one));
        let others = [
            MountOptions::default(),
            MountOptions { fs_type: None, ..one.clone() },
            MountOptions { group: Some("7".to_owned()), ..one.clone() },
            MountOptions { flags: vec!["password=hunter2, sync".to_owned()], ..one.clone() },
            MountOptions { flags: one.flags[..1].to_vec(), ..one.clone() },
        ];
        for other in others {
            assert!(!kept.are_same(&other), "{other:?}");
        }
        assert!(!serde_json::to_string(&kept).unwrap().contains("hunter2"));
        assert_ne!(
            kept,
            OptionsFingerprint::salted_hash(&one, [8; 16]),
            "two nodes' journals have nothing in common"
        );
    }
}
