//! Ids as file names.
//!
//! Owns: the one mapping from ids (volumes, nodes) to relative paths. Promises: it is reversible,
//! two ids never share a path, no path leaves its directory, ordinary ids stay readable.
//! Never: touches the file system.
//!
//! Letters, digits, `-`, `_` and inner `.` stand for themselves; every other byte is `%XX`. A name
//! that would not fit into one component continues in a directory whose name ends in `+`, a
//! character that no escaped id contains.

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

/// The longest id, in bytes (CSI, size limits; the limit of `node_id` is taken for all).
pub const LONGEST_ID_BYTES: usize = 256;

/// How long a component may become; ext4 and xfs allow 255 bytes.
const LONGEST_COMPONENT_BYTES: usize = 200;

/// Ends the name of a directory in which the name goes on.
const CONTINUED: char = '+';

/// The relative path that stands for `id`; `None` if the id is empty or too long.
pub fn encode(id: &str) -> Option<PathBuf> {
    if id.is_empty() || id.len() > LONGEST_ID_BYTES {
        return None;
    }
    let mut path = PathBuf::new();
    let mut component = String::new();
    for byte in id.bytes() {
        let escaped = escape(byte, component.is_empty());
        if component.len() + escaped.len() > LONGEST_COMPONENT_BYTES {
            component.push(CONTINUED);
            path.push(&component);
            component = escape(byte, true);
        } else {
            component += &escaped;
        }
    }
    path.push(component);
    Some(path)
}

/// The id that `path` stands for; `None` if no id has that path.
pub fn decode(path: &Path) -> Option<String> {
    let mut escaped = String::new();
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        let Component::Normal(name) = component else { return None };
        let name = name.to_str()?;
        let part = if components.peek().is_some() { name.strip_suffix(CONTINUED)? } else { name };
        escaped += part;
    }
    let id = unescape(&escaped)?;
    // Whatever could be read in two ways is not one of our names.
    (encode(&id)? == path).then_some(id)
}

/// Whether a directory of this name holds the rest of longer names, rather than one thing.
pub fn is_continued(name: &OsStr) -> bool {
    name.as_encoded_bytes().last() == Some(&(CONTINUED as u8))
}

fn escape(byte: u8, is_first: bool) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        // Never first: not `.`, not `..`, not the temporary files of this driver.
        b'.' if !is_first => ".".to_owned(),
        _ => {
            let mut escaped = String::with_capacity(3);
            let _ = write!(escaped, "%{byte:02X}");
            escaped
        }
    }
}

fn unescape(escaped: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ids of 1 to 256 bytes of any content.
    fn any_id() -> impl Strategy<Value = String> {
        let chars = prop_oneof![
            any::<char>(),
            proptest::char::range(' ', '~'),
            prop_oneof![Just('.'), Just('/'), Just('%'), Just('+'), Just('\0')],
        ];
        proptest::collection::vec(chars, 1..=LONGEST_ID_BYTES).prop_map(|chars| {
            let mut id = String::new();
            for char in chars {
                if id.len() + char.len_utf8() <= LONGEST_ID_BYTES {
                    id.push(char);
                }
            }
            id
        })
    }

    proptest! {
        #[test]
        fn every_id_comes_back(id in any_id()) {
            let path = encode(&id).unwrap();
            prop_assert_eq!(decode(&path), Some(id));
        }

        #[test]
        fn every_path_is_safe(id in any_id()) {
            for component in encode(&id).unwrap().components() {
                let Component::Normal(name) = component else {
                    panic!("{component:?} leaves the directory");
                };
                let name = name.to_str().unwrap();
                prop_assert!(name.len() <= 255 && !name.starts_with('.') && name.is_ascii());
            }
        }

        #[test]
        fn two_ids_never_share_a_path(a in any_id(), b in any_id()) {
            prop_assume!(a != b);
            let (a, b) = (encode(&a).unwrap(), encode(&b).unwrap());
            // Nor does one lie inside the other's directory.
            prop_assert!(!a.starts_with(&b) && !b.starts_with(&a));
        }
    }

    #[test]
    fn ordinary_ids_stay_readable_and_odd_ones_stay_inside() {
        for (id, path) in [
            ("vol-1", "vol-1"),
            ("ebs.csi.aws.com", "ebs.csi.aws.com"),
            ("a/b c", "a%2Fb%20c"),
            ("..", "%2E."),
            (".state", "%2Estate"),
            ("50%+", "50%25%2B"),
            ("ä", "%C3%A4"),
        ] {
            assert_eq!(encode(id).unwrap(), Path::new(path));
        }
    }

    #[test]
    fn a_long_id_continues_in_a_directory() {
        let path = encode(&"/".repeat(LONGEST_ID_BYTES)).unwrap();
        let names: Vec<_> = path.iter().collect();
        assert_eq!(names.len(), 4);
        assert!(names[..3].iter().all(|name| is_continued(name)) && !is_continued(names[3]));
    }

    #[test]
    fn what_is_no_id_has_no_path_and_what_is_no_path_has_no_id() {
        assert_eq!(encode(""), None);
        assert_eq!(encode(&"x".repeat(LONGEST_ID_BYTES + 1)), None);
        for path in ["", "..", "a/b", "a+", "%2f", "%41", "%C3", "%zz", "%4", "/a", ".hidden"] {
            assert_eq!(decode(Path::new(path)), None, "{path:?}");
        }
    }
}
