//! Ids of volumes and snapshots.
//!
//! Owns: the mapping from the CO's names to ids. Promises: the same name gives the same id, so a
//! repeated call finds what a killed call made. An id has at most 128 bytes (CSI, size limits).
//! Never: checks whether the id exists.

use crate::backend::encoding::digest;

/// Longest id, in bytes (CSI, size limits, for strings without another limit).
const LONGEST_BYTES: usize = 128;

/// The id for `name`; with `--bound`, on `node`.
pub(super) fn make_id(kind: &str, node: Option<&str>, name: &str) -> String {
    let plain = match node {
        Some(node) => format!("{kind}-{node}-{name}"),
        None => format!("{kind}-{name}"),
    };
    if plain.len() <= LONGEST_BYTES {
        return plain;
    }
    format!("{kind}-{}", digest(&plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_readable_and_short() {
        assert_eq!(make_id("vol", None, "data"), "vol-data");
        assert_eq!(make_id("vol", Some("n1"), "data"), "vol-n1-data");
        let long = "x".repeat(LONGEST_BYTES);
        let id = make_id("snap", None, &long);
        assert!(id.starts_with("snap-") && id.len() == "snap-".len() + 64, "{id}");
        assert_eq!(id, make_id("snap", None, &long));
        assert_ne!(id, make_id("snap", None, &format!("{long}y")));
    }
}
