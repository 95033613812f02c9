//! A driver whose process ends at every call for one volume.

use std::time::Duration;

use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Part, System};
use berth_service::clock;
use serde_json::json;

use super::{SOON, await_rest, one_node, provision, register};
use crate::why::{OPERATOR, tells};

/// The driver's supervisor looks so often.
const RESTART_INTERVAL: Duration = Duration::from_millis(50);
/// From so many crashes on, the pause is longer than the longest one after other failures.
const MANY: u32 = 6;

/// Starts the driver whenever it has ended. Never returns.
async fn keep_running(system: &System) {
    loop {
        tokio::time::sleep(RESTART_INTERVAL).await;
        if !system.daemon(Part::Driver(0)).is_running() {
            system.restart(Part::Driver(0));
        }
    }
}

/// Tried as often as any other call, it would take the driver from all volumes of the node.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_ends_the_driver_each_time_leaves_it_to_other_volumes() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(one_node()).await;
    for volume in ["bad", "good"] {
        provision(&system, volume, &[]);
        register(&system, volume, json!({})).await.expect("the volume is registered");
    }
    system.run("a", 0, "bad").await;
    let fault = json!([{"rpc": "NodeUnpublishVolume", "volume": "bad", "crash": true}]);
    system.plant(0, &fault);
    system.stop("a").await;
    let told = async {
        wait::until("the crashes are on record", SOON, async || {
            let claim = system.claims("bad").await.claims.pop().ok_or("the claim was freed")?;
            let count = claim.failure.as_ref().map_or(0, |failure| failure.facts.crashes);
            let longest = Duration::from_millis(system.options.retry_ms.1);
            let waits = claim.next_try.is_some_and(|at| at.since(clock::now()) > longest);
            if count >= MANY && waits { Ok(()) } else { Err(format!("{claim:?}")) }
        })
        .await;
        let sentence = "plugin dev.berth on node n1: its process ended … times while it worked on \
                        NodeUnpublishVolume for this volume, …";
        tells(&system, "bad", "plugin-crashes", OPERATOR, sentence).await;
        let mounted = system.run("user", 0, "good").await;
        assert!(!mounted.path.is_empty());
        system.stop("user").await;
        system.freed("good").await;
        system.plant(0, &json!([]));
        await_rest(&system, "bad").await;
    };
    tokio::select! {
        () = told => {}
        () = keep_running(&system) => {}
    }
}

/// A program that asks for the mount again and again would end the driver each time.
#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_ends_the_driver_each_time_is_held_back() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(one_node()).await;
    provision(&system, "bad", &[]);
    register(&system, "bad", json!({})).await.expect("the volume is registered");
    system.alloc("a", 0, "bad", false).await;
    let fault = json!([{"rpc": "NodeStageVolume", "volume": "bad", "crash": true}]);
    system.plant(0, &fault);
    let told = async {
        wait::until("the mount is held back", SOON, || async {
            let refused = system.try_mount("a", 0, "bad").await.expect_err("the driver ends");
            let is_held = refused.message.contains("is not tried again before");
            if is_held && refused.crashes >= 2 { Ok(()) } else { Err(refused.to_string()) }
        })
        .await;
        let sentence = "plugin dev.berth on node n1: its process ended … times while it worked on \
                        NodeStageVolume for this volume, …";
        tells(&system, "bad", "plugin-crashes", OPERATOR, sentence).await;
        system.plant(0, &json!([]));
        system.stop("a").await;
        await_rest(&system, "bad").await;
    };
    tokio::select! {
        () = told => {}
        () = keep_running(&system) => {}
    }
}
