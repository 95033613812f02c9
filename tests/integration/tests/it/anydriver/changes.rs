//! A driver whose version, name or capabilities change at a restart.

use berth_domain::plugin::Half;
use berth_harness::root::or_skip;
use berth_integration::{Part, System};
use serde_json::{Value, json};

use super::{await_instance, await_rest, one_node, provision, register};

/// A system with a mounted volume, whose driver was then restarted with these faults.
async fn restarted_with(faults: &Value) -> System {
    let system = System::start(one_node()).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.expect("the volume is registered");
    let mounted = system.run("a", 0, "data").await;
    system.plant(0, faults);
    system.kill9_and_restart(Part::Driver(0)).await;
    std::fs::write(format!("{}/f", mounted.path), "x").expect("the volume stays mounted");
    system
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_seen_and_mounts_stay() {
    if !or_skip("real mounts") {
        return;
    }
    let system = restarted_with(&json!([{"rpc": "GetPluginInfo", "wrong": "other-version"}])).await;
    let is_other =
        |node: &Value| node["version"].as_str().is_some_and(|text| text.ends_with("-other"));
    let node = await_instance(&system, "n1", Half::Node, is_other).await;
    assert_eq!(node["healthy"], true, "{node}");
    system.stop("a").await;
    await_rest(&system, "data").await;
}

/// Another name is another driver. It would answer for every volume that nothing is mounted. So it
/// gets no new volumes, and the kernel's mount table overrides its answers.
#[tokio::test(flavor = "multi_thread")]
async fn another_driver_at_the_same_socket_is_given_nothing_new() {
    if !or_skip("real mounts") {
        return;
    }
    let system = restarted_with(&json!([{"rpc": "GetPluginInfo", "wrong": "other-name"}])).await;
    let is_other = |node: &Value| {
        node["description"].as_str().is_some_and(|text| text.contains("it is other.dev.berth now"))
    };
    let node = await_instance(&system, "n1", Half::Node, is_other).await;
    assert_eq!(node["healthy"], false, "{node}");
    system.plant(0, &json!([]));
    system.stop("a").await;
    await_rest(&system, "data").await;
}

/// The plugin is not called for a capability that it lost. Its earlier work is undone once the
/// capability is back. Until then the volume is not free.
#[tokio::test(flavor = "multi_thread")]
async fn abilities_that_are_gone_are_missed_where_they_are_needed() {
    if !or_skip("real mounts") {
        return;
    }
    let system = restarted_with(&json!([
        {"rpc": "NodeGetCapabilities", "wrong": "no-capabilities"},
        {"rpc": "NodeUnstageVolume", "code": "UNIMPLEMENTED"},
    ]))
    .await;
    let lost_staging = |node: &Value| node["abilities"]["stage_unstage_volume"] == false;
    await_instance(&system, "n1", Half::Node, lost_staging).await;
    system.stop("a").await;
    let claim = berth_harness::wait::until("the release waits", super::SOON, || async {
        let claim = system.claims("data").await.claims.pop().ok_or("it was freed")?;
        if claim.tries > 0 { Ok(claim) } else { Err(format!("{claim:?}")) }
    })
    .await;
    assert!(claim.error().is_some_and(|error| error.contains("NodeUnstageVolume")), "{claim:?}");
    system.plant(0, &json!([]));
    await_rest(&system, "data").await;
}
