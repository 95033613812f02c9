//! `docker volume create` and Compose files that have volumes created at their storage.

use std::fs;

use berth_docker_tests::{Engine, PATIENCE, Site, compose_or_skip, engine_or_skip};
use berth_harness::wait;
use berth_integration::{Options, Part};
use serde_json::{Value, json};

const FAST: &[&str] = &["class=fast", "size=64MiB"];
const SLEEP: &str = "while true; do sleep 1; done";

async fn site(options: Options) -> Site {
    let site = Site::start_with(options).await;
    site.system.class("fast", json!({})).await.unwrap();
    site
}

fn one_node() -> Options {
    Options { nodes: 1, ..Options::default() }
}

async fn inspect(engine: &Engine, name: &str) -> Value {
    let shown = engine.ok(&["volume", "inspect", name]).await;
    serde_json::from_str::<Value>(&shown).unwrap()[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_lives_from_its_create_to_its_rm() {
    if !engine_or_skip() {
        return;
    }
    // Alone: an engine looks for a removed name at the plugins of parallel tests, too.
    let site = Site::start_alone(1).await;
    site.system.class("fast", json!({})).await.unwrap();
    let engine = site.engine(0).await;
    engine.create("data", FAST).await;
    assert_eq!(site.created().len(), 1);
    assert_eq!(engine.volumes().await, ["data"]);
    let shown = inspect(&engine, "data").await;
    assert_eq!(shown["Options"], json!({"class": "fast", "size": "64MiB"}), "{shown}");
    assert_eq!(shown["Status"]["removal"], "the volume is deleted", "{shown}");
    engine.create("data", FAST).await;

    engine.shell("data", &["-d", "--name", "one"], SLEEP).await;
    engine.ok(&["exec", "one", "/bin/sh", "-c", "echo kept > /data/file"]).await;
    let refused = engine.refused(&["volume", "rm", "data"]).await;
    assert!(refused.contains("in use"), "{refused}");
    engine.ok(&["stop", "-t", "0", "one"]).await;
    let refused = engine.refused(&["volume", "rm", "data"]).await;
    assert!(refused.contains("in use"), "a stopped container uses it: {refused}");
    engine.ok(&["rm", "one"]).await;
    site.settle("data").await;
    assert_eq!(engine.shell("data", &["--rm"], "cat /data/file").await, "kept");
    site.settle("data").await;

    // The plugin learns a moment later that the claim is gone.
    wait::until("the volume can be removed", PATIENCE, || async {
        let removed = engine.run(&["volume", "rm", "data"]).await;
        if removed.status.success() { Ok(()) } else { Err(format!("{removed:?}")) }
    })
    .await;
    assert_eq!(site.created(), Vec::<Value>::new());
    assert!(engine.volumes().await.is_empty());
    let refused = engine.refused(&["volume", "rm", "data"]).await;
    assert!(refused.to_lowercase().contains("no such volume"), "{refused}");
    // The next volume of this name is empty.
    engine.create("data", FAST).await;
    assert_eq!(engine.shell("data", &["--rm"], "ls /data").await, "");
    site.settle("data").await;
    engine.ok(&["volume", "rm", "data"]).await;

    // A copy, and a volume that stays.
    engine.create("old", &["class=fast", "size=1MiB", "reclaim=retain"]).await;
    engine.shell("old", &["--rm"], "echo copied > /data/file").await;
    site.settle("old").await;
    engine.create("new", &["class=fast", "from-volume=old"]).await;
    assert_eq!(engine.shell("new", &["--rm"], "cat /data/file").await, "copied");
    site.settle("new").await;
    engine.ok(&["volume", "rm", "new"]).await;
    engine.ok(&["volume", "rm", "old"]).await;
    assert_eq!(site.created().len(), 1);
    assert_eq!(engine.volumes().await, ["old"], "it is still a volume of the namespace default");
    site.system.deleted("old").await;
    site.system.assert_known().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_created_is_reported_in_words() {
    if !engine_or_skip() {
        return;
    }
    let site = site(one_node()).await;
    let engine = site.engine(0).await;
    let wrong = engine.create_refused("data", &["class=fast", "size=ten", "limit=-1", "x=y"]).await;
    for fault in ["size=ten", "limit=-1", "x=y"] {
        assert!(wrong.contains(fault), "{fault} is not in: {wrong}");
    }
    let wrong = engine.create_refused("data", &["class=slow", "size=1MiB"]).await;
    assert!(wrong.contains("next: use one of its classes: fast"), "{wrong}");
    let wrong = engine.create_refused("data", &["plugin=dev.berth", "param.speed=high"]).await;
    assert!(wrong.contains("was not created") && wrong.contains("speed"), "{wrong}");
    assert!(engine.volumes().await.is_empty());
    engine.create("data", FAST).await;
    engine.ok(&["volume", "rm", "data"]).await;
    site.system.assert_known().await;
}

/// The engine asks whether the volume exists, and creates it only if it does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_takes_long_is_joined_by_the_same_command() {
    if !engine_or_skip() {
        return;
    }
    let site = site(Options { docker_ms: Some(2_000), ..one_node() }).await;
    let engine = site.engine(0).await;
    site.system.hold("CreateVolume");
    for _ in 0..2 {
        let late = engine.create_refused("data", FAST).await;
        assert!(late.contains("is not created yet: creating"), "{late}");
        assert!(late.contains("berth volume status data"), "{late}");
    }
    assert!(engine.volumes().await.is_empty());
    site.system.let_go();
    wait::until("the same command succeeds", PATIENCE, || async {
        let create = ["volume", "create", "-d", &site.driver(0), "data", "-o", "class=fast", "-o"];
        let arguments = [&create[..], &["size=64MiB"]].concat();
        let created = engine.run(&arguments).await;
        if created.status.success() { Ok(()) } else { Err(format!("{created:?}")) }
    })
    .await;
    assert_eq!(engine.shell("data", &["--rm"], "ls /data").await, "");
    site.settle("data").await;
    engine.ok(&["volume", "rm", "data"]).await;
    assert_eq!(site.created(), Vec::<Value>::new());
}

/// `docker run --rm` removes a volume without a name together with its container.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_created_for_the_run_of_a_container() {
    if !engine_or_skip() {
        return;
    }
    let site = site(one_node()).await;
    let (engine, driver) = (site.engine(0).await, site.driver(0));
    let volume = format!("type=volume,dst=/data,volume-driver={driver},volume-opt=class=fast");
    for run in 0..3 {
        let fixed = ["run", "--rm", "--network", "none", "--mount", &volume, "busybox"];
        let shell = ["/bin/sh", "-c", "echo kept > /data/file; cat /data/file"];
        assert_eq!(engine.ok(&[&fixed[..], &shell].concat()).await, "kept");
        wait::until("the volume is gone", PATIENCE, || async {
            let created = site.created();
            if created.is_empty() { Ok(()) } else { Err(format!("run {run}: {created:?}")) }
        })
        .await;
    }
    assert!(engine.volumes().await.is_empty());
    assert_eq!(site.count("CreateVolume"), 3);
    site.system.assert_known().await;
}

/// When the connection breaks, the engine sends the request again, but with an empty body.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_plugin_was_killed_can_be_run_again() {
    if !engine_or_skip() {
        return;
    }
    let site = Site::start_alone(1).await;
    site.system.class("fast", json!({})).await.unwrap();
    let engine = site.engine(0).await;
    let kill_during = async |rpc: &str, arguments: &[&str]| {
        site.system.hold(rpc);
        let command = engine.refused(arguments);
        let kill = async {
            site.system.under_way(rpc).await;
            site.system.kill9_and_restart(Part::Docker(0)).await;
            site.system.healthy().await;
        };
        let (error, ()) = tokio::join!(command, kill);
        assert!(error.contains("Next: run the command again"), "{error}");
        site.system.let_go();
    };
    let driver = site.driver(0);
    let create = ["volume", "create", "-d", &driver, "data", "-o", "class=fast"];
    kill_during("CreateVolume", &create).await;
    assert_eq!(engine.ok(&create).await, "data");
    assert_eq!(site.created().len(), 1);
    assert_eq!(engine.shell("data", &["--rm"], "ls /data").await, "");
    site.settle("data").await;

    kill_during("DeleteVolume", &["volume", "rm", "data"]).await;
    wait::until("the volume is gone", PATIENCE, || async {
        let removed = engine.run(&["volume", "rm", "data"]).await;
        let error = String::from_utf8_lossy(&removed.stderr).to_lowercase();
        if error.contains("no such volume") { Ok(()) } else { Err(error) }
    })
    .await;
    assert_eq!(site.created(), Vec::<Value>::new());
    assert!(engine.volumes().await.is_empty());
    site.system.assert_known().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_containers_have_by_its_id_is_not_removed_under_another_name() {
    if !engine_or_skip() {
        return;
    }
    let site = site(one_node()).await;
    let engine = site.engine(0).await;
    engine.create("name", &["class=fast", "volume=data"]).await;
    engine.shell("data", &["--name", "one"], "echo kept > /data/file").await;
    site.settle("data").await;
    // The container has stopped, so that no claim is left.
    let refused = engine.refused(&["volume", "rm", "name"]).await;
    assert!(refused.contains("containers of this node have its volume as data"), "{refused}");
    assert_eq!(site.created().len(), 1);
    engine.ok(&["rm", "one"]).await;
    engine.ok(&["volume", "rm", "name"]).await;
    assert_eq!(site.created(), Vec::<Value>::new());
}

/// The example of `docs/docker.md`.
#[tokio::test(flavor = "multi_thread")]
async fn a_compose_project_creates_its_volume_and_deletes_it() {
    if !compose_or_skip() {
        return;
    }
    let site = Site::start_alone(1).await;
    site.system.class("fast", json!({})).await.unwrap();
    let (engine, driver) = (site.engine(0).await, site.driver(0));
    let file = site.system.dir().join("compose.yaml");
    let project = format!(
        "version: '3.8'\n\
         services:\n  web:\n    image: busybox\n    network_mode: none\n    init: true\n    \
         command: ['/bin/sh', '-c', 'echo kept >> /data/file; {SLEEP}']\n    \
         volumes: ['data:/data']\n\
         volumes:\n  data:\n    driver: {driver}\n    \
         driver_opts: {{class: fast, size: 64MiB}}\n"
    );
    fs::write(&file, project).unwrap();
    let run = |arguments: &'static [&str]| engine.compose(&file, "web", arguments);
    run(&["up", "-d"]).await;
    assert_eq!(engine.volumes().await, ["web_data"]);
    assert_eq!(site.created().len(), 1);
    // Again, with a new container and the same volume.
    run(&["down", "-t", "0"]).await;
    site.settle("web_data").await;
    run(&["up", "-d"]).await;
    let read = run(&["exec", "-T", "web", "/bin/cat", "/data/file"]).await;
    assert_eq!(read.lines().count(), 2, "the data from before is there: {read}");
    run(&["down", "-t", "0", "--volumes"]).await;
    assert_eq!(site.created(), Vec::<Value>::new());
    assert!(engine.volumes().await.is_empty());
    site.system.assert_known().await;
}
