//! Ids, made from names.
//!
//! Owns: the one mapping from the CO's names to ids. Promises: the same name gives the same id, so
//! a call that was killed is found again by its repetition; an id is no name, and has at most 128
//! bytes (CSI, size limits). Never: looks whether it exists.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The longest string that CSI wants to be passed.
const LONGEST_BYTES: usize = 128;

/// The id of what is called `name` on `node`; no node where all instances share all.
pub(super) fn of(kind: &str, node: Option<&str>, name: &str) -> String {
    let plain = match node {
        Some(node) => format!("{kind}-{node}-{name}"),
        None => format!("{kind}-{name}"),
    };
    if plain.len() <= LONGEST_BYTES {
        return plain;
    }
    let mut id = format!("{kind}-");
    for byte in Sha256::digest(plain.as_bytes()) {
        _ = write!(id, "{byte:02x}");
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_readable_and_short() {
        assert_eq!(of("vol", None, "data"), "vol-data");
        assert_eq!(of("vol", Some("n1"), "data"), "vol-n1-data");
        let long = "x".repeat(LONGEST_BYTES);
        let id = of("snap", None, &long);
        assert!(id.starts_with("snap-") && id.len() == "snap-".len() + 64, "{id}");
        assert_eq!(id, of("snap", None, &long));
        assert_ne!(id, of("snap", None, &format!("{long}y")));
    }
}
