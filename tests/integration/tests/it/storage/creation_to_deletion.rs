//! A volume's life at its storage: created, used, deleted.

use berth_contract::code::Code;
use berth_domain::volume::storage::Stage;
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn created_used_and_deleted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    let document = json!({"size": "64MiB"});
    let requested = system.create("data", document.clone()).await.unwrap();
    assert!(requested.changed, "{requested:?}");
    let storage = system.staged_as("data", Stage::Ready).await;
    assert!(storage.faults.is_empty() && storage.failure.is_none(), "{storage:?}");
    let repeated = system.create("data", document).await.unwrap();
    assert!(!repeated.changed, "the same request again changes nothing: {repeated:?}");
    let refused_other = system.create("data", json!({"size": "65MiB"})).await.unwrap_err();
    assert_eq!(refused_other.code, Code::VolumeExists, "{refused_other}");
    assert!(refused_other.message.contains("size"), "{refused_other}");
    let status = system.volume_status("data").await.unwrap();
    assert_eq!(status.capacity_bytes, Some(64 << 20));
    system.assert_known().await;

    let mounted = system.run("a", 0, "data").await;
    std::fs::write(format!("{}/f", mounted.path), "x").unwrap();
    let refused = system.delete("data").await.unwrap_err();
    assert_eq!(refused.code, Code::ClaimsLive, "{refused}");
    assert!(refused.next.contains("`berth alloc stop a`"), "{refused:?}");
    assert!(!refused.next.contains("--force"), "a deletion cannot be forced: {refused:?}");
    system.ended_and_deleted("a", "data").await;
    system.assert_known().await;

    // The next volume of this id is another volume.
    system.created("data", json!({"size": "64MiB"})).await;
    let mounted = system.run("b", 1, "data").await;
    assert!(
        !std::fs::exists(format!("{}/f", mounted.path)).unwrap(),
        "the new volume has the old data"
    );
    system.stop("b").await;
    system.settle("data").await;
    system.deleted("data").await;
    system.assert_known().await;
    system.judge();
}

/// Rule 20: a volume that may exist is created before it is deleted, so that its id is known.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_whose_answer_is_lost_is_finished_before_the_volume_is_deleted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let lost = json!([{"rpc": "CreateVolume", "when": "after", "code": "UNAVAILABLE"}]);
    system.plant(0, &lost);
    system.create("data", json!({"size": "1MiB"})).await.unwrap();
    berth_harness::wait::until("the answer is lost", berth_integration::RECOVERY, || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        match status.storage.and_then(|storage| storage.operation) {
            Some(operation) if operation.tries > 0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let refused = system.run_refused("early", 0, "data").await;
    assert_eq!(refused.code, Code::VolumeNotReady, "no claim before it is ready: {refused}");
    system.stop("early").await;
    let doomed = system.delete("data").await.unwrap();
    assert!(!doomed.gone, "the volume may exist at the storage: {doomed:?}");
    system.plant(0, &json!([]));
    system.forgotten("data").await;
    system.assert_known().await;
    system.judge();
}
