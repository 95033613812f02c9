//! Ids as file names.
//!
//! Owns: the one mapping from ids (volumes, nodes) to file names. Promises: two ids never share a
//! name, a name is one path component, ordinary ids stay readable. Never: touches the file system.
//!
//! Letters, digits, `-`, `_` and inner `.` stand for themselves; every other byte is `%XX`. An id
//! whose name would be too long is `+` and its SHA-256: no other name begins with `+`.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Longest id, in bytes (CSI, size limits; the limit of `node_id` is used for all ids).
pub const LONGEST_ID_BYTES: usize = 256;

/// Longest name, in bytes, without an extension; ext4 and xfs allow 255.
const LONGEST_NAME_BYTES: usize = 200;

/// The file name that stands for `id`; `None` if the id is empty or too long.
pub fn encode(id: &str) -> Option<String> {
    if id.is_empty() || id.len() > LONGEST_ID_BYTES {
        return None;
    }
    let mut name = String::new();
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            // A name begins neither with `.` nor with `..`.
            b'.' if !name.is_empty() => name.push('.'),
            _ => _ = write!(name, "%{byte:02X}"),
        }
    }
    if name.len() > LONGEST_NAME_BYTES { Some(format!("+{}", digest(id))) } else { Some(name) }
}

/// The SHA-256 of `text`, in hexadecimal.
pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Component, Path};

    use super::*;

    #[test]
    fn ordinary_ids_stay_readable_and_odd_ones_stay_inside() {
        for (id, name) in [
            ("vol-1", "vol-1"),
            ("ebs.csi.aws.com", "ebs.csi.aws.com"),
            ("a/b c", "a%2Fb%20c"),
            ("..", "%2E."),
            (".state", "%2Estate"),
            ("50%+", "50%25%2B"),
            ("ä\0", "%C3%A4%00"),
        ] {
            assert_eq!(encode(id).unwrap(), name);
        }
        assert_eq!(encode(""), None);
        assert_eq!(encode(&"x".repeat(LONGEST_ID_BYTES + 1)), None);
    }

    #[test]
    fn long_ids_have_short_names_of_their_own() {
        let mut names = BTreeSet::new();
        for (text, length) in [("x", 200), ("x", 201), ("x", 256), ("/", 66), ("/", 67), ("/", 256)]
        {
            let name = encode(&text.repeat(length)).unwrap();
            let components: Vec<_> = Path::new(&name).components().collect();
            assert!(matches!(components[..], [Component::Normal(_)]) && name.len() <= 200);
            assert!(names.insert(name));
        }
    }
}
