//! One probe of one mount, which may never return.
//!
//! **Promises** that each caller is answered in time even if the mount never answers. A hung mount
//! holds one thread of the [`HostPool`], however often it is probed: later callers wait for the
//! answer of the probe under way.
//!
//! **Never** reads or writes files in the mount: a read from a hung device would keep this process
//! from ending. A probe reads the attributes of the root (`stat`, `statvfs`). A network file system
//! or a FUSE file system asks its server for them; no other file system needs its disk for that.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_domain::{PluginId, Timestamp};
use berth_host::{HostOperation, HostPool, HostPoolError};
use berth_service::clock;
use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use nix::sys::statvfs::statvfs;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::host::pool::{INSPECT_MAX, probe_operation};
use crate::journal::Disk;

/// Where the kernel lists its block devices.
const DEVICES: &str = "/sys/dev/block";

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// It answers. The disk behind it, if it has one that the kernel counts.
    Well(Option<Disk>),
    /// Nothing is mounted, or no block device is there. A device need not be a mount (CSI leaves
    /// open how a plugin brings it there).
    Missing,
    /// It fails. The kernel's error.
    Dead(String),
    /// It has not answered since this time.
    Hung(Timestamp),
    /// It could not be probed. The reason.
    Unknown(String),
}

/// Runs probes, and remembers those under way. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct MountProbes {
    pool: HostPool,
    under_way: Arc<Mutex<BTreeMap<PathBuf, ProbeUnderWay>>>,
}

#[derive(Debug, Clone)]
struct ProbeUnderWay {
    since: Timestamp,
    began: Instant,
    found: watch::Receiver<Option<ProbeAnswer>>,
}

impl MountProbes {
    /// Probes run on threads of this pool.
    pub fn new(pool: &HostPool) -> Self {
        Self { pool: pool.clone(), under_way: Arc::default() }
    }

    /// Probes the file system that the plugin has mounted at `path`. Returns within `patience`.
    pub async fn probe_file_system(
        &self,
        plugin: &PluginId,
        path: &Path,
        patience: Duration,
    ) -> ProbeAnswer {
        let owned = path.to_owned();
        let look = move || probe_now(&owned, Path::new(DEVICES));
        self.run_probe(probe_operation(plugin, path), patience, look).await
    }

    /// Probes the plugin's block device at `path`. Returns within `patience`.
    pub async fn probe_device(
        &self,
        plugin: &PluginId,
        path: &Path,
        patience: Duration,
    ) -> ProbeAnswer {
        let owned = path.to_owned();
        let look = move || match fs::metadata(&owned) {
            Ok(seen) if seen.file_type().is_block_device() => probe_now(&owned, Path::new(DEVICES)),
            Ok(_) => ProbeAnswer::Missing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => ProbeAnswer::Missing,
            Err(error) => answer_from_error(&error),
        };
        self.run_probe(probe_operation(plugin, path), patience, look).await
    }

    async fn run_probe(
        &self,
        operation: HostOperation,
        patience: Duration,
        look: impl FnOnce() -> ProbeAnswer + Send + 'static,
    ) -> ProbeAnswer {
        let mut under_way = self.join_or_begin(operation, look);
        // The time that earlier callers waited counts.
        let until = under_way.began + patience;
        match timeout_at(until, under_way.found.wait_for(Option::is_some)).await {
            Ok(Ok(found)) => found.clone().unwrap_or(ProbeAnswer::Hung(under_way.since)),
            Ok(Err(_)) => ProbeAnswer::Unknown("the probe ended without an answer".to_owned()),
            Err(_) => ProbeAnswer::Hung(under_way.since),
        }
    }

    /// Joins the probe under way at the path, or starts this one.
    fn join_or_begin(
        &self,
        operation: HostOperation,
        look: impl FnOnce() -> ProbeAnswer + Send + 'static,
    ) -> ProbeUnderWay {
        let path = operation.place.clone();
        let mut all = self.lock();
        if let Some(under_way) = all.get(&path) {
            return under_way.clone();
        }
        let (answer, found) = watch::channel(None);
        let under_way = ProbeUnderWay { since: clock::now(), began: Instant::now(), found };
        all.insert(path.clone(), under_way.clone());
        let work = {
            let (probes, path, answer) = (self.clone(), path.clone(), answer.clone());
            move || probes.finish_probe(&path, &answer, look())
        };
        let probes = self.clone();
        tokio::spawn(async move {
            // Independent of the first caller's patience, because others may join.
            match probes.pool.run(operation, INSPECT_MAX, work).await {
                // Late work calls `finish_probe` itself when it returns.
                Ok(()) | Err(HostPoolError::Late { .. }) => {}
                Err(error) => {
                    probes.finish_probe(&path, &answer, ProbeAnswer::Unknown(error.to_string()));
                }
            }
        });
        under_way
    }

    fn finish_probe(
        &self,
        path: &Path,
        answer: &watch::Sender<Option<ProbeAnswer>>,
        found: ProbeAnswer,
    ) {
        self.lock().remove(path);
        answer.send_replace(Some(found));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, ProbeUnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads attributes at the path. May hang.
fn probe_now(path: &Path, devices: &Path) -> ProbeAnswer {
    let seen = match fs::metadata(path) {
        Ok(seen) => seen,
        Err(error) => return answer_from_error(&error),
    };
    let device = if seen.file_type().is_block_device() { seen.rdev() } else { seen.dev() };
    if let Some(vanished) = missing_device(device, devices) {
        return ProbeAnswer::Dead(vanished);
    }
    match statvfs(path) {
        Ok(_) | Err(Errno::ENOSYS) => ProbeAnswer::Well(disk_of_device(device, devices)),
        Err(errno) => answer_from_error(&io::Error::from(errno)),
    }
}

/// Why the block device behind a mount is gone. `None` if it is there, or if there is none.
fn missing_device(device: u64, devices: &Path) -> Option<String> {
    // Major number 0 is no device (Linux, `Documentation/admin-guide/devices.txt`).
    if major(device) == 0 || !devices.exists() {
        return None;
    }
    let name = format!("{}:{}", major(device), minor(device));
    let device = devices.join(&name);
    if !device.exists() {
        return Some(format!("its block device {name} is gone"));
    }
    let size = fs::read_to_string(device.join("size")).unwrap_or_default();
    (size.trim() == "0").then(|| format!("its block device {name} has nothing behind it any more"))
}

/// The disk of a block device. `None` if the kernel does not number disks (before Linux 5.15), or
/// if the number may change while the disk stays the same.
fn disk_of_device(device: u64, devices: &Path) -> Option<Disk> {
    let number = format!("{}:{}", major(device), minor(device));
    let dir = devices.join(&number);
    // Only whole disks have a number; a partition's directory is below its disk's.
    let of_disk = if dir.join("partition").exists() { dir.join("..") } else { dir };
    // The device mapper may renumber a disk whose table is reloaded, as when a volume is expanded.
    if of_disk.join("dm").exists() {
        return None;
    }
    let seq = fs::read_to_string(of_disk.join("diskseq")).ok()?.trim().parse().ok()?;
    Some(Disk { device: number, seq })
}

/// What an error says of the mount. Only an error of the mount itself makes it dead.
fn answer_from_error(error: &io::Error) -> ProbeAnswer {
    // A FUSE mount may refuse every other user, root included (mount.fuse(8), `allow_other`).
    if error.kind() == io::ErrorKind::PermissionDenied {
        return ProbeAnswer::Unknown(format!("it may not be looked at: {error}"));
    }
    ProbeAnswer::Dead(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use berth_host::pool::SHARE_MAX;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(20);

    fn plugin() -> PluginId {
        PluginId::new("p").unwrap()
    }

    fn at(path: &str) -> HostOperation {
        probe_operation(&plugin(), Path::new(path))
    }

    #[tokio::test]
    async fn a_look_that_hangs_holds_one_thread_and_is_answered_for() {
        let probes = MountProbes::default();
        let (go_on, waits) = mpsc::channel::<()>();
        let hang = move || {
            let _ = waits.recv();
            ProbeAnswer::Well(None)
        };
        let path = "/hangs";
        let first = probes.run_probe(at(path), SHORT, hang).await;
        let ProbeAnswer::Hung(since) = first else { panic!("{first:?}") };
        let never = || panic!("it looked twice");
        assert_eq!(probes.run_probe(at(path), SHORT, never).await, ProbeAnswer::Hung(since));
        // Others are looked at meanwhile.
        assert_eq!(
            probes.run_probe(at("/b"), PATIENCE, || ProbeAnswer::Well(None)).await,
            ProbeAnswer::Well(None)
        );
        go_on.send(()).unwrap();
        let mut tries = 0;
        while probes.run_probe(at(path), PATIENCE, || ProbeAnswer::Well(None)).await
            != ProbeAnswer::Well(None)
        {
            tries += 1;
            assert!(tries < 1_000, "it came back and is not looked at again");
            tokio::time::sleep(SHORT).await;
        }
        assert!(probes.lock().is_empty());
    }

    #[tokio::test]
    async fn who_asks_while_another_looks_waits_for_the_same_answer() {
        let probes = MountProbes::default();
        let (go_on, waits) = mpsc::channel::<()>();
        let slow = move || {
            let _ = waits.recv();
            ProbeAnswer::Missing
        };
        let path = "/slow";
        let never = || panic!("it looked twice");
        // In this order at first: one begins, one joins it, and then it may go on.
        let (first, second, sent) = tokio::join!(
            probes.run_probe(at(path), PATIENCE, slow),
            probes.run_probe(at(path), PATIENCE, never),
            async { go_on.send(()) }
        );
        sent.unwrap();
        assert_eq!((first, second), (ProbeAnswer::Missing, ProbeAnswer::Missing));
    }

    #[tokio::test]
    async fn so_many_hang_and_no_more_threads_are_begun() {
        let probes = MountProbes::default();
        let (go_on, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        for number in 0..SHARE_MAX {
            let waits = Arc::clone(&waits);
            let hang = move || {
                let _ = waits.lock().map(|waits| waits.recv());
                ProbeAnswer::Well(None)
            };
            let path = format!("/hangs/{number}");
            let found = probes.run_probe(at(&path), Duration::ZERO, hang).await;
            assert!(matches!(found, ProbeAnswer::Hung(_)), "{found:?}");
        }
        let found = probes.run_probe(at("/one-more"), PATIENCE, || ProbeAnswer::Well(None)).await;
        let ProbeAnswer::Unknown(why) = found else { panic!("{found:?}") };
        assert!(why.contains("32 host operations hang") && why.contains("/hangs/"), "{why}");
        // Those of another plugin answer.
        let other = probe_operation(&PluginId::new("q").unwrap(), Path::new("/well"));
        let found = probes.run_probe(other, PATIENCE, || ProbeAnswer::Well(None)).await;
        assert_eq!(found, ProbeAnswer::Well(None));
        drop(go_on);
    }

    #[tokio::test]
    async fn the_root_is_well_and_what_is_not_there_is_not() {
        let probes = MountProbes::default();
        let root = probes.probe_file_system(&plugin(), Path::new("/"), PATIENCE).await;
        assert!(matches!(root, ProbeAnswer::Well(_)), "{root:?}");
        let nowhere = Path::new("/is/not/there");
        let found = probes.probe_file_system(&plugin(), nowhere, PATIENCE).await;
        assert!(matches!(found, ProbeAnswer::Dead(_)), "{found:?}");
        for other in [nowhere, Path::new("/dev/null"), Path::new("/proc/self/mountinfo")] {
            assert_eq!(probes.probe_device(&plugin(), other, PATIENCE).await, ProbeAnswer::Missing);
        }
    }

    #[test]
    fn a_device_is_gone_when_the_kernel_does_not_list_it_or_it_has_no_size() {
        let devices = tempfile::tempdir().unwrap();
        let device = nix::sys::stat::makedev(8, 16);
        let told = |found: Option<String>| found.unwrap_or_default();
        assert!(told(missing_device(device, devices.path())).contains("8:16 is gone"));
        let dir = devices.path().join("8:16");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("size"), "0\n").unwrap();
        assert!(told(missing_device(device, devices.path())).contains("nothing behind it"));
        fs::write(dir.join("size"), "2048\n").unwrap();
        assert_eq!(missing_device(device, devices.path()), None);
        let nameless = nix::sys::stat::makedev(0, 52);
        assert_eq!(missing_device(nameless, devices.path()), None);
        assert_eq!(missing_device(device, Path::new("/not/there")), None);
    }

    #[test]
    fn a_disk_is_told_by_what_the_kernel_counts_it_with_also_of_its_partitions() {
        let devices = tempfile::tempdir().unwrap();
        let whole = devices.path().join("8:16");
        fs::create_dir_all(whole.join("sdb1")).unwrap();
        std::os::unix::fs::symlink(whole.join("sdb1"), devices.path().join("8:17")).unwrap();
        let of = |minor| disk_of_device(nix::sys::stat::makedev(8, minor), devices.path());
        assert_eq!((of(16), of(17), of(18)), (None, None, None));
        fs::write(whole.join("diskseq"), "41\n").unwrap();
        fs::write(whole.join("sdb1/partition"), "1\n").unwrap();
        assert_eq!(of(16), Some(Disk { device: "8:16".to_owned(), seq: 41 }));
        assert_eq!(of(17), Some(Disk { device: "8:17".to_owned(), seq: 41 }));
        fs::create_dir(whole.join("dm")).unwrap();
        assert_eq!((of(16), of(17)), (None, None));
    }

    #[test]
    fn what_may_not_be_looked_at_is_not_taken_for_dead() {
        let denied = answer_from_error(&io::Error::from(Errno::EACCES));
        assert!(matches!(denied, ProbeAnswer::Unknown(_)), "{denied:?}");
        for errno in [Errno::ENOTCONN, Errno::EIO, Errno::ESTALE, Errno::ENODEV] {
            assert!(
                matches!(answer_from_error(&io::Error::from(errno)), ProbeAnswer::Dead(_)),
                "{errno}"
            );
        }
    }
}
