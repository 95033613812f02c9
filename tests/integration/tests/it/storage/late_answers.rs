//! Plugins that answer after their callers have stopped waiting, and refuse their own retry: the
//! late answer is the only one that says what is at the storage.

use berth_domain::volume::storage::{SnapshotState, Stage};
use berth_harness::root::or_skip;
use berth_harness::{storage, wait};
use berth_integration::{Options, RECOVERY, System};
use serde_json::json;

const REFUSAL: &str = "ALREADY_EXISTS";

/// Any controller may get the next call. The one that has the answer gets it.
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
        let status = system.volume_status("data").await.map_err(|it| it.to_string())?;
        let operation = status.storage.and_then(|storage| storage.operation);
        operation.map(|it| it.tries > 0 && it.uncertain).ok_or("nothing is under way".to_owned())
    })
    .await;
    system.staged_as("data", Stage::Ready).await;
    is_made_once(&system, "CreateVolume");

    system.created("second", json!({"size": "1MiB"})).await;
    for (rpc, volumes, id) in [
        ("CreateSnapshot", &["data"][..], "s"),
        ("CreateVolumeGroupSnapshot", &["data", "second"], "g"),
    ] {
        system.hold(rpc);
        system.snapshot(volumes, id, json!({})).await.unwrap();
        answers_late(&system, rpc, async || {
            let all = system.snapshots("data").await;
            let cut = all.iter().find(|one| one.snapshot.as_str() == id);
            cut.map(|it| it.tries > 0).ok_or_else(|| format!("{all:?}"))
        })
        .await;
        system.snapshot_is("data", id, SnapshotState::Ready).await;
        is_made_once(&system, rpc);
    }

    system.snapshot_deleted("data", "s", false).await;
    system.snapshot_deleted("data", "g", true).await;
    system.deleted("data").await;
    system.deleted("second").await;
    let left = (storage::volumes(&system.backend()), storage::snapshots(&system.backend()));
    assert!(left.0.is_empty() && left.1.is_empty(), "{left:?}");
    system.assert_known().await;
    system.judge();
}

/// The volume that is to be deleted is found by the answer, too.
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
        let status = system.volume_status("data").await.map_err(|it| it.to_string())?;
        let operation = status.storage.and_then(|storage| storage.operation);
        operation.map(|it| it.tries > 0).ok_or("nothing is under way".to_owned())
    })
    .await;
    system.forgotten("data").await;
    assert!(storage::volumes(&system.backend()).is_empty());
    system.judge();
}

/// Lets the held call go on once its caller has stopped waiting. Every later one is refused.
async fn answers_late(system: &System, rpc: &str, gave_up: impl AsyncFn() -> Result<bool, String>) {
    system.under_way(rpc).await;
    wait::until(&format!("the caller of {rpc} has stopped waiting"), RECOVERY, || async {
        if gave_up().await? { Ok(()) } else { Err("it waits".to_owned()) }
    })
    .await;
    for node in 0..system.options.nodes {
        let refuses = json!([{"rpc": rpc, "when": "before", "code": REFUSAL}]);
        system.plant(node, &refuses);
    }
}

/// One call did it, and no later one was made.
fn is_made_once(system: &System, rpc: &str) {
    let calls = system.calls();
    let begun = calls.iter().filter(|call| call["entry"] == "begin" && call["rpc"] == rpc);
    assert_eq!(begun.count(), 1, "{rpc} was called once");
    system.let_go();
}
