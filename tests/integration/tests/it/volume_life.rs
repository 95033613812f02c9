//! A volume's whole life, with and without controller, with and without staging.

use std::time::Duration;

use berth_contract::code::Code;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::Value;

/// Writes on one node, reads on the other, then frees the volume.
async fn whole_life(options: Options) {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(options).await;
    let registered = system.volume("data", &["single-node-writer"]).await;
    assert!(registered.changed);
    assert!(
        !system.volume("data", &["single-node-writer"]).await.changed,
        "A4: a repetition changes nothing"
    );

    let mounted = system.run("writer", 0, "data").await;
    std::fs::write(format!("{}/hello", mounted.path), "from node 1").unwrap();
    let again = system.mount("writer", 0, "data").await.unwrap();
    assert_eq!(again, mounted, "B4: a repetition gets the same answer");
    system.stop("writer").await;
    system.freed("data").await;

    let mounted = system.run("reader", 1, "data").await;
    let read = std::fs::read_to_string(format!("{}/hello", mounted.path)).unwrap();
    assert_eq!(read, "from node 1");

    // Safety 1: while the volume is held, no other alloc gets it, and the refusal names the holder.
    system.alloc("third", 0, "data", false).await;
    let refused = system.mount("third", 0, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::Held, "{refused}");
    assert!(refused.message.contains("alloc reader on node n2"), "{refused}");
    assert!(refused.trace.is_some() && !refused.next.is_empty(), "{refused:?}");
    system.stop("third").await;

    let status = system.volume_status("data").await.unwrap();
    assert!(status.health.healthy, "{:?}", status.health);
    assert_eq!(status.claims.len(), 1);
    system.stop("reader").await;
    system.settle("data").await;
    in_order(&system);
}

/// Checks that the driver's log shows the CSI order, with each call once.
fn in_order(system: &System) {
    let Options { attach, stage, controller, .. } = system.options;
    let attach = attach && controller;
    let mut expected = Vec::new();
    for _life in 0..2 {
        expected.extend(attach.then_some("ControllerPublishVolume"));
        expected.extend(stage.then_some("NodeStageVolume"));
        expected.push("NodePublishVolume");
        expected.push("NodeUnpublishVolume");
        expected.extend(stage.then_some("NodeUnstageVolume"));
        expected.extend(attach.then_some("ControllerUnpublishVolume"));
    }
    let is_change = |rpc: &&str| rpc.contains("ublishVolume") || rpc.contains("tageVolume");
    let calls = system.calls();
    let begun = calls.iter().filter(|call| call["entry"] == "begin");
    let rpcs: Vec<&str> = begun.filter_map(|call| call["rpc"].as_str()).filter(is_change).collect();
    assert_eq!(rpcs, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_controller_and_staging() {
    whole_life(Options::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_staging() {
    whole_life(Options { stage: false, ..Options::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_controller_that_does_not_attach() {
    whole_life(Options { attach: false, ..Options::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_controller_and_staging() {
    whole_life(Options { controller: false, stage: false, ..Options::default() }).await;
}

/// Several allocs share a volume on two nodes: staged once per node, unstaged after the last (C3).
#[tokio::test(flavor = "multi_thread")]
async fn shared_by_many() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("shared", &["multi-node-multi-writer"]).await;
    for (alloc, node) in [("a", 0), ("b", 0), ("c", 1)] {
        let mounted = system.run(alloc, node, "shared").await;
        std::fs::write(format!("{}/{alloc}", mounted.path), alloc).unwrap();
    }
    let mounted = system.mount("c", 1, "shared").await.unwrap();
    for alloc in ["a", "b", "c"] {
        let read = std::fs::read_to_string(format!("{}/{alloc}", mounted.path)).unwrap();
        assert_eq!(read, alloc);
    }
    system.stop("a").await;
    system.stop("c").await;
    let mounted = system.mount("b", 0, "shared").await.unwrap();
    assert!(std::fs::exists(format!("{}/c", mounted.path)).unwrap(), "b still has it");
    system.stop("b").await;
    system.settle("shared").await;
    let count = |rpc: &str| {
        let calls = system.calls();
        let is_begun = |call: &&Value| call["entry"] == "begin" && call["rpc"] == rpc;
        calls.iter().filter(is_begun).count()
    };
    assert_eq!(count("NodeStageVolume"), 2);
    assert_eq!(count("NodeUnstageVolume"), 2);
    assert_eq!(count("ControllerUnpublishVolume"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_three_servers_with_two_of_each_service() {
    whole_life(Options { servers: 3, replicas: 2, ..Options::default() }).await;
}

/// A5, rule 15: a claimed volume is not deregistered. Deregistered by force, it closes, and is
/// removed with its last claim.
#[tokio::test(flavor = "multi_thread")]
async fn deregistered_by_force_it_goes_with_its_last_claim() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let first = system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    let refused = system.deregister("data", false).await.unwrap_err();
    assert_eq!(refused.code, Code::ClaimsLive, "{refused}");
    assert!(refused.message.contains("alloc a on node n1"), "{refused}");
    // By force it closes under a live workload, which keeps it, also when its agent starts again.
    for force in [true, true, false] {
        let closing = system.deregister("data", force).await.unwrap();
        assert!(!closing.gone && closing.releasing.len() == 1, "{closing:?}");
    }
    system.alloc("b", 0, "data", false).await;
    let refused = system.mount("b", 0, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::VolumeClosing, "{refused}");
    system.kill9_and_restart(Part::Agent(0)).await;
    system.run("a", 0, "data").await;
    let unpublished = |system: &System| {
        let calls = system.calls();
        calls.iter().filter(|call| call["rpc"] == "NodeUnpublishVolume").count()
    };
    assert_eq!(unpublished(&system), 0, "nothing is taken from a live alloc");

    system.hold("NodeUnpublishVolume");
    system.stop("a").await;
    system.let_go();
    system.settle("data").await;
    let refused = wait::until("the volume is gone", Duration::from_secs(10), || async {
        system.volume_status("data").await.err().ok_or("the volume is still there")
    })
    .await;
    assert_eq!(refused.code, Code::NoSuchVolume, "{refused}");

    let second = system.volume("data", &["single-node-writer"]).await;
    assert!(second.index > first.index, "a new life has higher revisions");
}

/// A release begins when its alloc ends, whichever replica gets the request and however outdated
/// its cache is. The watchers' rescans are too rare to help.
#[tokio::test(flavor = "multi_thread")]
async fn no_release_waits_for_the_next_look() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, replicas: 2, rescan_ms: 600_000, ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["single-node-writer"]).await;
    for round in 0..30 {
        let alloc = format!("a{round}");
        system.run(&alloc, 0, "data").await;
        system.stop(&alloc).await;
        system.freed("data").await;
    }
    system.settle("data").await;
}
