//! Mounts and unmounts at the socket: as an engine sends them, and as no engine should.

use std::time::Duration;

use berth_docker_tests::{PATIENCE, Plugin, Site};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part};
use serde_json::{Value, json};

const WRITER: &[&str] = &["single-node-writer"];

async fn site() -> Site {
    let site = Site::start(1).await;
    site.system.volume("data", WRITER).await;
    site
}

/// Waits until the mount request has arrived.
async fn under_way(plugin: &Plugin) {
    wait::until("the mount is under way", PATIENCE, || async {
        let shown = plugin.get("data").await.body;
        let state = &shown["Volume"]["Status"]["state"];
        if state == "attaching" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_id_is_unmounted_as_often_as_it_was_mounted() {
    if !or_skip("real mounts") {
        return;
    }
    let (site, ids) = (site().await, ["x", "x", "y", "x"]);
    let plugin = site.plugin(0);
    for id in ids {
        let mounted = plugin.mount("data", id).await;
        assert!(mounted.is_done() && mounted.body["Mountpoint"] != "", "{mounted:?}");
        let path = plugin.ask("VolumeDriver.Path", &json!({"Name": "data"})).await;
        assert_eq!(path.body["Mountpoint"], mounted.body["Mountpoint"]);
    }
    assert_eq!(plugin.references("data").await, 4);
    let removed = plugin.ask("VolumeDriver.Remove", &json!({"Name": "data"})).await;
    assert!(removed.error().contains("in use on this node"), "{removed:?}");
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(site.count("NodeUnpublishVolume"), 0, "before unmount {number}");
        // An unmount without a mount changes nothing.
        assert!(plugin.unmount("data", "z").await.is_done());
        assert!(plugin.unmount("data", id).await.is_done());
    }
    site.settle("data").await;
    assert!(plugin.unmount("data", "x").await.is_done(), "a repeated unmount succeeds");
    assert_eq!((site.count("NodePublishVolume"), site.count("NodeUnpublishVolume")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_at_once_are_one_mount_and_as_many_references() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site().await;
    let plugin = site.plugin(0);
    let mounts = (0..20).map(|id| {
        let plugin = site.plugin(0);
        tokio::spawn(async move { plugin.mount("data", &format!("id{id}")).await })
    });
    for mount in mounts.collect::<Vec<_>>() {
        let mounted = mount.await.unwrap();
        assert!(mounted.is_done(), "{mounted:?}");
    }
    assert_eq!(plugin.references("data").await, 20);
    assert_eq!(site.count("NodePublishVolume"), 1);
    let unmounts = (0..20).map(|id| {
        let plugin = site.plugin(0);
        tokio::spawn(async move { plugin.unmount("data", &format!("id{id}")).await })
    });
    for unmount in unmounts.collect::<Vec<_>>() {
        assert!(unmount.await.unwrap().is_done());
    }
    site.settle("data").await;
}

/// The engine waits for 120 s. It sends no unmount for a mount that it stopped waiting for.
#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_takes_long_is_answered_in_time_and_holds_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, docker_ms: Some(1_000), ..Options::default() };
    let site = Site::start_with(options).await;
    site.system.volume("data", WRITER).await;
    site.system.hold("ControllerPublishVolume");
    let plugin = site.plugin(0);
    let unfinished = plugin.mount("data", "x").await;
    assert!(unfinished.error().contains("still attaching, try again"), "{unfinished:?}");
    site.system.let_go();
    wait::until("a repeated request is answered as mounted", PATIENCE, || async {
        let mounted = plugin.mount("data", "y").await;
        if mounted.is_done() { Ok(()) } else { Err(format!("{mounted:?}")) }
    })
    .await;
    assert_eq!(plugin.references("data").await, 1, "the refused request is not counted");
    assert_eq!(site.count("ControllerPublishVolume"), 1, "the first call went on meanwhile");
    assert!(plugin.unmount("data", "y").await.is_done());
    site.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_waits_for_counts_for_nobody() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site().await;
    let plugin = site.plugin(0);
    site.system.hold("NodePublishVolume");
    let connection = plugin.mount_and_leave("data", "x").await;
    under_way(&plugin).await;
    drop(connection);
    // Time for the plugin to notice the closed connection.
    tokio::time::sleep(Duration::from_millis(300)).await;
    site.system.let_go();
    wait::until("it is mounted", PATIENCE, || async {
        if site.count("NodePublishVolume") == 1 { Ok(()) } else { Err("not yet") }
    })
    .await;
    // The engine retries, and this time it waits.
    let mounted = plugin.mount("data", "x").await;
    assert!(mounted.is_done(), "{mounted:?}");
    assert_eq!(plugin.references("data").await, 1);
    assert!(plugin.unmount("data", "x").await.is_done());
    site.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_for_nobody_is_released_in_the_end() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site().await;
    let plugin = site.plugin(0);
    site.system.hold("NodePublishVolume");
    let connection = plugin.mount_and_leave("data", "x").await;
    under_way(&plugin).await;
    drop(connection);
    // Time for the plugin to notice the closed connection.
    tokio::time::sleep(Duration::from_millis(300)).await;
    site.system.let_go();
    wait::until("it is mounted", PATIENCE, || async {
        if site.count("NodePublishVolume") == 1 { Ok(()) } else { Err("not yet") }
    })
    .await;
    site.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_held_that_starts_anew_is_in_doubt_until_the_host_is_looked_at() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site().await;
    let plugin = site.plugin(0);
    for id in ["x", "x", "y"] {
        assert!(plugin.mount("data", id).await.is_done());
    }
    let activated = plugin.ask("Plugin.Activate", &Value::Null).await;
    assert_eq!(activated.body, json!({"Implements": ["VolumeDriver"]}));
    assert_eq!(plugin.references("data").await, 2);
    // The engine starts the container again. This mount takes over the doubtful reference.
    assert!(plugin.mount("data", "x").await.is_done());
    assert_eq!(plugin.references("data").await, 2);
    assert!(plugin.unmount("data", "x").await.is_done());
    assert_eq!(plugin.references("data").await, 1);
    // The engine does not mention the other ID again. No process uses the mount, so it is released.
    site.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn references_outlive_a_kill_of_the_plugin_and_of_the_agent() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site().await;
    let plugin = site.plugin(0);
    let path = plugin.mount("data", "x").await.body["Mountpoint"].clone();
    assert!(plugin.mount("data", "y").await.is_done());
    let created = json!({"Name": "other", "Opts": {"volume": "data", "mode": "ro"}});
    assert!(plugin.ask("VolumeDriver.Create", &created).await.is_done());
    for part in [Part::Docker(0), Part::Agent(0)] {
        site.system.kill9_and_restart(part).await;
        site.system.healthy().await;
    }
    assert_eq!(plugin.references("data").await, 2);
    assert_eq!(plugin.get("other").await.body["Volume"]["Status"]["mode"], "ro");
    let again = plugin.mount("data", "z").await;
    assert_eq!(again.body["Mountpoint"], path, "{again:?}");
    assert_eq!(site.count("NodePublishVolume"), 1);
    for id in ["x", "y"] {
        assert!(plugin.unmount("data", id).await.is_done());
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(site.count("NodeUnpublishVolume"), 0);
    assert!(plugin.unmount("data", "z").await.is_done());
    site.settle("data").await;
}

/// Waits until the volume is claimed, while the requested mount is running.
async fn claimed(site: &Site) {
    wait::until("the claim is there", PATIENCE, || async {
        let claims = site.system.claims("data").await.claims;
        if claims.is_empty() { Err("no claim") } else { Ok(()) }
    })
    .await;
}

/// Docker retries after a broken connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_mount_is_retried_after_a_kill_of_the_plugin_in_its_middle() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site().await;
    let plugin = site.plugin(0);
    site.system.hold("NodeStageVolume");
    let connection = plugin.mount_and_leave("data", "x").await;
    claimed(&site).await;
    site.system.kill9_and_restart(Part::Docker(0)).await;
    drop(connection);
    site.system.healthy().await;
    let retried = tokio::spawn({
        let plugin = site.plugin(0);
        async move { plugin.mount("data", "x").await }
    });
    under_way(&plugin).await;
    site.system.let_go();
    let mounted = retried.await.unwrap();
    assert!(mounted.is_done() && mounted.body["Mountpoint"] != "", "{mounted:?}");
    assert_eq!(plugin.references("data").await, 1);
    assert_eq!(site.count("NodePublishVolume"), 1, "the retry joins the same alloc");
    assert!(plugin.unmount("data", "x").await.is_done());
    site.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_of_the_plugin_while_it_mounts_leaves_nothing_for_ever() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site().await;
    let plugin = site.plugin(0);
    site.system.hold("NodeStageVolume");
    let connection = plugin.mount_and_leave("data", "x").await;
    claimed(&site).await;
    site.system.kill9_and_restart(Part::Docker(0)).await;
    site.system.let_go();
    drop(connection);
    site.system.healthy().await;
    // No mount request follows.
    site.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_outlives_a_kill_of_the_agent_in_its_middle() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site().await;
    let plugin = site.plugin(0);
    site.system.hold("NodeStageVolume");
    let mount = tokio::spawn({
        let plugin = site.plugin(0);
        async move { plugin.mount("data", "x").await }
    });
    claimed(&site).await;
    site.system.kill9(Part::Agent(0));
    site.system.let_go();
    // An unmount for another ID while the agent is down is answered, and changes nothing.
    assert!(plugin.unmount("data", "z").await.is_done());
    site.system.restart(Part::Agent(0));
    let mounted = mount.await.unwrap();
    assert!(mounted.is_done() && mounted.body["Mountpoint"] != "", "{mounted:?}");
    assert_eq!(plugin.references("data").await, 1);
    assert!(plugin.unmount("data", "x").await.is_done());
    site.settle("data").await;
}
