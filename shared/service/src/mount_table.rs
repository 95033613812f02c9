//! What is mounted here.
//!
//! **Owns** the reading of `/proc/self/mountinfo`.
//!
//! **Promises** not to miss a mount because another came or went while the kernel wrote the table
//! out: since Linux 5.8 no reading misses a mount that stays, and before that two readings in a row
//! agree, or what any of several saw counts as mounted; and that what cannot be read is an error,
//! never an absence (unknown is in use). Those who ask at the same time share a reading that began
//! after all of them had asked, and between two readings there is a rest: a table is long where
//! many volumes are, they come and go together, and the kernel unmounts nothing while it is read.
//!
//! **Never** touches a mount point: a `stat` on a dead mount hangs for ever.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

const TABLE: &str = "/proc/self/mountinfo";
/// The mount point's column (proc(5)).
const MOUNT_POINT: usize = 4;
/// How often the table is read in search of two equal readings, by a kernel that may miss a mount.
/// A node that unmounts dozens of volumes at once changes it all the time, and its table is long:
/// more readings would take turns with the unmounts.
const READINGS_MAX: usize = 3;
/// The first kernel that misses none (its commit 9f6c61f96f2d).
const MISSES_NONE: (u32, u32) = (5, 8);
/// So many times as long as a reading took, the next one waits, but not longer than anybody who
/// unmounts one volume would notice.
const REST: u32 = 8;
const REST_MAX: Duration = Duration::from_millis(25);

/// Why it is not known what is mounted.
#[derive(Debug, Error)]
pub enum MountTableError {
    /// The kernel gave no table.
    #[error("the mount table {TABLE} cannot be read")]
    Read(#[source] io::Error),
    /// A line of the table has too few columns.
    #[error("the mount table {TABLE} has a line that is none: {0:?}")]
    Line(String),
}

/// How many have asked for a reading.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// The last reading.
static LAST: Mutex<Option<Reading>> = Mutex::const_new(None);
/// Whether one reading is enough.
static MISSES_NO_MOUNT: LazyLock<bool> = LazyLock::new(|| {
    fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| misses_no_mount(&release))
});

/// A reading that is shared.
struct Reading {
    /// How many had asked before it began.
    asked: u64,
    table: Arc<MountTable>,
    /// Before this the table is not read again.
    rest_until: Instant,
}

/// Every mount point, as this process sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable {
    // Compared byte by byte, which is several times faster than as paths.
    points: BTreeSet<OsString>,
}

impl MountTable {
    /// The table as it was at some moment after this was asked; read off the async threads.
    pub async fn read() -> Result<Arc<Self>, MountTableError> {
        let ticket = ASKED.fetch_add(1, Ordering::SeqCst);
        let mut last = LAST.lock().await;
        if let Some(reading) = &*last {
            if ticket < reading.asked {
                return Ok(Arc::clone(&reading.table));
            }
            sleep_until(reading.rest_until).await;
        }
        let (asked, began) = (ASKED.load(Ordering::SeqCst), Instant::now());
        let read = tokio::task::spawn_blocking(Self::read_blocking);
        let read = read.await.map_err(|error| MountTableError::Read(io::Error::other(error)))?;
        let table = Arc::new(read?);
        let rest_until = Instant::now() + (began.elapsed() * REST).min(REST_MAX);
        *last = Some(Reading { asked, table: Arc::clone(&table), rest_until });
        Ok(table)
    }

    /// Reads the table, on this thread.
    pub fn read_blocking() -> Result<Self, MountTableError> {
        if *MISSES_NO_MOUNT {
            return Self::parse(&fs::read(TABLE).map_err(MountTableError::Read)?);
        }
        Self::read_settled(|| fs::read(TABLE))
    }

    fn read_settled(
        mut read: impl FnMut() -> io::Result<Vec<u8>>,
    ) -> Result<Self, MountTableError> {
        let mut last = read().map_err(MountTableError::Read)?;
        let mut seen = Self::parse(&last)?;
        for _ in 1..READINGS_MAX {
            let next = read().map_err(MountTableError::Read)?;
            let is_settled = next == last;
            last = next;
            if is_settled {
                return Self::parse(&last);
            }
            seen.points.extend(Self::parse(&last)?.points);
        }
        Ok(seen)
    }

    fn parse(table: &[u8]) -> Result<Self, MountTableError> {
        let lines = table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let point = |line: &[u8]| {
            let field = line.split(|byte| *byte == b' ').nth(MOUNT_POINT);
            field
                .map(unescape)
                .ok_or_else(|| MountTableError::Line(String::from_utf8_lossy(line).into_owned()))
        };
        Ok(Self { points: lines.map(point).collect::<Result<_, _>>()? })
    }

    /// Whether something is mounted at exactly this path.
    pub fn has(&self, path: &Path) -> bool {
        self.points.contains(path.as_os_str())
    }

    /// What is mounted below this directory, itself not included.
    pub fn beneath<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = &'a Path> {
        // Those below begin with it and a slash, and so stand together.
        let mut below = dir.as_os_str().to_owned();
        if dir != Path::new("/") {
            below.push("/");
        }
        let points = self.points.range(below..).map(Path::new);
        points.take_while(move |point| point.starts_with(dir)).filter(move |point| *point != dir)
    }
}

impl<P: Into<OsString>> FromIterator<P> for MountTable {
    fn from_iter<I: IntoIterator<Item = P>>(points: I) -> Self {
        Self { points: points.into_iter().map(Into::into).collect() }
    }
}

/// Whether a kernel of this release writes out every mount that stays while it writes.
fn misses_no_mount(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version.is_some_and(|version| version >= MISSES_NONE)
}

/// The kernel writes space, tab, line break and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    if !field.contains(&b'\\') {
        return OsString::from_vec(field.to_vec());
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after)
            }
            _ => (first, after),
        };
        plain.push(byte);
        rest = after;
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
        22 28 0:21 / /proc rw,nosuid - proc proc rw\n\
        28 0 252:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
        30 28 0:99 /x\\040y /s/csi/a\\040b rw - ext4 /dev/vda1 rw\n\
        31 28 0:99 / /s/csi/a\\040b/deeper rw - ext4 /dev/vda1 rw\n\
        32 28 0:99 / /s/csi/a\\040bc rw - ext4 /dev/vda1 rw\n";

    #[test]
    fn mount_points_are_read_as_they_are() {
        let table = MountTable::parse(LINES.as_bytes()).unwrap();
        assert!(table.has(Path::new("/")) && table.has(Path::new("/s/csi/a b")));
        assert!(!table.has(Path::new("/s")));
        let beneath: Vec<&Path> = table.beneath(Path::new("/s/csi/a b")).collect();
        assert_eq!(beneath, [Path::new("/s/csi/a b/deeper")]);
        assert_eq!(table.beneath(Path::new("/s/csi")).count(), 3);
        assert_eq!(table.beneath(Path::new("/s/cs")).count(), 0);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let error = MountTable::parse(b"22 28 0:21\n").unwrap_err();
        assert!(matches!(error, MountTableError::Line(_)), "{error}");
        let failed = MountTable::read_settled(|| Err(io::Error::other("no"))).unwrap_err();
        assert!(matches!(failed, MountTableError::Read(_)), "{failed}");
    }

    #[test]
    fn what_any_reading_saw_is_mounted_unless_two_in_a_row_agree() {
        let lines: Vec<&str> = LINES.lines().collect();
        let read = |tables: [&[&str]; READINGS_MAX]| {
            let mut tables = tables.into_iter();
            MountTable::read_settled(|| Ok(tables.next().unwrap().join("\n").into())).unwrap()
        };
        let points = |lines: &[&str]| MountTable::parse(lines.join("\n").as_bytes()).unwrap();
        assert_eq!(read([&lines[..1], &lines, &lines]), points(&lines));
        assert_eq!(read([&lines, &lines[..1], &lines[..1]]), points(&lines[..1]));
        let restless = read([&lines[..2], &lines[1..3], &lines[3..4]]);
        assert_eq!(restless, points(&lines[..4]), "unknown is in use");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_asks_after_a_reading_began_is_given_a_later_one() {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..64 {
            tasks.spawn(async {
                let before = ASKED.load(Ordering::SeqCst);
                MountTable::read().await.unwrap();
                // The reading that was given counted this asking, and so began after it.
                let last = LAST.lock().await.as_ref().map(|reading| reading.asked);
                assert!(last.unwrap() > before, "{last:?} {before}");
            });
        }
        tasks.join_all().await;
        assert!(ASKED.load(Ordering::SeqCst) >= 64);
    }

    #[test]
    fn a_kernel_that_may_miss_a_mount_is_told_by_its_release() {
        for release in ["5.8.0", "5.10.0-30-amd64", "6.18.44-fc-v445\n", "10.0"] {
            assert!(misses_no_mount(release), "{release}");
        }
        for release in ["5.7.19", "4.19.0-27-amd64", "5", "", "linux", "3.10.0-1160.el7.x86_64"] {
            assert!(!misses_no_mount(release), "{release}");
        }
    }

    #[tokio::test]
    async fn the_kernels_own_table_is_understood() {
        assert!(MountTable::read().await.unwrap().has(Path::new("/proc")));
    }
}
