//! Plugin calls that hang or fail, in every step of a claim; and the allocs in the queue behind
//! them.

use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::{Value, json};

use super::{NOBODY, OPERATOR, ask_to_mount, tells};

/// Each fault has its own volume, which is named after the fault.
const IN_ATTACH: [&str; 4] = ["stage", "publish", "attach", "stage-fails"];
const IN_RELEASE: [&str; 5] = ["unpublish", "unstage", "detach", "detach-refused", "detach-flaky"];

fn faults() -> Value {
    let hang = |rpc: &str, volume: &str| json!({"rpc": rpc, "volume": volume, "hang": true});
    let fail =
        |rpc: &str, volume: &str, code: &str| json!({"rpc": rpc, "volume": volume, "code": code});
    json!([
        hang("NodeStageVolume", "stage"),
        hang("NodePublishVolume", "publish"),
        hang("ControllerPublishVolume", "attach"),
        fail("NodeStageVolume", "stage-fails", "INTERNAL"),
        hang("NodeUnpublishVolume", "unpublish"),
        hang("NodeUnstageVolume", "unstage"),
        hang("ControllerUnpublishVolume", "detach"),
        fail("ControllerUnpublishVolume", "detach-refused", "FAILED_PRECONDITION"),
        fail("ControllerUnpublishVolume", "detach-flaky", "UNAVAILABLE"),
    ])
}

/// S4, S6, S10, and each hang.
#[tokio::test(flavor = "multi_thread")]
async fn why_names_the_call_that_hangs_or_fails_and_whose_matter_it_is() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { call_timeout_ms: 1_500, patience_ms: 2_500, ..Options::default() };
    let system = System::start(options).await;
    for volume in IN_ATTACH.into_iter().chain(IN_RELEASE) {
        system.volume(volume, &["single-node-writer"]).await;
    }
    for volume in IN_RELEASE {
        system.run(&format!("of-{volume}"), 0, volume).await;
    }
    for node in 0..2 {
        system.plant(node, &faults());
    }
    for volume in IN_RELEASE {
        system.stop(&format!("of-{volume}")).await;
    }
    let mounts = IN_ATTACH.map(async |volume| {
        ask_to_mount(&system, &format!("of-{volume}"), 0, volume).await;
    });
    let [one, two, three, four] = mounts;
    tokio::join!(one, two, three, four);
    ask_to_mount(&system, "next", 1, "unpublish").await;

    let hangs = async |volume: &str, rpc: &str| {
        let sentence = format!("plugin dev.berth on node n… has not answered {rpc} for …");
        tells(&system, volume, "plugin-hangs", OPERATOR, &sentence).await
    };
    let staged = hangs("stage", "NodeStageVolume").await;
    assert_eq!(staged["state"], "taken by of-stage on n1, staging hangs");
    hangs("publish", "NodePublishVolume").await;
    hangs("attach", "ControllerPublishVolume").await;
    hangs("unstage", "NodeUnstageVolume").await;
    hangs("detach", "ControllerUnpublishVolume").await;
    let unpublish = hangs("volume/unpublish", "NodeUnpublishVolume").await;
    assert_eq!(unpublish["state"], "unpublishing by of-unpublish on n1");

    let sentence = "plugin dev.berth on node n1 answers NodeStageVolume with INTERNAL: …";
    tells(&system, "stage-fails", "plugin-refuses", OPERATOR, sentence).await;
    let sentence = "plugin dev.berth on node n… answers ControllerUnpublishVolume with \
                    FAILED_PRECONDITION: that is to be mended in the storage";
    let refused = tells(&system, "detach-refused", "plugin-refuses", OPERATOR, sentence).await;
    let next = refused["next"].to_string();
    assert!(next.contains("berth volume detach detach-refused n1 --detached-at-storage"));
    let sentence = "plugin dev.berth on node n… answers ControllerUnpublishVolume with \
                    UNAVAILABLE, which it calls temporary; it is asked again";
    let finding = tells(&system, "detach-flaky", "plugin-retries", NOBODY, sentence).await;
    assert!(finding["who"]["nobody"].get("by").is_some(), "{finding}");

    // An alloc in the queue behind a release that hangs: its cause is the holder's.
    ask_to_mount(&system, "after", 1, "unpublish").await;
    let sentence = "… waits for of-unpublish: plugin dev.berth on node n1 has not answered \
                    NodeUnpublishVolume for …";
    tells(&system, "alloc/after", "plugin-hangs", OPERATOR, sentence).await;
    // The same for an alloc that was refused and does not wait.
    system.alloc("late", 1, "unstage", false).await;
    let sentence = "late waits for of-unstage: plugin dev.berth on node n1 has not answered \
                    NodeUnstageVolume for …";
    tells(&system, "alloc/late", "plugin-hangs", OPERATOR, sentence).await;
    system.stop("late").await;
    // `berth why` reports the same for the node and the plugin.
    tells(&system, "n1", "plugin-hangs", OPERATOR, "plugin dev.berth has not answered …").await;
    tells(&system, "dev.berth", "plugin-hangs", OPERATOR, "volume …").await;
    for node in 0..2 {
        system.plant(node, &json!([]));
    }
    for volume in IN_ATTACH {
        system.stop(&format!("of-{volume}")).await;
    }
    for alloc in ["next", "after"] {
        system.stop(alloc).await;
    }
    for volume in IN_ATTACH.into_iter().chain(IN_RELEASE) {
        system.freed(volume).await;
    }
    // S1: a claim that failed and was released has no holder any more.
    tells(&system, "detach-flaky", "nothing", NOBODY, "nobody claims it, …").await;
    // Nothing has been mounted since, so the last failure still counts.
    let sentence = "the last request for it was refused … ago: …INTERNAL…";
    tells(&system, "stage-fails", "refused", OPERATOR, sentence).await;
    system.settle("stage").await;
}
