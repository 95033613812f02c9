//! A record is lost while its volume is mounted. The mounted volume is not deleted, deregistered or
//! granted, even if its name means another volume by then. And a mount or claim under a name holds
//! only its own volume. The driver's log shows which calls were sent.

use std::fs;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::agent::{Republish, Republished, Unmount, Unmounted};
use berth_contract::message::storage::StorageWait;
use berth_contract::message::volume::Registered;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::volume::State;
use berth_domain::{Namespace, NodeId, VolumeId, VolumeKey};
use berth_harness::nats::raw;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, System};
use serde_json::{Value, json};

use crate::unaccounted::delete_claim;
use crate::why::{YOU, berth, tells};

const PATIENCE: Duration = Duration::from_secs(60);
/// How long a test watches for a call that must not come.
const QUIET: Duration = Duration::from_secs(4);

fn n1() -> NodeId {
    NodeId::new("n1").unwrap()
}

fn key_of(id: &str) -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new(id).unwrap())
}

/// The number of calls of an RPC that began.
fn count(system: &System, rpc: &str) -> usize {
    let calls = system.calls();
    calls.iter().filter(|call| call["entry"] == "begin" && call["rpc"] == rpc).count()
}

/// Deletes a key by hand, as `nats kv del` does.
async fn delete_key(system: &System, key: &str) {
    let subject = format!("$KV.{}.{key}", bucket::VOLUMES.name);
    let stored = raw::ask(&system.servers()[0], &subject, &[("KV-Operation", "DEL")], b"").await;
    assert!(stored["seq"].is_u64(), "{stored}");
}

/// Deletes the claim of a mounted volume, and waits until the node reports the mount.
async fn lose_claim(system: &System, volume: &str, alloc: &str) {
    delete_claim(system, volume, alloc).await;
    // The agent compares mounts with claims at its start, and then every minute.
    system.kill9_and_restart(Part::Agent(0)).await;
    await_report(system, volume).await;
}

async fn await_report(system: &System, volume: &str) {
    wait::until("the mount is reported", PATIENCE, || async {
        let status = system.volume_status(volume).await.map_err(|problem| problem.to_string())?;
        if status.unaccounted.is_empty() { Err(format!("{status:?}")) } else { Ok(()) }
    })
    .await;
}

async fn unmount(system: &System, volume: &str) {
    let volume = VolumeId::new(volume).unwrap();
    let unmount = Unmount { namespace: Namespace::default(), volume, alloc: None };
    let unmounted: Result<Unmounted, Problem> =
        system.persist(&verb::AgentUnmount::subject(&n1()), &unmount).await;
    assert_eq!(unmounted.unwrap().mounts.len(), 1);
}

async fn republish(system: &System, force: bool) -> Result<Republished, Problem> {
    let volume = VolumeId::new("data").unwrap();
    let republish = Republish { namespace: Namespace::default(), volume, alloc: None, force };
    system.persist(&verb::AgentRepublish::subject(&n1()), &republish).await
}

async fn register(system: &System, id: &str, external_id: &str) -> Result<Registered, Problem> {
    let document = json!({"id": id, "plugin": PLUGIN, "external_id": external_id,
        "capability": [{"access": "single-node-writer"}]});
    system.persist(&verb::VolumeRegister::subject(&Namespace::default()), &document).await
}

/// Mounts a volume on the first node as `data`, deletes its claim, and registers the volume as
/// `other`. Returns the path.
async fn mount_under_an_old_name(system: &System) -> String {
    system.volume("data", &["single-node-writer"]).await;
    let path = system.run("a", 0, "data").await.path;
    lose_claim(system, "data", "a").await;
    delete_key(system, &key::spec(&key_of("data"))).await;
    register(system, "other", "data").await.unwrap();
    path
}

/// Not even force deregisters a volume under a mount: it closes, and goes once nothing has it
/// mounted.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_mounted_without_a_claim_is_closed_by_force_and_goes_after_the_mount() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    lose_claim(&system, "data", "a").await;
    for _again in 0..2 {
        let closing = system.deregister("data", true).await.unwrap();
        assert!(!closing.gone && closing.releasing.is_empty(), "{closing:?}");
        assert_eq!(closing.mounts.len(), 1, "{closing:?}");
    }
    let swept: Value = system.persist(&verb::GcForce::subject(&()), &json!({})).await.unwrap();
    assert!(swept.to_string().contains("it is closing, and may be in use"), "{swept}");
    let status = system.volume_status("data").await.unwrap();
    assert!(status.closing.is_some() && status.unaccounted.len() == 1, "{status:?}");
    system.alloc("b", 1, "data", false).await;
    let refused = system.mount("b", 1, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::VolumeClosing, "{refused}");

    unmount(&system, "data").await;
    let gone = wait::until("the volume is gone", PATIENCE, || async {
        let _: Value = system.persist(&verb::GcForce::subject(&()), &json!({})).await.unwrap();
        system.volume_status("data").await.err().ok_or("the volume is still there")
    })
    .await;
    assert_eq!(gone.code, Code::NoSuchVolume, "{gone}");
}

/// The plugin's id of a volume.
async fn external_id(system: &System, id: &str) -> String {
    system.volume_status(id).await.unwrap().external_id.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_mounted_without_a_claim_is_neither_deleted_nor_deregistered() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.created("data", json!({"size": "1MiB"})).await;
    let path = system.run("a", 0, "data").await.path;
    fs::write(format!("{path}/f"), "kept").unwrap();
    lose_claim(&system, "data", "a").await;

    let refused = system.delete("data").await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::MountUnaccounted, false), "{refused}");
    assert!(refused.message.contains("node n1") && refused.message.contains(&path), "{refused}");
    assert!(refused.next.contains("berth node unmount n1 data"), "{refused}");
    let refused = system.deregister("data", false).await.unwrap_err();
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    // The agent's last report counts while the agent is down, and while it starts again.
    system.kill9(Part::Agent(0));
    assert_eq!(system.delete("data").await.unwrap_err().code, Code::MountUnaccounted);
    system.restart(Part::Agent(0));
    wait::until("n1 is ready again", PATIENCE, || async {
        // Each of these refusals may come while the agent starts and compares.
        let refused = system.delete("data").await.unwrap_err();
        assert!([Code::MountUnaccounted, Code::MountsNotSaid].contains(&refused.code), "{refused}");
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let is_ready = |id: &str| {
            nodes.iter().any(|node| node.id.as_str() == id && node.state.to_string() == "ready")
        };
        if is_ready("n1") { Ok(()) } else { Err(format!("{nodes:?}")) }
    })
    .await;
    assert_eq!(count(&system, "DeleteVolume"), 0, "the plugin was called");
    assert_eq!(fs::read_to_string(format!("{path}/f")).unwrap(), "kept");

    unmount(&system, "data").await;
    system.freed("data").await;
    wait::until("no node reports a mount", PATIENCE, || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        if status.mounts.is_empty() { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    system.deleted("data").await;
    assert_eq!(count(&system, "DeleteVolume"), 1);
    system.settle("data").await;
    system.assert_known().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_deletion_waits_for_a_mount_that_is_found_later() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.created("data", json!({"size": "1MiB"})).await;
    let path = system.run("a", 0, "data").await.path;
    fs::write(format!("{path}/f"), "kept").unwrap();
    // The claim is lost, and the deletion is accepted before the paused agent reports the mount.
    // The watcher, which would make the call, is down.
    system.kill9(Part::Watcher);
    system.compared().await;
    system.daemon(Part::Agent(0)).pause();
    delete_claim(&system, "data", "a").await;
    // A running claim service would remember the deleted claim.
    system.kill9_and_restart(Part::Claim).await;
    system.delete("data").await.unwrap();
    system.kill9_and_restart(Part::Agent(0)).await;
    await_report(&system, "data").await;
    system.restart(Part::Watcher);
    wait::until("the deletion waits for the mount", PATIENCE, || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        let operation = status.storage.as_ref().and_then(|storage| storage.operation.as_ref());
        match operation.and_then(|operation| operation.waits_for) {
            Some(StorageWait::Unmounted) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let sentence = "it is mounted where no claim covers it, so its change at the storage waits…";
    let why = tells(&system, "data", "mount-unaccounted", YOU, sentence).await;
    assert!(why["next"][0].as_str().unwrap().starts_with("berth node unmount n1 data"), "{why}");
    let (_, events) = berth(&system, &["events", "--volume", "data"]).await;
    assert!(events.contains("it waits: on node n1"), "{events}");
    tokio::time::sleep(QUIET).await;
    assert_eq!(count(&system, "DeleteVolume"), 0, "the plugin was called");
    assert_eq!(fs::read_to_string(format!("{path}/f")).unwrap(), "kept");

    // After the unmount the storage detaches the volume, and the deletion continues by itself.
    unmount(&system, "data").await;
    wait::until("the call is sent", PATIENCE, || async {
        let sent = count(&system, "DeleteVolume");
        if sent > 0 { Ok(()) } else { Err(format!("{:?}", system.volume_status("data").await)) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_mounted_under_its_old_name_is_granted_to_nobody_under_a_new_one() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    let path = mount_under_an_old_name(&system).await;
    let (publishes, stages) =
        (count(&system, "ControllerPublishVolume"), count(&system, "NodeStageVolume"));
    await_report(&system, "other").await;
    let refused = system.run_refused("b", 1, "other").await;
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert!(refused.message.contains(&path), "{refused}");
    assert_eq!(count(&system, "ControllerPublishVolume"), publishes, "nothing was attached");
    // On the node with the mount, the agent refuses.
    let refused = system.run_refused("c", 0, "other").await;
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert!(refused.next.contains("berth node unmount n1 data"), "no old name: {refused}");
    assert_eq!(count(&system, "NodeStageVolume"), stages, "nothing was staged");
    system.stop("c").await;
    wait::until("the release waits for the mount", PATIENCE, || async {
        let claims = system.claims("other").await.claims;
        let error = claims.first().and_then(|claim| claim.error().map(str::to_owned));
        error.filter(|error| error.contains(&path)).map(drop).ok_or(format!("{claims:?}"))
    })
    .await;
    assert_eq!(count(&system, "ControllerUnpublishVolume"), 0, "the mounted volume was detached");
    fs::write(format!("{path}/f"), "still there").unwrap();

    unmount(&system, "data").await;
    system.freed("other").await;
    system.freed("data").await;
    system.run("d", 1, "other").await;
    system.stop("d").await;
    system.freed("other").await;
    system.settle("other").await;
}

/// A node has a claim under the old name, in release, and one under the new name. Both claims share
/// one attachment.
#[tokio::test(flavor = "multi_thread")]
async fn the_release_of_an_old_name_detaches_nothing_from_a_claim_of_the_new_one() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    mount_under_an_old_name(&system).await;
    let refused = system.run_refused("c", 0, "other").await;
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert_eq!(system.claims("other").await.claims[0].state, State::Taken);

    unmount(&system, "data").await;
    wait::until("the release waits for the other claim", PATIENCE, || async {
        let claims = system.claims("data").await.claims;
        let waits_for = claims.first().and_then(|claim| claim.waits_for.clone());
        let names_claim = |text: &String| text.contains("alloc c on volume other");
        waits_for.filter(names_claim).map(drop).ok_or(format!("{claims:?}"))
    })
    .await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(count(&system, "ControllerUnpublishVolume"), 0, "nothing was detached");

    system.stop("c").await;
    system.freed("other").await;
    system.freed("data").await;
    system.run("d", 1, "other").await;
    system.stop("d").await;
    system.freed("other").await;
    system.settle("other").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_of_the_old_volume_keeps_no_node_but_its_own_from_a_new_one_of_that_name() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.created("data", json!({"size": "1MiB"})).await;
    let old = external_id(&system, "data").await;
    let path = system.run("a", 0, "data").await.path;
    fs::write(format!("{path}/f"), "old").unwrap();
    lose_claim(&system, "data", "a").await;
    delete_key(&system, &key::spec(&key_of("data"))).await;
    system.created("data", json!({"size": "1MiB"})).await;
    assert_ne!(external_id(&system, "data").await, old);

    // The new volume is mounted nowhere.
    assert_eq!(system.volume_status("data").await.unwrap().unaccounted, [""; 0]);
    let new = system.run("b", 1, "data").await.path;
    assert!(!fs::exists(format!("{new}/f")).unwrap());
    system.stop("b").await;
    system.freed("data").await;
    // The old mount has its paths on the first node.
    let refused = system.run_refused("c", 0, "data").await;
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");
    assert!(refused.message.contains("another volume of plugin"), "{refused}");
    system.stop("c").await;
    system.freed("data").await;
    // The alloc of the old mount gets no mount of the new volume, and its end unmounts nothing.
    let refused = system.try_mount("a", 0, "data").await.unwrap_err();
    assert!(refused.message.contains("another volume of plugin"), "{refused}");
    system.stop("a").await;
    system.freed("data").await;
    assert_eq!(fs::read_to_string(format!("{path}/f")).unwrap(), "old", "it stays mounted");
    // Under any name the old volume is refused to the other node: it is known by its external id.
    register(&system, "again", &old).await.unwrap();
    let refused = system.run_refused("d", 1, "again").await;
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");

    unmount(&system, "data").await;
    system.freed("data").await;
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_registration_was_lost_stays_of_its_volume_and_can_be_released() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.created("data", json!({"size": "1MiB"})).await;
    let old = external_id(&system, "data").await;
    let path = system.run("a", 0, "data").await.path;
    fs::write(format!("{path}/f"), "old").unwrap();
    delete_key(&system, &key::spec(&key_of("data"))).await;

    // Neither a creation nor a registration takes the claim over.
    let lost = wait::until("the registration is lost", PATIENCE, || async {
        match system.volume_status("data").await {
            Err(problem) if problem.code == Code::RegistrationLost => Ok(problem),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(lost.message.contains(&old), "{lost}");
    let refused = system.create("data", json!({"size": "1MiB"})).await.unwrap_err();
    assert_eq!(refused.code, Code::RegistrationLost, "{refused}");
    system.provision("another");
    let refused = register(&system, "data", "another").await.unwrap_err();
    assert_eq!(refused.code, Code::RegistrationLost, "{refused}");
    assert!(refused.next.contains("berth alloc stop a"), "{refused}");
    // The claim's volume cannot be registered under another name.
    let refused = register(&system, "other", &old).await.unwrap_err();
    assert_eq!(refused.code, Code::HandleTaken, "{refused}");
    let claims = system.claims("data").await.claims;
    assert!(claims[0].stray && claims[0].external_id.as_ref() == Some(&old), "{claims:?}");
    tells(&system, "data", "registration-lost", YOU, "claims of it stand…").await;
    let (_, doctor) = berth(&system, &["doctor"]).await;
    assert!(doctor.contains("the registration of the volume that it was granted for"), "{doctor}");

    // The release uses what the claim recorded.
    assert_eq!(fs::read_to_string(format!("{path}/f")).unwrap(), "old");
    system.stop("a").await;
    wait::until("the claim is released", PATIENCE, || async {
        let claims = system.claims("data").await.claims;
        if claims.is_empty() { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    assert_eq!(system.in_use(&old), None, "the volume is still attached at the storage");
    // Then the name is free, and the old volume can be registered again.
    system.created("data", json!({"size": "1MiB"})).await;
    register(&system, "other", &old).await.unwrap();
    let again = system.run("b", 1, "other").await.path;
    assert_eq!(fs::read_to_string(format!("{again}/f")).unwrap(), "old");
    system.stop("b").await;
    system.settle("other").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_registration_is_restored_under_a_claim_by_the_same_id() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let path = system.run("a", 0, "data").await.path;
    delete_key(&system, &key::spec(&key_of("data"))).await;
    wait::until("the registration is restored", PATIENCE, || async {
        let registered = register(&system, "data", "data").await;
        let status = system.volume_status("data").await;
        let is_restored = registered.is_ok() && status.is_ok();
        if is_restored { Ok(()) } else { Err(format!("{registered:?} {status:?}")) }
    })
    .await;
    let claims = system.claims("data").await.claims;
    assert!(claims[0].state == State::Taken && !claims[0].stray, "{claims:?}");
    assert_eq!(system.mount("a", 0, "data").await.unwrap().path, path, "it is granted again");
    system.stop("a").await;
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_is_well_is_left_to_its_workload_where_the_plugin_could_not_mount_it_again() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let path = system.run("a", 0, "data").await.path;
    fs::write(format!("{path}/f"), "kept").unwrap();
    let fault = json!([{"rpc": "NodePublishVolume", "when": "before",
        "code": "FAILED_PRECONDITION", "message": "token refused"}]);
    system.plant(0, &fault);
    let before = system.calls().len();
    let refused = republish(&system, false).await.unwrap_err();
    assert_eq!(refused.code, Code::MountWell, "{refused}");
    assert!(refused.next.contains("--force"), "{refused}");
    assert_eq!(fs::read_to_string(format!("{path}/f")).unwrap(), "kept");
    let calls = system.calls().split_off(before);
    let unpublished = calls.iter().find(|call| call["rpc"].to_string().contains("Unpublish"));
    assert_eq!(unpublished, None::<&Value>);
    system.plant(0, &json!([]));
    assert_eq!(republish(&system, true).await.unwrap().mounts.len(), 1);
    assert_eq!(fs::read_to_string(format!("{path}/f")).unwrap(), "kept");
    system.stop("a").await;
    system.settle("data").await;
}
