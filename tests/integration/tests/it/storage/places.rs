//! Where a volume is: where the plugin says, where its first claim is, where its caller runs.

use berth_contract::code::Code;
use berth_contract::message::volume::Placements;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::volume::storage::Stage;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, RECOVERY, System};
use serde_json::json;

/// Each node is in a zone of its own, `z1`, `z2`.
fn numbered(node: usize) -> Vec<String> {
    vec!["--topology".to_owned(), format!("zone=z{}", node + 1)]
}

/// Volumes are in the zones of both nodes, whatever was requested.
fn in_both(node: usize) -> Vec<String> {
    [numbered(node), vec!["--also-from".to_owned(), "zone=z2".to_owned()]].concat()
}

async fn start(driver: fn(usize) -> Vec<String>) -> System {
    System::start(Options { driver, ..Options::default() }).await
}

/// CSI lets a plugin choose more places than were requested (a disk in two zones).
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_in_more_places_than_were_requested_is_claimed_in_each() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(in_both).await;
    let document = json!({"size": "1MiB", "topology": [{"zone": "z1"}]});
    let storage = system.created("data", document).await;
    assert!(storage.faults.is_empty(), "{storage:?}");
    for (alloc, node) in [("a", 0), ("b", 1)] {
        let mounted = system.run(alloc, node, "data").await;
        assert!(!mounted.path.is_empty());
        system.stop(alloc).await;
        system.freed("data").await;
    }
    system.deleted("data").await;
    system.assert_known().await;
    system.judge();
}

/// The plugin put it somewhere else only. That is a fault, and where the volume is.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_elsewhere_is_not_claimed_where_it_was_requested() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(numbered).await;
    system.plant(0, &json!([{"rpc": "CreateVolume", "wrong": "other-topology", "times": 1}]));
    let document = json!({"size": "1MiB", "topology": [{"zone": "z1"}]});
    let storage = system.created("data", document).await;
    assert!(storage.faults[0].contains("where it was not requested"), "{storage:?}");
    let refused = system.run_refused("a", 0, "data").await;
    assert_eq!(refused.code, Code::OutOfReach, "{refused}");
    assert!(refused.message.contains("z1-elsewhere"), "{refused}");
    system.stop("a").await;
    system.deleted("data").await;
    system.judge();
}

/// No room where the first claim is: the next claim says where.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_use_without_room_is_where_another_claim_is() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(numbered).await;
    let full = json!([{"rpc": "CreateVolume", "when": "before", "code": "RESOURCE_EXHAUSTED",
        "times": 1000}]);
    system.plant(0, &full);
    system.class("late", json!({"topology_policy": "first-use"})).await.unwrap();
    system.create("data", json!({"class": "late", "size": "1MiB"})).await.unwrap();
    let refused = wait::until("the reason is told", RECOVERY, || async {
        let refused = system.run_refused("a", 0, "data").await;
        let is_told = refused.message.contains("RESOURCE_EXHAUSTED");
        if is_told { Ok(refused) } else { Err(refused.to_string()) }
    })
    .await;
    assert_eq!(refused.code, Code::VolumeNotReady, "{refused}");
    let storage = system.staged_as("data", Stage::Unused).await;
    assert!(storage.failure.is_some(), "{storage:?}");
    system.stop("a").await;
    let mounted = system.run("b", 1, "data").await;
    assert!(!mounted.path.is_empty());
    let status = system.volume_status("data").await.unwrap();
    assert_eq!(status.topologies[0]["zone"], "z2", "{status:?}");
    assert!(status.storage.unwrap().failure.is_none());
    system.ended_and_deleted("b", "data").await;
    system.assert_known().await;
    system.judge();
}

/// A storage of its own on each node, with room for 1 MiB on the first one.
fn with_room(node: usize) -> Vec<String> {
    let pool = if node == 0 { 1 } else { 16 } << 20;
    [numbered(node), vec!["--bound".to_owned(), format!("--pool-bytes={pool}")]].concat()
}

/// What the storage last said of its room decides, but only while there is room elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_use_is_where_the_storage_has_room() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(with_room).await;
    system.class("late", json!({"topology_policy": "first-use"})).await.unwrap();
    for (volume, size) in [("small", "1MiB"), ("data", "2MiB"), ("huge", "32MiB")] {
        system.create(volume, json!({"class": "late", "size": size})).await.unwrap();
    }
    let fits = async |volume: &str| {
        let subject = verb::VolumePlacement::subject(&Namespace::default());
        let request = json!({"volumes": [{"source": volume}]});
        let answer: Placements = system.persist(&subject, &request).await.unwrap();
        answer.nodes.into_iter().map(|node| (node.fits, node.obstacles)).collect::<Vec<_>>()
    };
    wait::until("the plugin's answers count", RECOVERY, || async {
        let [(first, why), (second, _)] = &fits("data").await[..] else {
            return Err("there are two nodes".to_owned());
        };
        let is_full = why.iter().all(|one| one.code == Code::NoRoomHere && one.retryable);
        if (*first, *second, is_full) == (false, true, true) {
            Ok(())
        } else {
            Err(format!("{why:?}"))
        }
    })
    .await;
    for all_fit in ["small", "huge"] {
        let nodes = fits(all_fit).await;
        assert!(nodes.iter().all(|(fits, _)| *fits), "{all_fit}: {nodes:?}");
    }
    let refused = system.run_refused("a", 0, "data").await;
    assert_eq!((refused.code, refused.retryable), (Code::NoRoomHere, true), "{refused}");
    assert!(refused.message.contains("for all of them in zone=z2"), "{refused}");
    assert!(refused.next.contains("volume placement data"), "{refused:?}");
    assert!(fits("small").await.iter().all(|(fits, _)| *fits), "the node is not full");
    let creations = || system.calls().into_iter().filter(|call| call["rpc"] == "CreateVolume");
    assert_eq!(creations().count(), 0, "the plugin was asked in vain");
    system.stop("a").await;
    system.run("b", 1, "data").await;
    system.ended_and_deleted("b", "data").await;

    // No place has room for it. Then the plugin decides.
    wait::until("the plugin says no", RECOVERY, || async {
        let refused = system.run_refused("c", 0, "huge").await;
        let is_told = refused.code == Code::VolumeNotReady;
        if is_told { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    assert!(creations().any(|call| call["code"] == "RESOURCE_EXHAUSTED"));
    system.stop("c").await;
    system.run("d", 0, "small").await;
    system.ended_and_deleted("d", "small").await;
    system.assert_known().await;
    system.judge();
}

/// A claim that waits is granted where it is once there is room: the plugin is asked again soon.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_use_that_waits_for_room_goes_on_when_there_is_some() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(with_room).await;
    system.class("now", json!({})).await.unwrap();
    system.class("late", json!({"topology_policy": "first-use"})).await.unwrap();
    system.created("old", json!({"class": "now", "size": "1MiB", "node": "n1"})).await;
    system.create("data", json!({"class": "late", "size": "1MiB"})).await.unwrap();
    system.alloc("a", 0, "data", false).await;
    wait::until("there is no room", RECOVERY, || async {
        match system.try_mount("a", 0, "data").await {
            Err(problem) if problem.code == Code::NoRoomHere => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let (mounted, ()) = tokio::join!(system.mount_in_turn("a", 0, "data"), system.deleted("old"));
    assert!(!mounted.unwrap().path.is_empty());
    let status = system.volume_status("data").await.unwrap();
    assert_eq!(status.topologies[0]["zone"], "z1", "{status:?}");
    system.ended_and_deleted("a", "data").await;
    system.assert_known().await;
    system.judge();
}

/// Its caller knows where it is to be used.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_for_a_node_is_created_where_the_node_is() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(numbered).await;
    system.class("now", json!({})).await.unwrap();
    for (id, node, zone) in [("v1", "n1", "z1"), ("v2", "n2", "z2"), ("v3", "n2", "z2")] {
        let document = json!({"class": "now", "size": "1MiB", "node": node});
        system.created(id, document.clone()).await;
        let status = system.volume_status(id).await.unwrap();
        assert_eq!(status.topologies[0]["zone"], zone, "{status:?}");
        // The same request from elsewhere joins the volume.
        let other = system.create(id, json!({"class": "now", "size": "1MiB", "node": "n1"})).await;
        assert!(!other.unwrap().changed);
        system.deleted(id).await;
    }
    system.class("here", json!({"topology": [{"zone": "z1"}]})).await.unwrap();
    let refused = system.create("v4", json!({"class": "here", "size": "1MiB", "node": "n2"})).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, Code::OutOfReach, "{refused}");
    system.judge();
}
