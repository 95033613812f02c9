//! A bucket is deleted, or a replica is stopped while a deletion's marker is purged. No process
//! answers or decides from its memory.

use std::path::Path;
use std::time::Duration;

use berth_access::Role;
use berth_contract::bucket::{self, BucketSpec};
use berth_contract::code::Code;
use berth_contract::message::volume::Registered;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::nats::raw;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, RECOVERY, System};
use serde_json::{Map, Value, json};

use crate::restored::admin_done;

const PATIENCE: Duration = Duration::from_secs(60);

pub async fn api(system: &System, operation: &str, bucket: &str) -> Value {
    let subject = format!("$JS.API.STREAM.{operation}.KV_{bucket}");
    raw::ask(&system.servers()[0], &subject, &[], b"").await
}

async fn exists(system: &System, bucket: &str) -> bool {
    api(system, "INFO", bucket).await["error"].is_null()
}

/// Registers the volume again, which a service could answer from memory.
async fn register_again(system: &System) -> Result<Registered, Code> {
    let document = json!({
        "id": "data", "plugin": PLUGIN, "capability": [{"access": "single-node-writer"}],
    });
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    system.ask(&subject, &document).await.map_err(|problem| problem.code)
}

/// Retries until the answer is that the bucket is lost. Until then an acknowledgement is allowed
/// only if the volumes' bucket exists.
async fn await_refused(system: &System, lost: &str) {
    wait::until("the loss is reported", PATIENCE, async || match register_again(system).await {
        Err(Code::BucketLost) => Ok(()),
        Ok(registered) if lost == bucket::VOLUMES.name => {
            panic!("acknowledged from memory: {registered:?}")
        }
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// Starts a service that must refuse to start, and waits until it has exited with the reason.
async fn check_start_refused(system: &System, part: Part, bucket: &str) {
    let service = system.daemon(part);
    system.kill9(part);
    let before = service.log().len();
    system.restart(part);
    assert!(!service.wait_exit(PATIENCE).await.success());
    let log = service.log();
    for word in ["BERTH0011", bucket, "berth bus restore", "begin-anew"] {
        assert!(log[before..].contains(word), "{part:?} does not say {word}:\n{}", &log[before..]);
    }
    assert!(!exists(system, bucket).await, "{part:?} made {bucket} again");
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.expect("cp runs").success());
}

/// Stops the server, and copies its store.
pub async fn back_up(system: &System) -> std::path::PathBuf {
    let backup = system.nats_dir().join("backup");
    let server = &system.servers()[0];
    server.terminate().await;
    let _: Result<(), _> = std::fs::remove_dir_all(&backup);
    copy(&system.nats_dir().join("store"), &backup);
    server.restart().await;
    backup
}

/// Puts one bucket's stream back into the store, and accepts it, as docs/backup.md says.
pub async fn restore(system: &System, backup: &Path, bucket: &str) {
    let server = &system.servers()[0];
    server.terminate().await;
    let store = system.nats_dir().join("store");
    let find = std::process::Command::new("find")
        .current_dir(backup)
        .args([".", "-type", "d", "-name", &format!("KV_{bucket}")])
        .output()
        .expect("find runs");
    let path = String::from_utf8(find.stdout).expect("a path");
    let path = path.trim();
    assert!(!path.is_empty(), "{bucket} is in the backup");
    copy(&backup.join(path), &store.join(path));
    server.restart().await;
    assert!(exists(system, bucket).await, "{bucket} is restored");
    admin_done(system, &["bus", "accept", bucket, "--yes"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_bucket_stops_every_answer_until_it_is_restored() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let mounted = system.run("a", 0, "data").await;
    std::fs::write(format!("{}/f", mounted.path), "kept").unwrap();
    let backup = back_up(&system).await;
    system.healthy().await;
    register_again(&system).await.expect("the volume is registered already");

    let volumes = bucket::VOLUMES.name;
    assert_eq!(api(&system, "DELETE", volumes).await["success"], true);
    await_refused(&system, volumes).await;
    let listed = system.volumes().await;
    assert_eq!(listed.map_err(|problem| problem.code).unwrap_err(), Code::BucketLost);
    for part in [Part::Claim, Part::Watcher, Part::Gc] {
        check_start_refused(&system, part, volumes).await;
    }
    // The agent needs no bucket of records. It waits for the claim service.
    let agent = system.daemon(Part::Agent(0));
    system.kill9(Part::Agent(0));
    let before = agent.log().len();
    system.restart(Part::Agent(0));
    wait::until("the agent waits for the claim service", PATIENCE, async || {
        let log = agent.log();
        if log[before..].contains("waits for the claim service") { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(!exists(&system, volumes).await, "an agent made {volumes} again");
    assert_eq!(std::fs::read_to_string(format!("{}/f", mounted.path)).unwrap(), "kept");

    restore(&system, &backup, volumes).await;
    for part in [Part::Claim, Part::Watcher, Part::Gc] {
        system.restart(part);
    }
    system.healthy().await;
    assert_eq!(system.claims("data").await.claims.len(), 1, "the claim is restored");
    system.stop("a").await;
    system.settle("data").await;
}

/// The service recovers without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_service_goes_on_when_its_bucket_is_restored_by_hand_and_accepted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let backup = back_up(&system).await;
    system.healthy().await;
    // After the backup: the restored bucket is older than what the service has seen.
    system.run("a", 0, "data").await;
    system.stop("a").await;
    system.settle("data").await;
    for spec in [bucket::VOLUMES, bucket::ALLOCS, bucket::PLUGINS, bucket::NODES] {
        assert_eq!(api(&system, "DELETE", spec.name).await["success"], true);
        await_refused(&system, spec.name).await;
        restore(&system, &backup, spec.name).await;
        system.healthy().await;
        wait::until("the service answers again", RECOVERY, || async {
            register_again(&system).await.map(drop).map_err(|code| code.as_str().to_owned())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_service_makes_a_deleted_bucket_again_at_its_start() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let refusing: [(BucketSpec, Part); 5] = [
        (bucket::ALLOCS, Part::Claim),
        (bucket::SECRETS, Part::Claim),
        (bucket::PLUGINS, Part::Registry),
        (bucket::NODES, Part::Watcher),
        (bucket::LEASES, Part::Gc),
    ];
    let backup = back_up(&system).await;
    system.healthy().await;
    for (spec, part) in refusing {
        assert_eq!(api(&system, "DELETE", spec.name).await["success"], true);
        check_start_refused(&system, part, spec.name).await;
        restore(&system, &backup, spec.name).await;
        system.restart(part);
        system.healthy().await;
    }
}

/// The first block of commands below this heading of docs/backup.md.
fn page_commands(heading: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/backup.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, below) = page.split_once(&format!("{heading}\n")).expect("the page has the heading");
    below.split("```\n").nth(1).expect("a block of commands").to_owned()
}

/// Runs shell commands as an admin, with `berth` in the path.
async fn shell(system: &System, commands: &str) -> String {
    let berth = berth_harness::process::binary("berth");
    let dir = berth.parent().expect("a directory").display();
    let path = format!("{dir}:{}", std::env::var("PATH").unwrap_or_default());
    let role = Role::Admin { name: "backup".to_owned() };
    let mut bash = system.identify_as(&role, tokio::process::Command::new("bash"));
    bash.args(["-euc", commands]).env("PATH", path).stdin(std::process::Stdio::null());
    let ran = bash.output().await.expect("bash runs");
    let printed = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(ran.status.success(), "{commands}: {printed}");
    printed
}

/// The commands of docs/backup.md: back up while everything runs, lose buckets, restore them.
#[tokio::test(flavor = "multi_thread")]
async fn buckets_are_backed_up_and_restored_by_the_commands_of_the_page() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let mounted = system.run("a", 0, "data").await;
    let dir = tempfile::tempdir().unwrap();
    let into_dir = |commands: &str| {
        commands.replace("/var/backups/berth/today", dir.path().join("today").to_str().unwrap())
    };
    shell(&system, &into_dir(&page_commands("## Back up"))).await;
    let before = system.claims("data").await.claims;

    let lost = [bucket::VOLUMES, bucket::ALLOCS, bucket::SECRETS, bucket::PLUGINS, bucket::NODES];
    for spec in lost {
        assert_eq!(api(&system, "DELETE", spec.name).await["success"], true);
    }
    for spec in [bucket::VOLUMES, bucket::ALLOCS, bucket::NODES] {
        await_refused(&system, spec.name).await;
    }
    let services = [Part::Claim, Part::Registry, Part::Watcher, Part::Gc];
    for part in services {
        refuses_any_start(&system, part).await;
    }
    // The agent opens no bucket: it waits for the registry.
    system.kill9_and_restart(Part::Agent(0)).await;
    std::fs::write(format!("{}/f", mounted.path), "kept").expect("the workload keeps its mount");

    let restore = into_dir(&page_commands("### Restore it"));
    let (without_yes, restores) = restore.trim().split_once('\n').expect("two commands");
    let printed = shell(&system, &format!("{without_yes} || test $? = 2")).await;
    assert!(printed.contains("--yes"), "{printed}");
    shell(&system, restores).await;
    for part in services {
        system.restart(part);
    }
    system.healthy().await;
    let after = system.claims("data").await.claims;
    assert_eq!((before[0].epoch, before[0].state), (after[0].epoch, after[0].state));
    assert_eq!(std::fs::read_to_string(format!("{}/f", mounted.path)).unwrap(), "kept");
    let calls = system.calls();
    let is_release = |call: &&Value| call.to_string().contains("npublish");
    assert_eq!(calls.iter().filter(is_release).count(), 0, "nothing was detached: {calls:?}");

    // New writes get higher revisions than the restored records, so guards hold.
    system.volume("more", &["single-node-writer"]).await;
    system.run("b", 0, "more").await;
    for alloc in ["a", "b"] {
        system.stop(alloc).await;
    }
    for volume in ["data", "more"] {
        system.settle(volume).await;
    }
}

/// Starts a service that must refuse to start, whichever lost bucket it names.
pub async fn refuses_any_start(system: &System, part: Part) {
    let service = system.daemon(part);
    system.kill9(part);
    let before = service.log().len();
    system.restart(part);
    assert!(!service.wait_exit(PATIENCE).await.success());
    let log = service.log();
    assert!(log[before..].contains("BERTH0011"), "{part:?}:\n{}", &log[before..]);
}

/// A paused replica resumes, and decides alone. It must read that the first claim is gone.
/// Otherwise it would free the second without a detach, because another claim seems to remain.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_missed_a_delete_frees_nothing_without_a_detach() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options {
        nodes: 1,
        replicas: 2,
        cables: true,
        marker_ttl: Some(Duration::from_secs(1)),
        ..Options::default()
    };
    let system = System::start(options).await;
    system.volume("data", &["multi-node-multi-writer"]).await;
    system.run("a", 0, "data").await;
    system.run("b", 0, "data").await;
    // Enough requests that each replica has read both claims.
    for _ in 0..20 {
        assert_eq!(system.claims("data").await.claims.len(), 2);
    }
    system.daemon(Part::Claim).pause();
    system.cables(Part::Claim).iter().for_each(berth_harness::proxy::Proxy::snap);
    system.stop("a").await;
    wait::until("a is released", PATIENCE, async || {
        let claims = system.claims("data").await.claims;
        if claims.len() == 1 { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    // A newer write, so that the old marker may be purged.
    let newer = json!({
        "id": "data", "name": "newer", "plugin": PLUGIN,
        "capability": [{"access": "multi-node-multi-writer"}],
    });
    let register = verb::VolumeRegister::subject(&Namespace::default());
    system.persist::<Value>(&register, &newer).await.unwrap();
    wait::until("the history of a is purged", PATIENCE, async || {
        let filter = br#"{"subjects_filter": "$KV.berth-volumes.default.data.claim.a"}"#;
        let subject = "$JS.API.STREAM.INFO.KV_berth-volumes";
        let info = raw::ask(&system.servers()[0], subject, &[], filter).await;
        let subjects = info["state"]["subjects"].clone();
        if subjects.as_object().is_none_or(Map::is_empty) { Ok(()) } else { Err(subjects) }
    })
    .await;
    system.kill9(Part::SecondClaim);
    system.daemon(Part::Claim).resume();
    assert_eq!(system.claims("data").await.claims.len(), 1, "the resumed replica is up to date");
    system.stop("b").await;
    system.settle("data").await;
    let is_detach = |call: &Value| call["rpc"] == "ControllerUnpublishVolume";
    assert!(system.calls().iter().any(is_detach), "the claim was freed without a detach");
}
