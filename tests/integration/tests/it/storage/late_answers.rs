//! Plugins that answer after their callers have stopped waiting, and refuse the retry: only the
//! late answer says what is at the storage.

use berth_domain::volume::storage::{SnapshotState, Stage};
use berth_harness::root::or_skip;
use berth_harness::{storage, wait};
use berth_integration::{Options, RECOVERY, System};
use serde_json::json;

const REFUSAL: &str = "ALREADY_EXISTS";

/// Any controller may get the next call: the controller with the late answer must get it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_came_too_late_is_given_to_the_next_call() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 3, call_timeout_ms: 1_500, ..Options::default() };
    let system = System::start(options).await;

    system.hold("CreateVolume");
    system.create("data", json!({"size": "1MiB"})).await.unwrap();
    answers_late(&system, "CreateVolume", async || {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        let operation = status.storage.and_then(|storage| storage.operation);
        operation
            .map(|operation| operation.tries > 0 && operation.uncertain)
            .ok_or("nothing is under way".to_owned())
    })
    .await;
    system.staged_as("data", Stage::Ready).await;
    assert_called_once(&system, "CreateVolume");

    system.created("second", json!({"size": "1MiB"})).await;
    for (rpc, volumes, id) in [
        ("CreateSnapshot", &["data"][..], "s"),
        ("CreateVolumeGroupSnapshot", &["data", "second"], "g"),
    ] {
        system.hold(rpc);
        system.snapshot(volumes, id, json!({})).await.unwrap();
        answers_late(&system, rpc, async || {
            let all = system.snapshots("data").await;
            let cut = all.iter().find(|snapshot| snapshot.snapshot.as_str() == id);
            cut.map(|snapshot| snapshot.tries > 0).ok_or_else(|| format!("{all:?}"))
        })
        .await;
        system.snapshot_is("data", id, SnapshotState::Ready).await;
        assert_called_once(&system, rpc);
    }

    system.snapshot_deleted("data", "s", false).await;
    system.snapshot_deleted("data", "g", true).await;
    system.deleted("data").await;
    system.deleted("second").await;
    let remaining = (storage::volumes(&system.backend()), storage::snapshots(&system.backend()));
    assert!(remaining.0.is_empty() && remaining.1.is_empty(), "{remaining:?}");
    system.assert_known().await;
    system.judge();
}

/// A volume that is to be deleted is also found by the late answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_is_answered_too_late_can_be_deleted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { call_timeout_ms: 1_500, ..Options::default() }).await;
    system.hold("CreateVolume");
    system.create("data", json!({"size": "1MiB"})).await.unwrap();
    system.under_way("CreateVolume").await;
    system.delete("data").await.unwrap();
    answers_late(&system, "CreateVolume", async || {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        let operation = status.storage.and_then(|storage| storage.operation);
        operation.map(|operation| operation.tries > 0).ok_or("nothing is under way".to_owned())
    })
    .await;
    system.forgotten("data").await;
    assert!(storage::volumes(&system.backend()).is_empty());
    system.judge();
}

/// Lets the held call continue once its caller has stopped waiting, and has later calls refused.
async fn answers_late(system: &System, rpc: &str, gave_up: impl AsyncFn() -> Result<bool, String>) {
    system.under_way(rpc).await;
    wait::until(&format!("the caller of {rpc} has stopped waiting"), RECOVERY, || async {
        if gave_up().await? { Ok(()) } else { Err("the caller waits".to_owned()) }
    })
    .await;
    for node in 0..system.options.nodes {
        let refuses = json!([{"rpc": rpc, "when": "before", "code": REFUSAL}]);
        system.plant(node, &refuses);
    }
}

/// Checks that one call succeeded, and that no later one was made.
fn assert_called_once(system: &System, rpc: &str) {
    let calls = system.calls();
    let begun = calls.iter().filter(|call| call["entry"] == "begin" && call["rpc"] == rpc);
    assert_eq!(begun.count(), 1, "{rpc} was called once");
    system.let_go();
}
