//! A claim's record is lost while its volume is mounted. Nothing is detached under the mount, the
//! mount is shown, and no other node gets the volume.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::agent::{Unmount, Unmounted};
use berth_contract::message::volume::Detached;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{AllocId, Namespace, NodeId, VolumeId, VolumeKey};
use berth_harness::nats::raw;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, RECOVERY, System};
use serde_json::{Value, json};

use crate::lost_bucket::{api, back_up, restore};
use crate::why::{YOU, tells};

const PATIENCE: Duration = Duration::from_secs(60);

fn n1() -> NodeId {
    NodeId::new("n1").unwrap()
}

fn key_of(volume: &str) -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new(volume).unwrap())
}

/// Deletes a key by hand, as `nats kv del` does.
async fn delete_key(system: &System, key: &str) {
    let subject = format!("$KV.{}.{key}", bucket::VOLUMES.name);
    let stored = raw::ask(&system.servers()[0], &subject, &[("KV-Operation", "DEL")], b"").await;
    assert!(stored["seq"].is_u64(), "{stored}");
}

/// Deletes a claim's key by hand, and waits until the claim is not listed.
pub async fn delete_claim(system: &System, volume: &str, alloc: &str) {
    delete_key(system, &key::claim(&key_of(volume), &AllocId::new(alloc).unwrap())).await;
    wait::until("the claim is not listed", RECOVERY, || async {
        let claims = system.claims(volume).await.claims;
        let is_gone = claims.iter().all(|claim| claim.alloc.as_str() != alloc);
        if is_gone { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
}

/// Requests the detach until the answer names a mount. No answer may say that nothing is left.
async fn detach(system: &System) -> Detached {
    let subject = verb::VolumeDetach::subject(&Namespace::default());
    wait::until("the detach names the mount", PATIENCE, || async {
        let body = json!({"id": "data", "node": "n1"});
        let detached: Detached = system.persist(&subject, &body).await.unwrap();
        assert!(!detached.gone, "{detached:?}");
        if detached.unaccounted.is_empty() { Err(format!("{detached:?}")) } else { Ok(detached) }
    })
    .await
}

async fn unmount(system: &System) -> Result<Unmounted, Problem> {
    let volume = VolumeId::new("data").unwrap();
    let unmount = Unmount { namespace: Namespace::default(), volume, alloc: None };
    system.persist(&verb::AgentUnmount::subject(&n1()), &unmount).await
}

/// Waits until the node reports the mount, and returns the refusal of another node's claim.
async fn is_reported(system: &System, path: &str) -> Problem {
    wait::until("the mount is reported", PATIENCE, || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        if status.unaccounted.iter().any(|mount| mount.contains(path)) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await;
    let nodes = system.nodes().await.unwrap().nodes;
    assert!(nodes[0].unaccounted[0].path == path, "{nodes:?}");
    let sentence = "it is mounted where no claim covers it, so no other node is granted it…";
    let finding = tells(system, "data", "mount-unaccounted", YOU, sentence).await;
    assert!(
        finding["next"][0].as_str().unwrap().starts_with("berth node unmount n1 data"),
        "{finding}"
    );
    let swept: Value = system.persist(&verb::GcForce::subject(&()), &json!({})).await.unwrap();
    assert!(swept["kept"].to_string().contains(path), "{swept}");
    system.alloc("b", 1, "data", false).await;
    system.try_mount("b", 1, "data").await.unwrap_err()
}

/// Loses all data of the bus, including the record that it was initialised.
async fn lose_the_store(system: &System) {
    let server = &system.servers()[0];
    server.terminate().await;
    let store = system.nats_dir().join("store");
    fs::remove_dir_all(&store).unwrap();
    fs::create_dir(&store).unwrap();
    server.restart().await;
}

/// Waits until the events show the mount, with its alloc.
async fn has_event(system: &System, path: &str) {
    let event = wait::until("the mount has an event", PATIENCE, || async {
        let output = system
            .berth()
            .args(["--nats", &system.url(), "--json", "events", "--volume", "data"])
            .output()
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut events = events.filter(|event| event["event"] == "volume.mount-unaccounted");
        events.next().ok_or(format!("{output:?}"))
    })
    .await;
    assert_eq!((&event["alloc"], &event["node"]), (&json!("a"), &json!("n1")), "{event}");
    assert!(event["detail"].as_str().unwrap().contains(path), "{event}");
}

/// How many calls that undo a publication have begun.
fn unpublished(system: &System) -> usize {
    begun(system, "Unpublish")
}

/// How many calls have begun, of RPCs whose names contain this text.
fn begun(system: &System, part: &str) -> usize {
    let is_begun =
        |call: &&Value| call["entry"] == "begin" && call["rpc"].to_string().contains(part);
    system.calls().iter().filter(is_begun).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_deleted_by_hand_detaches_nothing_and_frees_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    let path = system.run("a", 0, "data").await.path;
    fs::write(format!("{path}/f"), "kept").unwrap();
    // A mount with its claim is not reported.
    let refused = unmount(&system).await.unwrap_err();
    assert_eq!(refused.code, Code::Held, "{refused}");
    // While the claim service hangs, the agent answers before its caller's deadline.
    system.daemon(Part::Claim).pause();
    let subject = verb::AgentUnmount::subject(&n1());
    let request = json!({"namespace": "default", "volume": "data"});
    let unanswered: Result<Unmounted, Problem> = system.ask(&subject, &request).await;
    let unanswered = unanswered.unwrap_err();
    assert!(unanswered.message.contains("berth.v1.claim.status"), "{unanswered}");
    assert_eq!(unanswered.node, Some("n1".to_owned()), "{unanswered}");
    system.daemon(Part::Claim).resume();

    delete_claim(&system, "data", "a").await;
    let detached = detach(&system).await;
    assert!(detached.unaccounted[0].contains(&path), "{detached:?}");
    assert!(detached.hint.unwrap().contains("berth node unmount n1 data"));
    // The agent compares mounts with claims at its start, and then every minute.
    system.kill9_and_restart(Part::Agent(0)).await;
    let refused = is_reported(&system, &path).await;
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert!(refused.message.contains("node n1") && refused.message.contains(&path), "{refused}");
    assert_eq!(fs::read_to_string(format!("{path}/f")).unwrap(), "kept");
    assert_eq!(unpublished(&system), 0);
    has_event(&system, &path).await;
    // The agent's last report counts while the agent is down.
    system.kill9(Part::Agent(0));
    let detached = detach(&system).await;
    assert!(detached.unaccounted[0].contains(&path), "{detached:?}");
    system.restart(Part::Agent(0));
    system.healthy().await;

    // A mount that a process uses is not unmounted. Once the process has ended, the release goes
    // on.
    let holder = std::process::Command::new("sleep").arg("600").current_dir(&path).spawn();
    let mut holder = holder.unwrap();
    wait::until("the refusal names the use", PATIENCE, || async {
        let refused: Result<Unmounted, Problem> = system.ask(&subject, &request).await;
        let problem = refused.unwrap_err();
        let shows_use = problem.message.contains("in use");
        if shows_use { Ok(()) } else { Err(problem.to_string()) }
    })
    .await;
    assert_eq!(fs::read_to_string(format!("{path}/f")).unwrap(), "kept");
    holder.kill().unwrap();
    holder.wait().unwrap();
    system.freed("data").await;
    wait::until("nothing is reported any more", PATIENCE, || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        if status.unaccounted.is_empty() { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    system.mount("b", 1, "data").await.unwrap();
    system.stop("b").await;
    system.settle("data").await;
}

/// The agent is killed while it unmounts for an operator, and neither the volume's registration nor
/// the alloc is on record. The claim that the unmount recorded is enough.
#[tokio::test(flavor = "multi_thread")]
async fn an_unmount_by_hand_ends_on_record_whatever_becomes_of_the_agent() {
    if !or_skip("real mounts") {
        return;
    }
    let lenient = |_| vec!["--lenient".to_owned()];
    let system = System::start(Options { driver: lenient, ..Options::default() }).await;
    let system = Arc::new(system);
    system.volume("data", &["single-node-writer"]).await;
    let path = system.run("a", 0, "data").await.path;
    delete_claim(&system, "data", "a").await;
    delete_key(&system, &key::spec(&key_of("data"))).await;
    system.hold("NodeUnpublishVolume");
    let requester = Arc::clone(&system);
    let unmounting = tokio::spawn(async move { drop(unmount(&requester).await) });
    system.under_way("NodeUnpublishVolume").await;
    system.kill9(Part::Agent(0));
    unmounting.abort();
    // The volume cannot be registered under another name while n1 has it mounted.
    let document = json!({"id": "again", "plugin": PLUGIN, "external_id": "data",
        "capability": [{"access": "single-node-writer"}]});
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    let refused: Result<Value, Problem> = system.ask(&subject, &document).await;
    assert_eq!(refused.unwrap_err().code, Code::HandleTaken);
    let detaches = || begun(&system, "ControllerUnpublish");
    assert_eq!(detaches(), 0, "{path} may be mounted");

    system.let_go();
    system.restart(Part::Agent(0));
    system.freed("data").await;
    assert_eq!((detaches(), system.in_use("data")), (1, None));
    let _registered: Value = system.persist(&subject, &document).await.unwrap();
    system.run("b", 1, "again").await;
    system.stop("b").await;
    system.settle("again").await;
}

/// A node may take up to a minute to report a mount. Until then the volume must not be granted
/// elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_granted_a_volume_whose_claim_was_deleted_before_its_node_has_reported() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| vec!["--lenient".to_owned()];
    let system = System::start(Options { driver, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let path = system.run("a", 0, "data").await.path;
    system.alloc("b", 1, "data", false).await;
    // The paused agent reports nothing.
    system.daemon(Part::Agent(0)).pause();
    delete_claim(&system, "data", "a").await;
    let take = json!({"alloc": "b", "volume": "data", "node": "n2"});
    let subject = verb::ClaimTake::subject(&Namespace::default());
    let try_take = async || system.ask::<Value>(&subject, &take).await;
    let refused = try_take().await.unwrap_err();
    assert_eq!(refused.code, Code::MountsUnreported, "{refused}");
    assert!(refused.message.contains("n1"), "{refused}");
    let delete = verb::VolumeDelete::subject(&Namespace::default());
    let refused = system.ask::<Value>(&delete, &json!({"id": "data"})).await.unwrap_err();
    assert_eq!(refused.code, Code::MountsNotSaid, "the volume is mounted: {refused}");
    system.daemon(Part::Agent(0)).resume();
    wait::until("the node reports the mount", RECOVERY, || async {
        match try_take().await {
            Ok(grant) => panic!("granted beside the mount: {grant:?}"),
            Err(problem) if problem.code == Code::MountUnaccounted => Ok(()),
            Err(problem) => Err(problem.to_string()),
        }
    })
    .await;
    assert_eq!(fs::metadata(&path).map(|_| unpublished(&system)).unwrap(), 0);
    // From here on the node's reports decide, without a delay.
    unmount(&system).await.unwrap();
    system.freed("data").await;
    system.mount("b", 1, "data").await.unwrap();
    system.stop("b").await;
    system.freed("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_beside_a_mount_without_a_claim_detaches_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-multi-writer"]).await;
    let path = system.run("a", 0, "data").await.path;
    system.run("c", 0, "data").await;
    delete_claim(&system, "data", "a").await;
    system.stop("c").await;
    let error = wait::until("the release names the mount", RECOVERY, || async {
        let claims = system.claims("data").await.claims;
        claims
            .first()
            .and_then(|claim| claim.error().map(str::to_owned))
            .ok_or(format!("{claims:?}"))
    })
    .await;
    assert!(error.contains("BERTH0225") || error.contains("no claim covers it"), "{error}");
    assert!(error.contains(&path), "{error}");
    assert_eq!(unpublished(&system), 0);
    fs::write(format!("{path}/f"), "still there").unwrap();
    unmount(&system).await.unwrap();
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_backup_that_lacks_a_claim_frees_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    let backup = back_up(&system).await;
    system.healthy().await;
    let path = system.run("a", 0, "data").await.path;
    let volumes = bucket::VOLUMES.name;
    assert_eq!(api(&system, "DELETE", volumes).await["success"], true);
    restore(&system, &backup, volumes).await;
    for part in [Part::Claim, Part::Watcher, Part::Gc, Part::Agent(0), Part::Agent(1)] {
        system.kill9_and_restart(part).await;
    }
    system.healthy().await;
    assert!(system.claims("data").await.claims.is_empty(), "the backup is older");
    let detached = detach(&system).await;
    assert!(detached.unaccounted[0].contains(&path), "{detached:?}");
    let refused = is_reported(&system, &path).await;
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert_eq!(unpublished(&system), 0);
    fs::write(format!("{path}/f"), "still there").unwrap();

    unmount(&system).await.unwrap();
    system.settle("data").await;
}

/// The services start a new installation, since no bucket is left. The agents remember the old one.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_whole_store_is_lost_the_mounts_keep_their_volumes() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    let mounted = system.run("a", 0, "data").await;
    fs::write(format!("{}/f", mounted.path), "kept").unwrap();
    lose_the_store(&system).await;
    let services = [Part::Claim, Part::Watcher, Part::Registry, Part::Gc];
    for part in services.into_iter().chain([Part::Agent(0), Part::Agent(1)]) {
        system.kill9_and_restart(part).await;
    }
    system.healthy().await;
    system.volume("data", &["single-node-writer"]).await;
    let refused = is_reported(&system, &mounted.path).await;
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert_eq!(fs::read_to_string(format!("{}/f", mounted.path)).unwrap(), "kept");
    assert_eq!(unpublished(&system), 0, "nothing was detached");

    unmount(&system).await.unwrap();
    system.settle("data").await;
}
