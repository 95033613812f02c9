//! The mount table of this process, as far as it is asked about.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Whether something is mounted right at `path`, as this process sees it.
pub fn is_mount_point(path: &Path) -> io::Result<bool> {
    let path = fs::canonicalize(path)?;
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(points(&table).any(|point| point == path.as_os_str().as_bytes()))
}

/// The mount points at `root` and beneath it.
pub fn beneath(root: &Path) -> io::Result<Vec<String>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let points = points(&table).map(|point| String::from_utf8_lossy(&point).into_owned());
    Ok(points.filter(|point| Path::new(point).starts_with(root)).collect())
}

/// The fifth field of each line, with its escapes undone.
fn points(table: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescape)
}

/// Space, tab, line break and backslash stand as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                plain.push(byte);
                rest = &after[3..];
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes_undone() {
        let table = b"22 28 0:21 / /proc rw - proc proc rw\n\
            99 28 0:50 / /srv/a\\040b\\134c rw - tmpfs tmpfs rw\n";
        let found: Vec<Vec<u8>> = points(table).collect();
        assert_eq!(found, [b"/proc".to_vec(), b"/srv/a b\\c".to_vec()]);
    }

    #[test]
    fn this_machine_has_proc_mounted() {
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(!is_mount_point(Path::new("/proc/self")).unwrap());
        assert!(is_mount_point(Path::new("/nonexistent")).is_err());
        assert!(beneath(Path::new("/proc")).unwrap().contains(&"/proc".to_owned()));
    }
}
