//! The kernel's mount table.
//!
//! Owns: reading the form of `/proc/<pid>/mountinfo` (proc(5)). Promises: any path is understood.
//! Never: reads the file itself.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The options of the topmost mount at `place`; `None` if nothing is mounted there.
pub(super) fn options_at(table: &[u8], place: &Path) -> Option<Vec<String>> {
    // Mounts at the same place are listed oldest first; the newest lies on top.
    table.split(|byte| *byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(4);
        let (point, options) = (fields.next()?, fields.next()?);
        let options = || String::from_utf8_lossy(options).split(',').map(str::to_owned).collect();
        (unescape(point) == place).then(options)
    })
}

/// Space, tab, line break and backslash are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    if !field.contains(&b'\\') {
        return OsString::from_vec(field.to_vec()).into();
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let (meant, after) = match (byte, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after)
            }
            _ => (byte, after),
        };
        plain.push(meant);
        rest = after;
    }
    OsString::from_vec(plain).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 254:0 /v/data /tmp/a\\040b rw,nosuid,relatime shared:7 - ext4 /dev/vda rw
41 40 254:0 /v/data /tmp/a\\040b ro,relatime - ext4 /dev/vda rw
42 22 0:50 / /tmp/back\\134slash rw - tmpfs none rw
";

    #[test]
    fn the_topmost_mount_of_a_place_counts() {
        let options = options_at(TABLE, Path::new("/tmp/a b"));
        assert_eq!(options, Some(vec!["ro".to_owned(), "relatime".to_owned()]));
        assert_eq!(options_at(TABLE, Path::new("/")).unwrap()[0], "rw");
        assert_eq!(options_at(TABLE, Path::new(r"/tmp/back\slash")), Some(vec!["rw".to_owned()]));
    }

    #[test]
    fn other_places_have_none() {
        for place in ["/tmp", "/tmp/a", "/tmp/a b/c", r"/tmp/a\040b"] {
            assert_eq!(options_at(TABLE, Path::new(place)), None, "{place}");
        }
    }
}
