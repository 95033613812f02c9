//! Mount tables: of this process, and of any other.
//!
//! **Owns** the reading of `/proc/PID/mountinfo`.
//!
//! **Promises** not to miss a mount because another was mounted or unmounted while the kernel wrote
//! the table out. Since Linux 5.8 no reading misses a mount that stays. Before that, two equal
//! readings in a row are needed; otherwise everything that any of several readings has counts as
//! mounted. What cannot be read is an error, never an absence (unknown is in use). Concurrent
//! callers share a reading that began after all of their calls. While several callers wait, there
//! is a rest between two readings: a table with many volumes is long, and the kernel unmounts
//! nothing while it is read.
//!
//! **Never** touches a mount point: a `stat` on a dead mount hangs for ever.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::iter;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use thiserror::Error;

use crate::mount::{DeviceNumber, Mount};
use crate::process::unless_ended;
use crate::readings::SharedReadings;

const TABLE: &str = "/proc/self/mountinfo";
/// The kernel's suffix of a root that was deleted (proc(5), `mountinfo`). No path has two slashes
/// in a row.
const DELETED: &str = "//deleted";
/// The first buffer for a table, in bytes: room for about a hundred mounts.
const BUFFER_BYTES: usize = 16 * 1024;
/// Most readings in search of two equal ones, with a kernel that may miss a mount. A node that
/// unmounts dozens of volumes at once changes the table all the time, and the table is long: more
/// readings would delay the unmounts.
const READINGS_MAX: usize = 3;
/// The first kernel that misses no mount (its commit 9f6c61f96f2d).
const MISSES_NONE: (u32, u32) = (5, 8);

/// Why the mounts are not known.
#[derive(Debug, Error)]
pub enum MountTableError {
    /// The kernel gave no table.
    #[error("the mount table {TABLE} cannot be read")]
    Read(#[from] io::Error),
    /// A line of the table has too few columns.
    #[error("the mount table {TABLE} has a line that is none: {0:?}")]
    Line(String),
}

static READINGS: SharedReadings<MountTable> = SharedReadings::new(TABLE);
/// Whether one reading is enough.
static MISSES_NO_MOUNT: LazyLock<bool> = LazyLock::new(|| {
    fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| misses_no_mount(&release))
});

/// Every mount that a process sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable {
    /// In the kernel's order: of two mounts at one path the later one lies on top.
    mounts: Vec<Mount>,
    /// Their indices, by path; of those at one path the topmost last. Paths are compared byte by
    /// byte, which is several times faster than as paths.
    by_point: Vec<usize>,
}

impl MountTable {
    /// The table at some moment after the call; read off the async threads.
    pub async fn read() -> Result<Arc<Self>, MountTableError> {
        READINGS.read(Self::read_blocking).await
    }

    /// Reads the table, on this thread.
    pub fn read_blocking() -> Result<Self, MountTableError> {
        if *MISSES_NO_MOUNT {
            return Self::parse(&read_file(TABLE).map_err(MountTableError::Read)?);
        }
        Self::read_settled(|| read_file(TABLE))
    }

    fn read_settled(
        mut read: impl FnMut() -> io::Result<Vec<u8>>,
    ) -> Result<Self, MountTableError> {
        let mut last = read().map_err(MountTableError::Read)?;
        let mut seen = Self::parse(&last)?.mounts;
        for _ in 1..READINGS_MAX {
            let next_reading = read().map_err(MountTableError::Read)?;
            let is_settled = next_reading == last;
            last = next_reading;
            let newest = Self::parse(&last)?;
            if is_settled {
                return Ok(newest);
            }
            seen.retain(|mount| !newest.mounts.contains(mount));
            seen.extend(newest.mounts);
        }
        Ok(seen.into_iter().collect())
    }

    /// The table of another process; `None` if it has ended, or has no mounts. A process in a
    /// chroot sees only the mounts below its root.
    pub fn read_of(pid: u32) -> Result<Option<Self>, MountTableError> {
        let table = unless_ended(read_file(&format!("/proc/{pid}/mountinfo")));
        table.map_err(MountTableError::Read)?.map(|table| Self::parse(&table)).transpose()
    }

    fn parse(table: &[u8]) -> Result<Self, MountTableError> {
        let lines = table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let parse = |line: &[u8]| {
            let unread = || MountTableError::Line(String::from_utf8_lossy(line).into_owned());
            Mount::parse(line).ok_or_else(unread)
        };
        lines.map(parse).collect()
    }

    /// Every mount, oldest first.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The mounts at exactly this path, the topmost last.
    pub fn all_at(&self, path: &Path) -> impl DoubleEndedIterator<Item = &Mount> {
        self.indexed(self.range_at(path))
    }

    /// The topmost mount at exactly this path.
    pub fn top_at(&self, path: &Path) -> Option<&Mount> {
        self.all_at(path).next_back()
    }

    /// The mounts at this directory and below it.
    pub fn within(&self, dir: &Path) -> impl Iterator<Item = &Mount> {
        self.all_at(dir).chain(self.indexed(self.range_beneath(dir)))
    }

    /// The mounts that are neither at this directory nor below it.
    pub fn outside(&self, dir: &Path) -> impl Iterator<Item = &Mount> {
        // A path that begins with the directory's, and goes on with a byte before the slash, lies
        // between the two ranges.
        let (at, beneath) = (self.range_at(dir), self.range_beneath(dir));
        let ranges = [0..at.start, at.end..beneath.start, beneath.end..self.by_point.len()];
        ranges.into_iter().flat_map(|range| self.indexed(range))
    }

    /// The directory that the topmost mount at this path shows, if it was deleted. The mount still
    /// answers, but what is written there is lost, because no path leads to it.
    pub fn deleted_source(&self, path: &Path) -> Option<PathBuf> {
        let root = self.top_at(path)?.root.as_os_str().as_bytes();
        let source = root.strip_suffix(DELETED.as_bytes())?;
        Some(PathBuf::from(OsStr::from_bytes(source)))
    }

    /// The mount with this id.
    pub fn by_id(&self, id: u64) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.id == id)
    }

    /// The location of the mount: the file system that it lies upon, and the path in it. It is the
    /// same in every mount namespace to which mounts there propagate. `None` if the mount below is
    /// not in the table.
    pub fn place_of(&self, mount: &Mount) -> Option<MountPlace> {
        let parent = self.by_id(mount.parent)?;
        let within = mount.point.strip_prefix(&parent.point).ok()?;
        Some(MountPlace {
            device: parent.device,
            path: parent.root.join(within),
            propagates: parent.peer_group.is_some() || parent.master.is_some(),
        })
    }

    /// The locations of the mounts that lie on top of this mount or within it, and of those upon
    /// them. `None` stands for one that is not known, or has another content.
    pub fn places_above(&self, mount: &Mount) -> Vec<Option<MountPlace>> {
        let mut above: Vec<&Mount> = Vec::new();
        let mut below = vec![mount.id];
        while let Some(id) = below.pop() {
            let upon = self.mounts.iter().filter(|one| one.parent == id && one.id != mount.id);
            for one in upon {
                if !above.iter().any(|known| known.id == one.id) {
                    above.push(one);
                    below.push(one.id);
                }
            }
        }
        let content = mount.content();
        let place = |one: &Mount| self.place_of(one).filter(|_| one.content() == content);
        above.into_iter().map(place).collect()
    }

    /// Whether a mount lies at exactly this path.
    pub fn has(&self, path: &Path) -> bool {
        !self.range_at(path).is_empty()
    }

    /// The paths of mounts below this directory, each once, without the directory itself.
    pub fn beneath(&self, dir: &Path) -> impl Iterator<Item = &Path> {
        let mut mounts = self.indexed(self.range_beneath(dir)).peekable();
        iter::from_fn(move || {
            let point = mounts.next()?.point.as_path();
            while mounts.next_if(|next| bytes(&next.point) == bytes(point)).is_some() {}
            Some(point)
        })
    }

    fn range_at(&self, path: &Path) -> Range<usize> {
        let start = self.count_before(|point| point < bytes(path));
        start..self.count_before(|point| point <= bytes(path))
    }

    /// Paths below the directory begin with it and a slash, so they are adjacent.
    fn range_beneath(&self, dir: &Path) -> Range<usize> {
        let dir = bytes(dir).strip_suffix(b"/").unwrap_or(bytes(dir));
        // `0` is the byte after the slash.
        let (first, after) = ([dir, b"/"].concat(), [dir, b"0"].concat());
        self.count_before(|point| point <= &*first)..self.count_before(|point| point < &*after)
    }

    /// The number of mounts whose paths come before the others.
    fn count_before(&self, comes_before: impl Fn(&[u8]) -> bool) -> usize {
        let is_before = |index: &usize| {
            self.mounts.get(*index).is_some_and(|mount| comes_before(bytes(&mount.point)))
        };
        self.by_point.partition_point(is_before)
    }

    fn indexed(&self, range: Range<usize>) -> impl DoubleEndedIterator<Item = &Mount> {
        let indices = self.by_point.get(range).unwrap_or_default();
        indices.iter().filter_map(|index| self.mounts.get(*index))
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The location of a mount, whatever namespace it is seen from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPlace {
    /// The file system that it is mounted upon.
    pub device: DeviceNumber,
    /// The directory or file of the file system that the mount lies upon.
    pub path: PathBuf,
    /// Whether an unmount elsewhere may remove this mount, too: the mount below has peers, or a
    /// master.
    pub propagates: bool,
}

impl MountPlace {
    /// Whether an unmount at `other` may remove the mount at this place.
    pub fn may_go_with(&self, other: &Self) -> bool {
        self.propagates
            && other.propagates
            && (self.device, &self.path) == (other.device, &other.path)
    }
}

impl FromIterator<Mount> for MountTable {
    fn from_iter<I: IntoIterator<Item = Mount>>(mounts: I) -> Self {
        let mounts: Vec<Mount> = mounts.into_iter().collect();
        let mut indexed: Vec<(usize, &Mount)> = mounts.iter().enumerate().collect();
        // Stable: mounts at one path keep their order.
        indexed.sort_by(|(_, one), (_, other)| bytes(&one.point).cmp(bytes(&other.point)));
        Self { by_point: indexed.into_iter().map(|(index, _)| index).collect(), mounts }
    }
}

/// Reads a file whose size the kernel does not tell. Beginning with a large buffer saves most of
/// the system calls, each of which stops mounts and unmounts for a moment.
fn read_file(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(BUFFER_BYTES);
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a kernel of this release writes out every mount that stays while it writes.
fn misses_no_mount(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version.is_some_and(|version| version >= MISSES_NONE)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

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
        let top = table.top_at(Path::new("/s/csi/a b")).unwrap();
        assert_eq!((top.id, top.root.as_path()), (30, Path::new("/x y")));
        assert_eq!(table.by_id(31).unwrap().point, Path::new("/s/csi/a b/deeper"));
    }

    #[test]
    fn a_mount_of_a_deleted_directory_names_it() {
        let lines = "30 28 0:99 /vol\\040a/data//deleted /s rw - ext4 /dev/vda1 rw\n\
            31 28 0:99 /b/deleted /t rw - ext4 /dev/vda1 rw\n";
        let table = MountTable::parse(lines.as_bytes()).unwrap();
        let source = |path: &str| table.deleted_source(Path::new(path));
        assert_eq!(source("/s"), Some(PathBuf::from("/vol a/data")));
        assert_eq!((source("/t"), source("/u")), (None, None));
    }

    #[test]
    fn the_topmost_of_two_mounts_at_one_path_counts() {
        let lines =
            "30 28 0:99 / /s rw - ext4 /dev/vda1 rw\n31 30 0:99 / /s ro - ext4 /dev/vda1 rw\n";
        let table = MountTable::parse(lines.as_bytes()).unwrap();
        assert!(table.top_at(Path::new("/s")).unwrap().is_read_only());
        assert_eq!(table.mounts().len(), 2);
        let ids: Vec<u64> = table.all_at(Path::new("/s")).map(|mount| mount.id).collect();
        assert_eq!(ids, [30, 31]);
        assert_eq!(table.beneath(Path::new("/")).count(), 1, "one path");
    }

    #[test]
    fn each_mount_is_within_a_directory_or_outside_of_it() {
        let points = ["/s/a/x", "/s/a", "/", "/s/a b", "/s/a0", "/s/a", "/s/a-b/y", "/s", "/t"];
        let mount = |point: &str| Mount { point: point.into(), ..Mount::default() };
        let table: MountTable = points.map(mount).into_iter().collect();
        for dir in ["/", "/s", "/s/a", "/s/a b", "/s/b", "/t", "/u"].map(Path::new) {
            let mut within: Vec<&Path> = table.within(dir).map(|one| one.point.as_path()).collect();
            let mut outside: Vec<&Path> =
                table.outside(dir).map(|one| one.point.as_path()).collect();
            assert!(within.iter().all(|point| point.starts_with(dir)), "{dir:?}: {within:?}");
            assert!(!outside.iter().any(|point| point.starts_with(dir)), "{dir:?}: {outside:?}");
            let mut beneath: Vec<&Path> = table.beneath(dir).collect();
            beneath.extend(table.has(dir).then_some(dir));
            let unique = |points: &mut Vec<&Path>| {
                points.sort();
                points.dedup();
            };
            assert_eq!(within.len() + outside.len(), points.len(), "{dir:?}");
            unique(&mut within);
            unique(&mut outside);
            beneath.sort();
            assert_eq!(beneath, within, "{dir:?}");
        }
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
        let parse = |lines: &[&str]| MountTable::parse(lines.join("\n").as_bytes()).unwrap();
        assert_eq!(read([&lines[..1], &lines, &lines]), parse(&lines));
        assert_eq!(read([&lines, &lines[..1], &lines[..1]]), parse(&lines[..1]));
        let restless = read([&lines[..2], &lines[1..3], &lines[3..4]]);
        assert_eq!(restless, parse(&lines[..4]), "unknown is in use");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_asks_after_a_reading_began_is_given_a_later_one() {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..64 {
            tasks.spawn(async {
                let before = READINGS.asked.load(Ordering::SeqCst);
                MountTable::read().await.unwrap();
                // The returned reading counted this call, and so began after it.
                let last = READINGS.last.lock().await.as_ref().map(|reading| reading.asked);
                assert!(last.unwrap() > before, "{last:?} {before}");
            });
        }
        tasks.join_all().await;
        assert!(READINGS.asked.load(Ordering::SeqCst) >= 64);
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

    #[test]
    fn the_table_of_another_process_is_read_while_it_runs() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(MountTable::read_of(child.id()).unwrap().unwrap().has(Path::new("/proc")));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(MountTable::read_of(child.id()).unwrap(), None);
    }

    #[tokio::test]
    async fn the_kernels_own_table_is_understood() {
        assert!(MountTable::read().await.unwrap().has(Path::new("/proc")));
    }
}
