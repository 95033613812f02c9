//! The engine, its plugin and the agent are stopped or killed while containers use volumes.

use std::time::Duration;

use berth_docker_tests::{Engine, PATIENCE, Site, engine_or_skip};
use berth_harness::wait;
use berth_integration::Part;

const WRITER: &[&str] = &["single-node-writer"];
/// A shell script that writes continuously, and ends when a write fails.
const WRITE: &str = "while echo x >> /data/log; do sleep 1; done";

async fn site() -> Site {
    let site = Site::start(1).await;
    site.system.volume("data", WRITER).await;
    site
}

async fn running(engine: &Engine, name: &str) {
    wait::until(&format!("{name} runs"), PATIENCE, || async {
        let state = engine.run(&["inspect", "-f", "{{.State.Running}}", name]).await;
        let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
        if state == "true" { Ok(()) } else { Err(state) }
    })
    .await;
}

/// Checks that the container still uses the volume.
async fn writes(site: &Site, engine: &Engine, name: &str) {
    let lines = async || {
        let log = engine.run(&["exec", name, "/bin/cat", "/data/log"]).await;
        String::from_utf8_lossy(&log.stdout).lines().count()
    };
    let before = lines().await;
    wait::until("the container writes on", PATIENCE, || async {
        let now = lines().await;
        if now > before { Ok(()) } else { Err(format!("{now} lines")) }
    })
    .await;
    let claims = site.system.claims("data").await.claims;
    assert!(claims.iter().all(|claim| claim.waits_for.is_none()), "{claims:?}");
    assert_eq!(claims.len(), 1);
    // The node reports the volume as staged once and published once.
    assert_eq!(site.mounted(0).await.len(), 2);
}

/// Checks that the volume is free, nothing of its use is left, and the node reports no mount.
async fn settles(site: &Site) {
    site.settle("data").await;
    assert!(site.mounted(0).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_stopped_gives_back_what_its_containers_had() {
    if !engine_or_skip() {
        return;
    }
    let site = site().await;
    let engine = site.engine(0).await;
    engine.shell("data", &["-d", "--name", "one", "--restart", "always"], WRITE).await;
    writes(&site, &engine, "one").await;
    engine.daemon().terminate().await;
    settles(&site).await;
    engine.daemon().restart();
    engine.up().await;
    running(&engine, "one").await;
    writes(&site, &engine, "one").await;
    engine.ok(&["rm", "-f", "one"]).await;
    settles(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_killed_and_starts_its_containers_again_holds_each_once() {
    if !engine_or_skip() {
        return;
    }
    let site = site().await;
    let engine = site.engine(0).await;
    engine.shell("data", &["-d", "--name", "one", "--restart", "always"], WRITE).await;
    writes(&site, &engine, "one").await;
    engine.daemon().restart();
    engine.up().await;
    running(&engine, "one").await;
    writes(&site, &engine, "one").await;
    assert_eq!(site.plugin(0).references("data").await, 1);
    engine.ok(&["rm", "-f", "one"]).await;
    settles(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_died_with_a_killed_engine_hold_nothing() {
    if !engine_or_skip() {
        return;
    }
    let site = site().await;
    let engine = site.engine(0).await;
    engine.shell("data", &["-d", "--name", "one"], WRITE).await;
    writes(&site, &engine, "one").await;
    engine.daemon().kill9();
    // The plugin has received no unmount yet.
    assert_eq!(site.mounted(0).await.len(), 2);
    engine.daemon().restart();
    engine.up().await;
    // The first request to the driver shows that the engine was restarted.
    engine.volumes().await;
    settles(&site).await;
    engine.ok(&["start", "one"]).await;
    writes(&site, &engine, "one").await;
    engine.ok(&["rm", "-f", "one"]).await;
    settles(&site).await;
}

/// With live-restore the containers outlive the engine. The engine sends only one unmount for each,
/// at its end.
#[tokio::test(flavor = "multi_thread")]
async fn containers_that_outlive_a_killed_engine_keep_their_volume() {
    if !engine_or_skip() {
        return;
    }
    let site = site().await;
    let engine = site.engine_with(0, &["--live-restore"]).await;
    engine.shell("data", &["-d", "--name", "one"], WRITE).await;
    writes(&site, &engine, "one").await;
    engine.daemon().restart();
    engine.up().await;
    engine.volumes().await;
    running(&engine, "one").await;
    wait::until("the plugin has checked who uses the volume", PATIENCE, || async {
        let shown = site.plugin(0).get("data").await.body["Volume"]["Status"].clone();
        let problem = shown["problem"].as_str().unwrap_or_default().to_owned();
        if problem.contains("in use") { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    // A copy from the container mounts and unmounts with the ID whose reference is in doubt.
    engine.ok(&["cp", "one:/data/log", "-"]).await;
    writes(&site, &engine, "one").await;
    assert_eq!(site.count("NodeUnpublishVolume"), 0);
    engine.ok(&["stop", "-t", "0", "one"]).await;
    settles(&site).await;
    engine.ok(&["rm", "one"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_plugin_takes_nothing_from_a_running_container() {
    if engine_or_skip() {
        kill_takes_nothing_from_a_running_container(Part::Docker(0)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_takes_nothing_from_a_running_container() {
    if engine_or_skip() {
        kill_takes_nothing_from_a_running_container(Part::Agent(0)).await;
    }
}

async fn kill_takes_nothing_from_a_running_container(part: Part) {
    let site = site().await;
    let engine = site.engine(0).await;
    engine.shell("data", &["-d", "--name", "one"], WRITE).await;
    let before = site.mounted(0).await;
    site.system.kill9_and_restart(part).await;
    site.system.healthy().await;
    assert_eq!(site.mounted(0).await, before);
    writes(&site, &engine, "one").await;
    engine.ok(&["cp", "one:/data/log", "-"]).await;
    engine.shell("data", &["-d", "--name", "two"], WRITE).await;
    writes(&site, &engine, "one").await;
    assert_eq!(site.count("NodePublishVolume"), 1);
    engine.ok(&["rm", "-f", "two"]).await;
    writes(&site, &engine, "one").await;
    assert_eq!(site.count("NodeUnpublishVolume"), 0);
    engine.ok(&["rm", "-f", "one"]).await;
    settles(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unmount_that_the_plugin_missed_is_found_out() {
    if !engine_or_skip() {
        return;
    }
    let site = site().await;
    let engine = site.engine(0).await;
    engine.shell("data", &["-d", "--name", "one"], WRITE).await;
    writes(&site, &engine, "one").await;
    site.system.kill9(Part::Docker(0));
    // The engine retries for half a minute, and gives up.
    let _ = engine.run(&["rm", "-f", "one"]).await;
    let containers = engine.run(&["ps", "-aq"]).await;
    assert!(containers.stdout.is_empty(), "{containers:?}");
    site.system.restart(Part::Docker(0));
    site.system.healthy().await;
    // The mount stays until no process on the host uses it. Then it is released.
    assert!([0, 2].contains(&site.mounted(0).await.len()));
    wait::until("the volume is free", Duration::from_secs(240), || async {
        let claims = site.system.claims("data").await.claims;
        if claims.is_empty() { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    settles(&site).await;
}
