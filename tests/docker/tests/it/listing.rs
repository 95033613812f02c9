//! `List` answers immediately from berth-docker's cache, even while the claim service hangs.

use std::time::{Duration, Instant};

use berth_docker_tests::{PATIENCE, Plugin, Site, engine_or_skip};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Part, System};
use serde_json::json;

const WRITER: &[&str] = &["single-node-writer"];
/// Much shorter than any wait for a service, and longer than a local request on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(1_500);

/// Waits until the plugin lists these names: it refreshes its cache only after it has answered.
async fn lists(plugin: &Plugin, names: &[&str]) {
    wait::until("what is registered is listed", PATIENCE, || async {
        let listed = plugin.list().await;
        if listed == names { Ok(()) } else { Err(format!("{listed:?}")) }
    })
    .await;
}

/// Lists so often that the cache is being refreshed, and checks that no list waits for that.
async fn lists_at_once(plugin: &Plugin, names: &[&str]) {
    for _ in 0..20 {
        let began = Instant::now();
        assert_eq!(plugin.list().await, names);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_waits_for_no_claim_service() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = Site::start(1).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    system.volume("data", WRITER).await;
    lists(&plugin, &["data"]).await;
    let named = json!({"Name": "mine", "Opts": {"volume": "data"}});
    assert!(plugin.ask("VolumeDriver.Create", &named).await.is_done());

    // The paused service keeps its subscriptions, so that each request hangs until its deadline.
    system.daemon(Part::Claim).pause();
    lists_at_once(&plugin, &["data", "mine"]).await;
    // This node's own changes are visible anyway.
    let record = plugin.ask("VolumeDriver.Get", &json!({"Name": "mine"})).await;
    assert!(record.is_done(), "{record:?}");
    system.daemon(Part::Claim).resume();
    system.healthy().await;

    system.volume("more", WRITER).await;
    lists(&plugin, &["data", "mine", "more"]).await;
    assert!(system.deregister("more", false).await.unwrap().gone);
    lists(&plugin, &["data", "mine"]).await;
    assert!(plugin.ask("VolumeDriver.Remove", &json!({"Name": "mine"})).await.is_done());
    assert_eq!(plugin.list().await, ["data"]);
}

/// Kills `berth-docker`, and waits until the restarted one answers.
async fn kill_plugin(system: &System) {
    system.kill9_and_restart(Part::Docker(0)).await;
    wait::until("the plugin answers again", PATIENCE, || async {
        std::os::unix::net::UnixStream::connect(system.docker_socket(0)).map(drop)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_knows_nothing_yet_waits_for_its_first_question_only() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = Site::start(1).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    system.volume("data", WRITER).await;
    let named = json!({"Name": "mine", "Opts": {"volume": "data"}});
    assert!(plugin.ask("VolumeDriver.Create", &named).await.is_done());
    kill_plugin(system).await;
    assert_eq!(plugin.list().await, ["data", "mine"], "the first list is complete");

    system.daemon(Part::Claim).pause();
    kill_plugin(system).await;
    let began = Instant::now();
    assert_eq!(plugin.list().await, ["mine"], "what is on its own disk");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    system.daemon(Part::Claim).resume();
    lists(&plugin, &["data", "mine"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_created_is_listed_right_after() {
    if !engine_or_skip() {
        return;
    }
    let site = Site::start(1).await;
    let (system, engine) = (&site.system, site.engine(0).await);
    for number in 0..5 {
        let (id, name) = (format!("data{number}"), format!("name{number}"));
        system.volume(&id, WRITER).await;
        // The volume itself, which exists without a create, and another name for it.
        engine.create(&id, &[]).await;
        engine.create(&name, &[&format!("volume={id}")]).await;
        let listed = engine.volumes().await;
        assert!(listed.contains(&id) && listed.contains(&name), "{listed:?}");
        // The plugin's own list, not the engine's cache.
        let listed = site.plugin(0).list().await;
        assert!(listed.contains(&id) && listed.contains(&name), "{listed:?}");
        engine.ok(&["volume", "rm", &name]).await;
        let listed = engine.volumes().await;
        assert!(listed.contains(&id) && !listed.contains(&name), "{listed:?}");
    }
}
