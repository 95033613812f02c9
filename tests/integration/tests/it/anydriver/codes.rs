//! Codes that careless drivers return: nothing is lost, and nothing is stuck for ever.

use berth_contract::code::Code;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::System;
use serde_json::{Value, json};

use super::{SOON, await_rest, call_count, one_node, provision, register};

async fn start_with_volume() -> System {
    let system = System::start(one_node()).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.expect("the volume is registered");
    system
}

/// Mounts and releases the volume under these faults.
async fn use_under(system: &System, alloc: &str, faults: &Value) {
    system.plant(0, faults);
    let mounted = system.run(alloc, 0, "data").await;
    std::fs::write(format!("{}/{alloc}", mounted.path), "x").expect("the volume can be written");
    system.stop(alloc).await;
    await_rest(system, "data").await;
}

/// The fault on each call of an attach, a mount or their release.
fn on_each(fault: &Value) -> Value {
    let rpcs = [
        "ControllerPublishVolume",
        "NodeStageVolume",
        "NodePublishVolume",
        "NodeUnpublishVolume",
        "NodeUnstageVolume",
        "ControllerUnpublishVolume",
    ];
    let fault_on = |rpc: &str| {
        let mut fault = fault.clone();
        fault["rpc"] = json!(rpc);
        fault
    };
    rpcs.into_iter().map(fault_on).collect()
}

/// Such an error leaves it open whether the work was done. The call is retried until it succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn each_call_fails_once_by_unknown_or_aborted_before_or_after_its_work() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start_with_volume().await;
    for (number, code) in ["UNKNOWN", "ABORTED", "INTERNAL"].into_iter().enumerate() {
        for when in ["before", "after"] {
            let faults = on_each(&json!({"code": code, "when": when, "times": 1}));
            use_under(&system, &format!("{when}-{number}"), &faults).await;
        }
    }
}

/// A plugin that has lost a volume: the kernel decides whether something is mounted.
#[tokio::test(flavor = "multi_thread")]
async fn not_found_on_the_node_is_taken_as_done_only_where_nothing_is_mounted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start_with_volume().await;
    let on_node = |when: &str, times: Option<u32>| {
        let fault = |rpc| json!({"rpc": rpc, "code": "NOT_FOUND", "when": when, "times": times});
        json!([fault("NodeUnpublishVolume"), fault("NodeUnstageVolume")])
    };
    use_under(&system, "lost-after-the-work", &on_node("after", None)).await;
    assert_eq!(call_count(&system, 0, "NodeUnpublishVolume"), 1);
    use_under(&system, "lost-before", &on_node("before", Some(2))).await;
    assert_eq!(call_count(&system, 0, "NodeUnstageVolume"), 1 + 3, "the volume was still mounted");
}

/// CSI: it is not safe to assume that the volume is detached. The claim stays, and gives the
/// reason.
#[tokio::test(flavor = "multi_thread")]
async fn not_found_by_the_controller_is_no_detach() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start_with_volume().await;
    system.plant(0, &json!([{"rpc": "ControllerUnpublishVolume", "code": "NOT_FOUND"}]));
    system.run("a", 0, "data").await;
    system.stop("a").await;
    let claim = wait::until("the detach was tried twice", SOON, || async {
        let claim = system.claims("data").await.claims.pop().ok_or("the claim was freed")?;
        if claim.tries >= 2 { Ok(claim) } else { Err(format!("{claim:?}")) }
    })
    .await;
    assert!(claim.error().is_some_and(|error| error.contains("NOT_FOUND")), "{claim:?}");
    assert!(claim.waits_for.is_some(), "{claim:?}");
    system.plant(0, &json!([]));
    await_rest(&system, "data").await;
}

/// A volume that is already published in another way is not forced. The caller gets the error, and
/// no claim is left.
#[tokio::test(flavor = "multi_thread")]
async fn already_exists_is_a_refusal_that_leaves_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start_with_volume().await;
    for (number, rpc) in
        ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"].into_iter().enumerate()
    {
        system.plant(0, &json!([{"rpc": rpc, "code": "ALREADY_EXISTS"}]));
        let alloc = format!("a{number}");
        system.alloc(&alloc, 0, "data", false).await;
        let refused = system.mount(&alloc, 0, "data").await.unwrap_err();
        assert_eq!(refused.code, Code::PluginRefused, "{rpc}: {refused}");
        assert!(refused.message.contains("ALREADY_EXISTS"), "{refused}");
        system.plant(0, &json!([]));
        system.stop(&alloc).await;
        await_rest(&system, "data").await;
    }
}
