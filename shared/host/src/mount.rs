//! One mount, as a mount table lists it.
//!
//! **Owns** the parser of a line of `/proc/PID/mountinfo` (`proc_pid_mountinfo(5)`).
//!
//! **Promises** that any path is understood: paths are bytes, and escapes are undone. (The crate
//! `procfs` refuses a whole table for one path that is not UTF-8, and leaves escapes in.)

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Major and minor number of a device.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceNumber {
    /// The driver's number.
    pub major: u32,
    /// The device's number at its driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// From `st_dev` or `st_rdev`.
    pub fn from_raw(number: u64) -> Self {
        Self { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
    }

    /// From `8:1`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl TryFrom<String> for DeviceNumber {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("a device number is written as MAJOR:MINOR")
    }
}

impl From<DeviceNumber> for String {
    fn from(number: DeviceNumber) -> Self {
        number.to_string()
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// One mount, as a mount table lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// The id may be reused after the mount is gone; see [`crate::identity`] for one that is not.
    pub id: u64,
    /// The id of the mount that this one lies upon. It may be missing from the table of a process
    /// in a chroot.
    pub parent: u64,
    /// The device of the file system. A btrfs subvolume's `st_dev` is another number.
    pub device: DeviceNumber,
    /// The directory or file of the file system that is mounted.
    pub root: PathBuf,
    /// The mount point, as seen from the process's root.
    pub point: PathBuf,
    /// Options of this mount alone, such as `ro,nosuid`.
    pub options: String,
    /// `shared:N`: mounts and unmounts below it appear at every member of peer group N.
    pub peer_group: Option<u64>,
    /// `master:N`: mounts and unmounts at peer group N appear below it as well.
    pub master: Option<u64>,
    /// Such as `ext4`.
    pub fs_type: String,
    /// Such as `/dev/vda1`, `server:/export` or any word.
    pub source: OsString,
    /// Options of the file system, for all of its mounts.
    pub fs_options: String,
}

impl Mount {
    /// Parses a line, without its line break; `None` when it has too few columns.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut mount = Self {
            id: number(fields.next()?)?,
            parent: number(fields.next()?)?,
            device: DeviceNumber::parse(std::str::from_utf8(fields.next()?).ok()?)?,
            root: unescape(fields.next()?).into(),
            point: unescape(fields.next()?).into(),
            options: text(fields.next()?),
            ..Self::default()
        };
        loop {
            let field = fields.next()?;
            if field == b"-" {
                break;
            } else if let Some(group) = field.strip_prefix(b"shared:") {
                mount.peer_group = Some(number(group)?);
            } else if let Some(group) = field.strip_prefix(b"master:") {
                mount.master = Some(number(group)?);
            }
        }
        mount.fs_type = text(fields.next()?);
        // A file system without a source leaves the column empty. Some kernels omit the last
        // column.
        mount.source = fields.next().map(unescape).unwrap_or_default();
        mount.fs_options = fields.next().map(text).unwrap_or_default();
        Some(mount)
    }

    /// Whether this mount, or its file system as a whole, has an option such as `ro`.
    pub fn has_option(&self, name: &str) -> bool {
        let has = |options: &str| options.split(',').any(|option| option == name);
        has(&self.options) || has(&self.fs_options)
    }

    /// Whether nothing can be written through this mount.
    pub fn is_read_only(&self) -> bool {
        self.has_option("ro")
    }

    /// The content that this mount shows, at whatever path.
    pub fn content(&self) -> MountContent {
        MountContent {
            device: self.device,
            root: self.root.to_string_lossy().into_owned(),
            fs_type: self.fs_type.clone(),
            source: self.source.to_string_lossy().into_owned(),
        }
    }
}

/// The content that a mount shows. It stays the same until the host reboots; then devices get other
/// numbers.
///
/// Paths that are not UTF-8 are kept with replacement characters, and compared in this form: two
/// different paths may compare equal, but equal paths never differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MountContent {
    /// The device of the file system.
    pub device: DeviceNumber,
    /// The directory or file of the file system.
    pub root: String,
    /// Such as `ext4`.
    pub fs_type: String,
    /// Such as `/dev/vda1`.
    pub source: String,
}

impl MountContent {
    /// Whether `mount` shows this content, or a part of it: the same device, at or below the same
    /// root. NFS lists every root as `/`, and distinguishes its directories by the source.
    pub fn is_shown_by(&self, mount: &Mount) -> bool {
        mount.device == self.device
            && is_at_or_below(&mount.root.to_string_lossy(), &self.root)
            && (!self.fs_type.starts_with("nfs")
                || Path::new(&*mount.source.to_string_lossy()).starts_with(&self.source))
    }
}

/// As [`Path::starts_with`], for paths as the kernel writes them. Several times faster: it is asked
/// of each mount of each namespace.
fn is_at_or_below(path: &str, dir: &str) -> bool {
    let within = path.strip_prefix(dir.strip_suffix('/').unwrap_or(dir));
    within.is_some_and(|within| within.is_empty() || within.starts_with('/'))
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    unescape(field).to_string_lossy().into_owned()
}

/// The kernel writes space, tab, line break and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    if !field.contains(&b'\\') {
        return OsString::from_vec(field.to_vec());
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut escaped = field;
    while let Some((&first, after)) = escaped.split_first() {
        let (byte, after) = match escaped {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after)
            }
            _ => (first, after),
        };
        plain.push(byte);
        escaped = after;
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_read() {
        let line = b"36 35 98:0 /mnt\\0401 /mnt/a\\134b rw,noatime shared:3 master:1 x - ext3 \
            /dev/root rw,errors=continue";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.id, mount.parent, mount.device.to_string().as_str()), (36, 35, "98:0"));
        assert_eq!(mount.root, Path::new("/mnt 1"));
        assert_eq!(mount.point, Path::new(r"/mnt/a\b"));
        assert_eq!((mount.peer_group, mount.master), (Some(3), Some(1)));
        assert_eq!((mount.fs_type.as_str(), mount.source.to_str()), ("ext3", Some("/dev/root")));
        assert!(mount.has_option("noatime") && mount.has_option("errors=continue"));
        assert!(!mount.is_read_only());
        let lines: [&[u8]; 3] = [b"", b"36 35 98:0", b"36 35 98:0 / /mnt rw shared:3"];
        assert!(lines.iter().all(|line| Mount::parse(line).is_none()));
    }

    #[test]
    fn escapes_are_undone_and_other_backslashes_stay() {
        for (written, meant) in
            [("/a", "/a"), (r"/a\040b", "/a b"), (r"/a\134040", r"/a\040"), (r"/a\9", r"/a\9")]
        {
            assert_eq!(unescape(written.as_bytes()), OsString::from(meant), "{written}");
        }
        assert_eq!(unescape(b"/\xff\\012").into_vec(), b"/\xff\n");
    }

    #[test]
    fn a_content_is_told_by_device_and_root_and_on_nfs_by_source() {
        let parse = |line: &str| Mount::parse(line.as_bytes()).unwrap();
        let ours = parse("30 22 8:1 /b/data /s/target rw - ext4 /dev/sda1 rw").content();
        for (line, shows) in [
            ("22 1 8:1 / / rw - ext4 /dev/sda1 rw", false),
            ("31 22 8:1 /b/data /data rw - ext4 /dev/other-name rw", true),
            ("31 22 8:1 /b/data/part /data rw - ext4 /dev/sda1 rw", true),
            ("32 22 8:1 /b/database /data rw - ext4 /dev/sda1 rw", false),
            ("32 22 8:1 /b/data//deleted /data rw - ext4 /dev/sda1 rw", true),
            ("33 22 8:2 /b/data /data rw - ext4 /dev/sdb1 rw", false),
        ] {
            assert_eq!(ours.is_shown_by(&parse(line)), shows, "{line}");
        }
        let whole = parse("22 1 8:1 / / rw - ext4 /dev/sda1 rw").content();
        assert!(whole.is_shown_by(&parse("31 22 8:1 /b/data /data rw - ext4 /dev/sda1 rw")));
        let ours = parse("30 22 0:50 / /s/target rw - nfs4 server:/export/a rw").content();
        for (source, shows) in
            [("server:/export/a", true), ("server:/export/a/b", true), ("server:/export/ab", false)]
        {
            let line = format!("31 22 0:50 / /data rw - nfs4 {source} rw");
            assert_eq!(ours.is_shown_by(&parse(&line)), shows, "{line}");
        }
    }
}
