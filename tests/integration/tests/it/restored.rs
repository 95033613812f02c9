//! Buckets are restored from a backup while services run and workloads have mounts that are younger
//! than the backup. No service writes what it remembers from before, and nothing is detached.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use berth_access::Role;
use berth_contract::bucket;
use berth_contract::code::Code;
use berth_harness::dirs::Dir;
use berth_harness::nats::{raw, stock};
use berth_harness::proxy::{Point, Proxy, Side};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::Value;

use crate::lost_bucket::refuses_any_start;

const PATIENCE: Duration = Duration::from_secs(90);
const VOLUMES: usize = 6;
/// The buckets of a backup, in the order of docs/backup.md.
const BUCKETS: [&str; 6] = ["volumes", "allocs", "secrets", "plugins", "nodes", "buckets"];

/// Runs `berth` as an admin.
pub async fn admin(system: &System, args: &[&str]) -> Output {
    let role = Role::Admin { name: "backup".to_owned() };
    let mut command = system.identify_as(&role, system.berth());
    command.args(args);
    command.output().await.expect("berth runs")
}

/// Runs `berth` as an admin; the command must succeed.
pub async fn admin_done(system: &System, args: &[&str]) {
    let output = admin(system, args).await;
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// Volumes that are mounted on the first node, each by a live alloc that the backup does not know.
struct Fleet {
    system: System,
    backup: Dir,
    files: Vec<PathBuf>,
}

impl Fleet {
    async fn new() -> Self {
        Self::start(Options { nodes: 2, ..Options::default() }).await
    }

    async fn start(options: Options) -> Self {
        let system = System::start(options).await;
        for number in 0..VOLUMES {
            system.volume(&format!("v{number}"), &["single-node-multi-writer"]).await;
        }
        let backup = Dir::new("backup");
        admin_done(&system, &["bus", "backup", text(backup.path())]).await;
        let mut files = Vec::new();
        for number in 0..VOLUMES {
            let mounted = system.run(&format!("a{number}"), 0, &format!("v{number}")).await;
            let file = Path::new(&mounted.path).join("f");
            std::fs::write(&file, "kept").unwrap();
            files.push(file);
        }
        Self { system, backup, files }
    }

    /// Checks that no mount was touched since.
    fn is_untouched(&self) {
        for file in &self.files {
            assert_eq!(std::fs::read_to_string(file).unwrap(), "kept");
        }
        let calls = self.system.calls();
        let is_undone = |call: &&Value| {
            call["rpc"].as_str().is_some_and(|rpc| rpc.contains("npublish") || rpc.contains("Unst"))
        };
        let undone: Vec<_> = calls.iter().filter(is_undone).collect();
        assert!(undone.is_empty(), "a live mount was taken away: {undone:#?}");
    }

    /// Checks that every mount is reported, that no other node is granted a volume meanwhile, and
    /// that a new volume can be used.
    async fn goes_on(&self) {
        let system = &self.system;
        system.healthy().await;
        for number in 0..VOLUMES {
            let volume = format!("v{number}");
            system.alloc(&format!("b{number}"), 1, &volume, false).await;
            let refused = system.try_mount(&format!("b{number}"), 1, &volume).await;
            assert!(refused.is_err(), "{volume} is mounted on n1, and was granted on n2");
        }
        wait::until("all mounts are reported", PATIENCE, async || {
            let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
            let reported: usize = nodes.iter().map(|node| node.unaccounted.len()).sum();
            if reported == VOLUMES { Ok(()) } else { Err(format!("{nodes:?}")) }
        })
        .await;
        wait::until("the refusal names the mount", PATIENCE, async || {
            // Before, the refusal says that n2 has only just got its lease back, or that nodes have
            // not reported yet.
            let refused = system.try_mount("b0", 1, "v0").await.unwrap_err();
            if refused.code == Code::MountUnaccounted { Ok(()) } else { Err(refused) }
        })
        .await;
        self.is_untouched();
        system.volume("new", &["single-node-writer"]).await;
        system.run("c", 1, "new").await;
        system.stop("c").await;
        system.freed("new").await;
        system.judge();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_younger_than_the_backup_stay_when_berth_restores_it() {
    if !or_skip("real mounts") {
        return;
    }
    let fleet = Fleet::new().await;
    let dir = text(fleet.backup.path());
    let unconfirmed = admin(&fleet.system, &["bus", "restore", dir]).await;
    assert_eq!(unconfirmed.status.code(), Some(2), "it needs --yes: {unconfirmed:?}");
    // The watcher sees nothing of the restore before it is over.
    fleet.system.daemon(Part::Watcher).pause();
    admin_done(&fleet.system, &["bus", "restore", dir, "--yes"]).await;
    fleet.system.daemon(Part::Watcher).resume();
    fleet.goes_on().await;
}

/// The claim service is stopped at the worst moment: its write is in transit, and arrives in the
/// restored bucket.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_service_that_was_stopped_over_a_restore_writes_nothing_of_before() {
    if !or_skip("real mounts") {
        return;
    }
    let fleet = Fleet::start(Options { nodes: 2, cables: true, ..Options::default() }).await;
    let system = &fleet.system;
    system.alloc("late", 0, "v0", false).await;
    let claim = "$KV.berth-volumes.default.v0.claim.late".to_owned();
    system.wire.arm(Point { subjects: vec![claim], at: 0, side: Side::Before });
    let mount = system.try_mount("late", 0, "v0");
    let restore = async {
        system.wire.tripped().await;
        system.daemon(Part::Claim).pause();
        let dir = text(fleet.backup.path());
        admin_done(system, &["bus", "restore", dir, "--yes"]).await;
        system.cables(Part::Claim).iter().for_each(Proxy::heal);
        system.daemon(Part::Claim).resume();
    };
    let (mounted, ()) = tokio::join!(mount, restore);
    assert!(mounted.is_err(), "an earlier write granted the claim: {mounted:?}");
    fleet.goes_on().await;
    for number in 0..VOLUMES {
        let claims = system.claims(&format!("v{number}")).await.claims;
        assert!(claims.is_empty(), "an earlier claim was written: {claims:?}");
    }
}

/// As it was seen: within three seconds, 18 of 20 live mounts were unmounted and detached.
async fn mounts_stay_when_another_tool_restores(order: impl Iterator<Item = &'static str>) {
    let fleet = Fleet::new().await;
    let system = &fleet.system;
    let order: Vec<&str> = order.collect();
    // Without a pause in between.
    for bucket in &order {
        stock::remove(&system.servers()[0], &fleet.backup.path().join(bucket)).await;
    }
    for bucket in &order {
        stock::restore(&system.servers()[0], &fleet.backup.path().join(bucket)).await;
    }
    wait::until("requests are refused", PATIENCE, async || match system.volumes().await {
        Err(problem) if problem.code == Code::BucketLost => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let refused = system.volumes().await.unwrap_err();
    assert_eq!(refused.code, Code::BucketLost, "requests stay refused: {refused}");
    fleet.is_untouched();
    let buckets = bucket::ALL.iter().map(|spec| spec.name).filter(|name| *name != "berth-leases");
    let args: Vec<&str> = ["bus", "accept"].into_iter().chain(buckets).chain(["--yes"]).collect();
    admin_done(system, &args).await;
    fleet.goes_on().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_younger_than_the_backup_stay_when_another_tool_restores_it() {
    if or_skip("real mounts") {
        mounts_stay_when_another_tool_restores(BUCKETS.into_iter()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_younger_than_the_backup_stay_when_another_tool_restores_it_in_reverse() {
    if or_skip("real mounts") {
        mounts_stay_when_another_tool_restores(BUCKETS.into_iter().rev()).await;
    }
}

/// As it was seen: the refusal was forgotten when the services were started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_bucket_stays_refused_when_every_service_is_killed_and_started_again() {
    if !or_skip("real mounts") {
        return;
    }
    let fleet = Fleet::new().await;
    let system = &fleet.system;
    stock::restore(&system.servers()[0], &fleet.backup.path().join("volumes")).await;
    wait::until("the refusal names another tool", PATIENCE, async || {
        match system.volumes().await {
            Err(problem) if problem.message.contains("another tool") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    wait::until("the loss is on record", PATIENCE, async || {
        let last = br#"{"last_by_subj": "$KV.berth-buckets.berth-volumes"}"#;
        let get = "$JS.API.STREAM.MSG.GET.KV_berth-buckets";
        let record = raw::ask(&system.servers()[0], get, &[], last).await;
        let data = record["message"]["data"].as_str().unwrap_or_default();
        // `"fell"` in base64, at each of the three alignments.
        let encodings = ["ImZlbGwi", "JmZWxsI", "iZmVsbCI"];
        if encodings.iter().any(|part| data.contains(part)) { Ok(()) } else { Err(record) }
    })
    .await;
    let services = [Part::Claim, Part::Watcher, Part::Gc, Part::Registry];
    for part in services {
        system.kill9(part);
    }
    for part in [Part::Claim, Part::Watcher, Part::Gc] {
        refuses_any_start(system, part).await;
    }
    fleet.is_untouched();
    admin_done(system, &["bus", "accept", bucket::VOLUMES.name, "--yes"]).await;
    for part in services {
        system.restart(part);
    }
    fleet.goes_on().await;
}
