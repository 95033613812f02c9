//! Snapshots: cut, polled until ready, restored, deleted; alone and in groups.

use berth_contract::code::Code;
use berth_contract::message::snapshot::SnapshotsChanged;
use berth_contract::message::storage::StorageWait;
use berth_domain::volume::storage::{SnapshotState, Stage};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use serde_json::json;

use crate::faults::sweep;

#[tokio::test(flavor = "multi_thread")]
async fn cut_restored_and_deleted_after_its_volume() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.created("data", json!({"size": "1MiB"})).await;
    let mounted = system.run("writer", 0, "data").await;
    std::fs::write(format!("{}/f", mounted.path), "first").unwrap();
    let slow = json!({"parameters": {"ready-after-ms": "1500"}});
    system.snapshot(&["data"], "monday", slow.clone()).await.unwrap();
    let repeated = system.snapshot(&["data"], "monday", slow.clone()).await.unwrap();
    assert!(!repeated.changed, "a repetition changes nothing");
    let refused = system.snapshot(&["data"], "monday", json!({})).await.unwrap_err();
    assert_eq!(refused.code, Code::SnapshotExists, "{refused}");
    let ready = system.snapshot_is("data", "monday", SnapshotState::Ready).await;
    assert!(ready.external_id.is_some() && ready.cut_at.is_some(), "{ready:?}");
    std::fs::write(format!("{}/f", mounted.path), "second").unwrap();
    system.stop("writer").await;
    system.settle("data").await;

    // The snapshot outlives its volume.
    system.deleted("data").await;
    system.snapshot_is("data", "monday", SnapshotState::Ready).await;
    system.assert_known().await;
    let from = json!({"from": {"volume": "data", "snapshot": "monday"}});
    let storage = system.created("restored", from).await;
    assert!(storage.faults.is_empty(), "{storage:?}");
    let mounted = system.run("reader", 0, "restored").await;
    assert_eq!(std::fs::read_to_string(format!("{}/f", mounted.path)).unwrap(), "first");
    system.stop("reader").await;
    system.settle("restored").await;

    // Another volume of that name cannot have such a snapshot until the old one is deleted.
    system.created("data", json!({"size": "1MiB"})).await;
    let refused = system.snapshot(&["data"], "monday", slow).await.unwrap_err();
    assert_eq!(refused.code, Code::SnapshotExists, "{refused}");
    system.snapshot_deleted("data", "monday", false).await;
    system.snapshot(&["data"], "monday", json!({})).await.unwrap();
    let own = system.snapshot_is("data", "monday", SnapshotState::Ready).await;
    let earlier = json!({
        "volume": "data", "snapshot": "monday", "create_index": ready.create_index,
    });
    let subject = "berth.v1.snapshot.delete.default";
    let refused = system.ask::<serde_json::Value>(subject, &earlier).await.unwrap_err();
    assert_eq!(refused.code, Code::NoSuchSnapshot, "{refused}");
    assert_eq!(system.snapshots("data").await, [own]);
    system.snapshot_deleted("data", "monday", false).await;
    for volume in ["data", "restored"] {
        system.deleted(volume).await;
    }
    system.assert_known().await;
    system.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_cut_and_deleted_as_one() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    for volume in ["x", "y", "z"] {
        system.created(volume, json!({"size": "1MiB"})).await;
    }
    let cut = system.snapshot(&["x", "y", "z"], "all", json!({})).await.unwrap();
    assert_eq!(cut.snapshots.len(), 3, "{cut:?}");
    for volume in ["x", "y", "z"] {
        let ready = system.snapshot_is(volume, "all", SnapshotState::Ready).await;
        assert_eq!(ready.group.len(), 3, "{ready:?}");
    }
    system.assert_known().await;
    let alone = json!({"volume": "y", "snapshot": "all"});
    let subject = "berth.v1.snapshot.delete.default";
    let forgotten = json!({"volume": "y", "snapshot": "all", "forget": true});
    for body in [alone, forgotten] {
        let refused = system.ask::<serde_json::Value>(subject, &body).await.unwrap_err();
        assert_eq!(refused.code, Code::SnapshotInGroup, "{refused}");
    }
    // If some of the volumes already have such a snapshot, no volume gets one.
    system.created("w", json!({"size": "1MiB"})).await;
    for volumes in [&["x", "w"][..], &["w", "x", "y", "z"]] {
        let refused = system.snapshot(volumes, "all", json!({})).await.unwrap_err();
        assert_eq!(refused.code, Code::SnapshotExists, "{volumes:?}: {refused}");
    }
    assert_eq!(system.snapshots("w").await, []);
    system.snapshot(&["w"], "all", json!({})).await.unwrap();
    system.snapshot_is("w", "all", SnapshotState::Ready).await;
    let no_group = json!({"volume": "w", "snapshot": "all", "group": true});
    let refused = system.ask::<serde_json::Value>(subject, &no_group).await.unwrap_err();
    assert!(refused.to_string().contains("is in no group"), "{refused}");

    system.snapshot_deleted("y", "all", true).await;
    system.snapshot_is("w", "all", SnapshotState::Ready).await;
    system.snapshot_deleted("w", "all", false).await;
    system.deleted("w").await;
    for volume in ["x", "y", "z"] {
        assert_eq!(system.snapshots(volume).await, [], "{volume}");
        system.deleted(volume).await;
    }
    system.assert_known().await;
    system.judge();
}

/// Another controller would answer that the snapshot is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_waits_for_the_controller_that_knows_it_and_says_so() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |node| vec!["--topology".to_owned(), format!("zone=z{}", node + 1)];
    let system = System::start(Options { nodes: 2, driver, ..Options::default() }).await;
    let in_zone = json!({"size": "1MiB", "topology": [{"zone": "z1"}]});
    system.created("x", in_zone).await;
    system.snapshot(&["x"], "monday", json!({})).await.unwrap();
    system.snapshot_is("x", "monday", SnapshotState::Ready).await;
    // Its node is down until the collector removes its record.
    system.compared().await;
    system.kill9(Part::Agent(0));
    sweep::down(&system, "n1").await;
    sweep::node(&system, "n1").await;
    let subject = "berth.v1.snapshot.delete.default";
    let body = json!({"volume": "x", "snapshot": "monday"});
    system.ask::<SnapshotsChanged>(subject, &body).await.unwrap();
    wait::until("the snapshot says what it waits for", RECOVERY, || async {
        let all = system.snapshots("x").await;
        let is_waiting =
            all.iter().any(|snapshot| snapshot.waits_for == Some(StorageWait::Controller));
        if is_waiting { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    system.restart(Part::Agent(0));
    wait::until("the snapshot is deleted", RECOVERY, || async {
        let all = system.snapshots("x").await;
        if all.is_empty() { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    system.deleted("x").await;
    system.assert_known().await;
    system.judge();
}

/// Safety 4: a group's call counts as a call of each member, even past its deadline and if another
/// controller could be called.
#[tokio::test(flavor = "multi_thread")]
async fn each_volume_of_a_group_waits_for_its_call() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 2, ..Options::default() }).await;
    for volume in ["x", "y"] {
        system.created(volume, json!({"size": "1MiB"})).await;
    }
    expand_beside_a_group(system).await;
}

/// The group's call goes to the controller in the zone of its first volume. A call of the other
/// volume would go to the controller in its own zone.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_elsewhere_waits_for_the_call_of_its_group() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |node| vec!["--topology".to_owned(), format!("zone=z{}", node + 1)];
    let system = System::start(Options { nodes: 2, driver, ..Options::default() }).await;
    for (volume, zone) in [("x", "z1"), ("y", "z2")] {
        let in_zone = json!({"size": "1MiB", "topology": [{"zone": zone}]});
        system.created(volume, in_zone).await;
    }
    expand_beside_a_group(system).await;
}

async fn expand_beside_a_group(system: System) {
    for node in 0..2 {
        system.plant(node, &json!([{"rpc": "CreateVolumeGroupSnapshot", "hang": true}]));
    }
    system.snapshot(&["x", "y"], "all", json!({})).await.unwrap();
    wait::until("the call is past its deadline", RECOVERY, || async {
        let snapshots = system.snapshots("y").await;
        let tries = snapshots.first().map_or(0, |snapshot| snapshot.tries);
        if tries > 0 { Ok(()) } else { Err(format!("{snapshots:?}")) }
    })
    .await;
    // `y` does not lead the group.
    system.expand("y", json!({"size": "2MiB"})).await.unwrap();
    wait::until("the expansion waits for the group's call", RECOVERY, || async {
        let status = system.volume_status("y").await.map_err(|problem| problem.to_string())?;
        let operation = status.storage.and_then(|storage| storage.operation);
        let error = operation.as_ref().and_then(|operation| operation.error()).unwrap_or_default();
        // Another controller is not called, and the same one not yet.
        let reasons = ["at controller.group-snapshot", "not answered an earlier call"];
        let is_waiting = reasons.iter().any(|reason| error.contains(reason));
        if is_waiting { Ok(()) } else { Err(format!("{operation:?}")) }
    })
    .await;
    for node in 0..2 {
        system.plant(node, &json!([]));
    }
    for volume in ["x", "y"] {
        system.snapshot_is(volume, "all", SnapshotState::Ready).await;
    }
    system.staged_as("y", Stage::Ready).await;
    system.snapshot_deleted("x", "all", true).await;
    for volume in ["x", "y"] {
        system.deleted(volume).await;
    }
    system.assert_known().await;
    system.judge();
}

/// Rule 23: the source of a copy stays until the copy is ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_not_deleted_under_its_copy() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.created("source", json!({"size": "1MiB"})).await;
    system.plant(0, &json!([{"rpc": "CreateVolume", "code": "UNAVAILABLE", "times": 3}]));
    system.create("copy", json!({"from": {"volume": "source"}})).await.unwrap();
    let subject = "berth.v1.volume.delete.default";
    let source = json!({"id": "source"});
    let refused = system.ask::<serde_json::Value>(subject, &source).await.unwrap_err();
    assert_eq!(refused.code, Code::StorageInUse, "{refused}");
    assert!(refused.message.contains("copy"), "{refused}");
    system.staged_as("copy", Stage::Ready).await;
    system.deleted("source").await;
    system.deleted("copy").await;
    system.assert_known().await;
    system.judge();
}

/// A first call may have cut the snapshot. The plugin then refuses every call, so that is never
/// known.
#[tokio::test(flavor = "multi_thread")]
async fn what_its_plugin_never_cuts_is_forgotten_on_request() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.created("data", json!({"size": "1MiB"})).await;
    system.plant(
        0,
        &json!([
            {"rpc": "CreateSnapshot", "code": "INTERNAL", "times": 1},
            {"rpc": "CreateSnapshot", "code": "INVALID_ARGUMENT"},
        ]),
    );
    system.snapshot(&["data"], "no", json!({})).await.unwrap();
    wait::until("the snapshot is refused after an uncertain call", RECOVERY, || async {
        let snapshots = system.snapshots("data").await;
        let error = snapshots.first().and_then(|snapshot| snapshot.error()).unwrap_or_default();
        error.contains("INVALID_ARGUMENT").then_some(()).ok_or(format!("{snapshots:?}"))
    })
    .await;
    let subject = "berth.v1.snapshot.delete.default";
    let forget = json!({"volume": "data", "snapshot": "no", "forget": true});
    let done: SnapshotsChanged = system.persist(subject, &forget).await.unwrap();
    assert!(done.changed, "{done:?}");
    assert_eq!(system.snapshots("data").await, []);
    system.deleted("data").await;
    system.assert_known().await;
    system.judge();
}
