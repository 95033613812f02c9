//! The processes of the host that have a mount.
//!
//! **Owns** the comparison of all mount tables. A process may have a volume at another path, in a
//! mount namespace of its own; the device and the root within it show that it is the same.
//!
//! **Promises** that each namespace is read, once for each root directory of its processes (a
//! process in a chroot sees a part of its table), and that what cannot be read is an error (unknown
//! is in use). Namespaces that appear during the reading are read, too.
//!
//! **Never** touches a mount: a `stat` on a dead one hangs for ever. It does not see a namespace
//! that is kept without a process, nor a file that is open in a mount that was detached lazily.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::mount::{Mount, MountContent};
use crate::process::{list_pids, read_mount_namespace, read_stat, unless_ended};
use crate::readings::SharedReadings;
use crate::table::{MountPlace, MountTable, MountTableError};

/// Most listings of `/proc` in one reading, while new namespaces appear.
const LISTINGS_MAX: usize = 4;
/// Most processes of one namespace that are named.
const PROCESSES_NAMED_MAX: usize = 4;

static READINGS: SharedReadings<HostMounts> = SharedReadings::new("/proc");

/// Distinguishes the views of the mounts: the namespace, and the root directory in it.
type ViewKey = (PathBuf, PathBuf);

/// The mounts of every process.
#[derive(Debug, Default)]
pub struct HostMounts {
    views: Vec<MountView>,
}

/// The mounts that some processes see.
#[derive(Debug)]
struct MountView {
    /// Such as `mnt:[4026531841]`; `None` if this process may not read it.
    namespace: Option<PathBuf>,
    pids: Vec<u32>,
    table: MountTable,
}

/// A mount of some content, and the processes that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The mount, with its path as these processes see it.
    pub mount: Mount,
    /// The location of the mount, which is the same in every namespace.
    place: Option<MountPlace>,
    /// The locations of the mounts that lie on top of it or within it, and of those upon them.
    /// `None` for one that is not known, or has another content.
    above: Vec<Option<MountPlace>>,
    /// Their mount namespace, such as `mnt:[4026531841]`.
    pub namespace: String,
    /// Whether this is the namespace of this process.
    pub is_own: bool,
    /// The first few processes, with their names.
    pub processes: Vec<HolderProcess>,
    /// The number of further processes.
    pub more: usize,
}

/// A process with its name, such as one of a holder's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderProcess {
    /// Its id.
    pub pid: u32,
    /// Its name, as in `/proc/PID/comm`. Its arguments may hold secrets.
    pub command: String,
}

impl Holder {
    /// Whether the kernel removes this mount when the mounts at these places are unmounted, the
    /// upper ones first. A mount stays while another one lies on top of it or within it. So it goes
    /// only if they all go, and are mounts of the same: a driver that publishes twice leaves two,
    /// one on the other. Any other mount on top or within was made by somebody who uses the volume.
    pub fn may_go_with(&self, places: &[MountPlace]) -> bool {
        let goes = |at: &Option<MountPlace>| {
            at.as_ref().is_some_and(|at| places.iter().any(|other| at.may_go_with(other)))
        };
        goes(&self.place) && self.above.iter().all(goes)
    }
}

impl Holder {
    /// Whether this is a copy, in another mount namespace, of the mount of this content at this
    /// path: the copy that a new namespace gets of each mount. It lies at the same path and upon
    /// the same directory or file, no mount is on top of it, and an unmount there propagates
    /// nowhere.
    pub fn is_copy_of(&self, content: &MountContent, path: &Path, upon: &MountPlace) -> bool {
        let shows_all = content.is_shown_by(&self.mount)
            && self.mount.root.to_string_lossy() == content.root.as_str();
        let lies_upon = |place: &MountPlace| {
            !place.propagates && (place.device, &place.path) == (upon.device, &upon.path)
        };
        !self.is_own
            && self.above.is_empty()
            && self.mount.point == path
            && shows_all
            && self.place.as_ref().is_some_and(lies_upon)
    }
}

/// The process with its name, which is empty if the process has ended.
pub fn name_process(pid: u32) -> HolderProcess {
    name_running(pid).unwrap_or_else(|| HolderProcess { pid, command: "ended".to_owned() })
}

/// The process with its name. `None` if it has ended.
pub(crate) fn name_running(pid: u32) -> Option<HolderProcess> {
    let stat = read_stat(pid).ok().flatten()?;
    Some(HolderProcess { pid, command: stat.comm })
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_own {
            write!(f, "it is mounted at {} in the agent's", self.mount.point.display())?;
            return write!(f, " own mount namespace {}", self.namespace);
        }
        for (index, process) in self.processes.iter().enumerate() {
            let before = if index == 0 { "process " } else { ", process " };
            write!(f, "{before}{} ({})", process.pid, process.command)?;
        }
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        let verb = if self.processes.len() + self.more == 1 { "has" } else { "have" };
        let point = self.mount.point.display();
        write!(f, " {verb} it mounted at {point} in mount namespace {}", self.namespace)
    }
}

impl HostMounts {
    /// The mounts at some moment after the call; read off the async threads.
    pub async fn read() -> Result<Arc<Self>, MountTableError> {
        READINGS.read(Self::read_blocking).await
    }

    /// Reads all of `/proc`, on this thread.
    pub fn read_blocking() -> Result<Self, MountTableError> {
        let mut host_mounts = Self::default();
        let mut views_by_key: HashMap<ViewKey, usize> = HashMap::new();
        let mut seen = HashSet::new();
        for _ in 0..LISTINGS_MAX {
            let before = host_mounts.views.len();
            for pid in list_pids()? {
                if seen.insert(pid) {
                    host_mounts.add(pid, &mut views_by_key)?;
                }
            }
            if host_mounts.views.len() == before {
                break;
            }
        }
        Ok(host_mounts)
    }

    fn add(
        &mut self,
        pid: u32,
        views_by_key: &mut HashMap<ViewKey, usize>,
    ) -> Result<(), MountTableError> {
        let Some(namespace) = unless_denied(read_mount_namespace(pid))? else { return Ok(()) };
        let root = unless_ended(fs::read_link(format!("/proc/{pid}/root")));
        let Some(root) = unless_denied(root)? else { return Ok(()) };
        // Without both, it is not known whether another process sees the same mounts.
        let key = namespace.clone().zip(root);
        let index = key.as_ref().and_then(|key| views_by_key.get(key));
        if let Some(view) = index.and_then(|index| self.views.get_mut(*index)) {
            view.pids.push(pid);
            return Ok(());
        }
        let Some(table) = MountTable::read_of(pid)? else { return Ok(()) };
        if let Some(key) = key {
            views_by_key.insert(key, self.views.len());
        }
        self.views.push(MountView { namespace, pids: vec![pid], table });
        Ok(())
    }

    /// Every mount that shows one of these contents, or a part of one, each once. The kernel gives
    /// no two mounts the same id, in any namespaces. So a process whose namespace is unknown is
    /// recognized by the ids of its mounts.
    pub fn holders_of(&self, contents: &[MountContent]) -> Vec<Holder> {
        let own = std::process::id();
        let mut holders: Vec<Holder> = Vec::new();
        let mut by_id: HashMap<u64, usize> = HashMap::new();
        for view in &self.views {
            let is_own = view.pids.contains(&own);
            let is_shown =
                |mount: &&Mount| contents.iter().any(|content| content.is_shown_by(mount));
            for mount in view.table.mounts().iter().filter(is_shown) {
                let namespace = view.namespace.as_ref().map(|name| name.display().to_string());
                let known = by_id.get(&mount.id).and_then(|index| holders.get_mut(*index));
                if let Some(holder) = known.filter(|one| one.mount.device == mount.device) {
                    holder.more += view.pids.len();
                    if is_own {
                        holder.mount = mount.clone();
                        holder.is_own = true;
                    }
                    holder.above.extend(view.table.places_above(mount));
                    holder.place = view.table.place_of(mount).or(holder.place.take());
                    holder.namespace = namespace.unwrap_or_else(|| holder.namespace.clone());
                    continue;
                }
                by_id.insert(mount.id, holders.len());
                let named = view.pids.iter().take(PROCESSES_NAMED_MAX);
                let processes: Vec<HolderProcess> = named.map(|pid| name_process(*pid)).collect();
                holders.push(Holder {
                    mount: mount.clone(),
                    place: view.table.place_of(mount),
                    above: view.table.places_above(mount),
                    namespace: namespace.unwrap_or_else(|| "unknown".to_owned()),
                    is_own,
                    more: view.pids.len() - processes.len(),
                    processes,
                });
            }
        }
        holders
    }
}

/// `Some(None)` for a process with more privileges than this one, whose mount table may still be
/// readable (proc(5)). `None` if it has ended.
#[expect(clippy::option_option, reason = "ended, hidden from us, and known are three answers")]
fn unless_denied(read: io::Result<Option<PathBuf>>) -> io::Result<Option<Option<PathBuf>>> {
    match read {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(Some(None)),
        read => Ok(read?.map(Some)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::DeviceNumber;

    #[test]
    fn every_mount_of_a_content_is_found_with_its_processes() {
        let host_mounts = HostMounts::read_blocking().unwrap();
        let own = MountTable::read_blocking().unwrap();
        let content = own.top_at(Path::new("/proc")).unwrap().content();
        let holders = host_mounts.holders_of(&[content]);
        let ours =
            holders.iter().find(|holder| holder.is_own && holder.mount.point == Path::new("/proc"));
        let ours = ours.unwrap();
        assert!(!ours.processes.is_empty() && ours.namespace.starts_with("mnt:["), "{ours:?}");
        assert!(ours.to_string().contains("the agent's own mount namespace mnt:["), "{ours}");
        assert!(host_mounts.holders_of(&[]).is_empty());
    }

    #[test]
    fn a_copy_is_told_from_a_mount_of_the_same_that_somebody_made() {
        let parse = |line: &str| Mount::parse(line.as_bytes()).unwrap();
        let ours = parse("30 22 8:1 /b/data /s/target rw - ext4 /dev/sda1 rw");
        let upon = |path: &str, propagates| MountPlace {
            device: DeviceNumber { major: 8, minor: 2 },
            path: path.into(),
            propagates,
        };
        let holder = |line: &str, place| Holder {
            mount: parse(line),
            place: Some(place),
            above: Vec::new(),
            namespace: "mnt:[7]".to_owned(),
            is_own: false,
            processes: Vec::new(),
            more: 0,
        };
        let (same, at) =
            ("31 23 8:1 /b/data /s/target rw - ext4 /dev/sda1 rw", Path::new("/s/target"));
        let is_copy =
            |holder: &Holder| holder.is_copy_of(&ours.content(), at, &upon("/s/target", false));
        let copy = holder(same, upon("/s/target", false));
        assert!(is_copy(&copy));
        for (not_a_copy, why) in [
            (Holder { is_own: true, ..copy.clone() }, "it is in our own namespace"),
            (Holder { above: vec![None], ..copy.clone() }, "something is mounted upon it"),
            (holder(same, upon("/s/target", true)), "an unmount there is one elsewhere, too"),
            (holder(same, upon("/other", false)), "it lies upon another directory"),
            (Holder { place: None, ..copy.clone() }, "it is not known what it lies upon"),
            (holder(&same.replace("/s/target", "/t"), upon("/s/target", false)), "another path"),
            (holder(&same.replace("/b/data", "/b/data/x"), upon("/s/target", false)), "a part"),
            (holder(&same.replace("8:1", "8:3"), upon("/s/target", false)), "another device"),
        ] {
            assert!(!is_copy(&not_a_copy), "{why}");
        }
    }

    #[test]
    fn mounts_upon_each_other_go_if_each_of_them_goes() {
        let table = |lines: &[&str]| -> MountTable {
            lines.iter().map(|line| Mount::parse(line.as_bytes()).unwrap()).collect()
        };
        let ours_lines = [
            "22 1 8:2 / / rw shared:1 - ext4 /dev/sdb rw",
            "30 22 8:1 /b/data /s/target rw shared:5 - ext4 /dev/sda rw",
            "31 30 8:1 /b/data /s/target rw shared:6 - ext4 /dev/sda rw",
        ];
        let driver = [
            "122 101 8:2 / / rw shared:1 - ext4 /dev/sdb rw",
            "130 122 8:1 /b/data /s/target rw shared:5 - ext4 /dev/sda rw",
            "131 130 8:1 /b/data /s/target rw shared:6 - ext4 /dev/sda rw",
        ];
        let ours = table(&ours_lines);
        let [_, lower, upper] = ours.mounts() else { panic!("{ours:?}") };
        let places = [lower, upper].map(|mount| ours.place_of(mount).unwrap());
        let stay = |lines: &[&str], places: &[MountPlace]| {
            let view = MountView { namespace: None, pids: Vec::new(), table: table(lines) };
            let holders = HostMounts { views: vec![view] }.holders_of(&[lower.content()]);
            let stay = holders.iter().filter(|holder| !holder.may_go_with(places));
            stay.map(|holder| holder.mount.id).collect::<Vec<_>>()
        };
        assert_eq!(stay(&driver, &places), [0; 0]);
        assert_eq!(stay(&driver, &places[..1]), [130, 131], "the upper one is the driver's alone");
        let user = [&driver[..], &["140 131 0:9 / /s/target/x rw shared:9 - tmpfs x rw"]].concat();
        assert_eq!(stay(&user, &places), [130, 131], "something else lies within the upper one");
        // It is seen in our own namespace, too, as one of a container that shares its mounts.
        let whole =
            [&ours_lines[..], &["40 31 0:9 / /s/target/x rw shared:9 - tmpfs x rw"]].concat();
        let whole = table(&whole);
        let all: Vec<_> =
            whole.mounts()[1..].iter().map(|it| whole.place_of(it).unwrap()).collect();
        assert_eq!(stay(&user, &all), [130, 131], "a user's mount does not go with them");
    }

    #[test]
    fn a_holder_is_named_by_its_processes() {
        let process = |pid, command: &str| HolderProcess { pid, command: command.to_owned() };
        let mut holder = Holder {
            mount: Mount { point: "/data".into(), ..Mount::default() },
            place: None,
            above: Vec::new(),
            namespace: "mnt:[7]".to_owned(),
            is_own: false,
            processes: vec![process(5, "sh"), process(6, "dd")],
            more: 3,
        };
        assert_eq!(
            holder.to_string(),
            "process 5 (sh), process 6 (dd) and 3 more have it mounted at /data in mount namespace \
             mnt:[7]"
        );
        holder.processes.truncate(1);
        holder.more = 0;
        assert_eq!(
            holder.to_string(),
            "process 5 (sh) has it mounted at /data in mount namespace mnt:[7]"
        );
    }
}
