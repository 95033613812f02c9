//! Callers' paths that hang: in a FUSE file system whose server does not answer, as the kernel has
//! it when a server hangs.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use berth_domain::{AllocId, Namespace, PluginId, VolumeId, VolumeKey};
use berth_harness::root;
use berth_host::pool::SHARE_MAX;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::*;
use crate::journal::{Journal, JournalledDetach};

const FUSE: &str = "/dev/fuse";
/// More than the threads that tokio has for blocking calls.
const INSPECTIONS: usize = 520;
const PATIENCE: Duration = Duration::from_secs(20);

/// A mount of which every inspection hangs until it is dropped.
struct HungMount {
    path: PathBuf,
    server: Option<File>,
}

impl HungMount {
    fn over(path: &Path) -> Self {
        let server = OpenOptions::new().read(true).write(true).open(FUSE).unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("berth-test"), path, Some("fuse"), flags, Some(data.as_str())).unwrap();
        Self { path: path.to_owned(), server: Some(server) }
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        // Without a server each of them fails.
        self.server = None;
        umount2(&self.path, MntFlags::MNT_DETACH).unwrap();
    }
}

/// The name of a host is looked up by a blocking call, as each time that the agent connects to the
/// bus again to keep its lease.
#[tokio::test]
async fn inspections_that_hang_delay_neither_the_journal_nor_the_way_to_the_bus() {
    if !root::or_skip("mounts a file system that hangs")
        || !root::has_or_skip(Path::new(FUSE).exists(), FUSE, "mounts a file system that hangs")
    {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = fs::canonicalize(dir.path()).unwrap();
    let (below, paths) = (dir.join("binds"), Paths::new(&dir.join("state")));
    let pool = HostPool::default();
    let binds = Binds::new(&pool, &paths, "boot", std::slice::from_ref(&below));
    let mut spots = Vec::new();
    for at in 0..INSPECTIONS {
        let path = below.join(at.to_string());
        fs::create_dir_all(&path).unwrap();
        spots.push(binds.check_path(path.to_str().unwrap()).await.unwrap());
    }
    let journal = Journal::open(dir.join("journal")).await.unwrap();
    let plugin = PluginId::new("dev.berth").unwrap();
    let alloc = AllocId::new("a").unwrap();
    let volume = |at: usize| {
        VolumeKey::new(Namespace::default(), VolumeId::new(format!("data{at}")).unwrap())
    };
    // They were looked at while all was well, and hang when a volume is put upon them.
    let hung = HungMount::over(&below);
    let mut puts = JoinSet::new();
    for (at, spot) in spots.into_iter().enumerate() {
        let (binds, place) = (binds.clone(), paths.volume_paths(&plugin, &volume(at), &alloc));
        let host = VolumeHost::new(&pool, &plugin, &place);
        let from = place.target.clone();
        puts.spawn(async move {
            binds.make_bind(&host, from, spot, &place, AttachmentMode::FileSystem).await
        });
    }
    while pool.hung().is_none() {
        sleep(Duration::from_millis(10)).await;
    }
    let written = timeout(
        PATIENCE,
        journal.write_detach(&volume(0), &alloc, JournalledDetach { epoch: 7, done: false }),
    )
    .await;
    assert!(written.is_ok_and(|written| written.is_ok()), "the journal waits for inspections");
    let found = timeout(PATIENCE, lookup_host("localhost:4222")).await;
    assert!(found.is_ok_and(|found| found.is_ok()), "the bus is not looked for");
    // Each caller has its answer, though none of the inspections ends.
    let mut refused = 0;
    while let Some(put) = timeout(PATIENCE, puts.join_next()).await.unwrap() {
        let problem = put.unwrap().unwrap_err();
        let names_them = problem.message.contains("32 host operations hang, the oldest since")
            && problem.message.contains(&below.display().to_string());
        refused += usize::from(problem.retryable && names_them);
    }
    assert_eq!(refused, INSPECTIONS - SHARE_MAX, "{:?}", pool.hung());
    let asked = Instant::now();
    binds.check_path(below.join("0").to_str().unwrap()).await.unwrap_err();
    assert!(asked.elapsed() < INSPECT_MAX / 2, "a caller waits for what hangs");
    // Other paths are looked at meanwhile.
    let well = dir.join("well");
    fs::create_dir(&well).unwrap();
    let others = Binds::new(&pool, &paths, "boot", std::slice::from_ref(&dir));
    others.check_path(well.to_str().unwrap()).await.unwrap();
    drop(hung);
    let end = Instant::now() + PATIENCE;
    while pool.hung().is_some() {
        assert!(Instant::now() < end, "{:?}", pool.hung());
        sleep(Duration::from_millis(10)).await;
    }
}
