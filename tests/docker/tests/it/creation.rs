//! Volumes that are created at their storage with their names, at the plugin's socket.

use std::time::{Duration, Instant};

use berth_docker_tests::{PATIENCE, Plugin, Site, until_done};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::Options;
use serde_json::{Value, json};

const SIZE: u64 = 64 << 20;

async fn site(options: Options) -> Site {
    let site = Site::start_with(options).await;
    site.system.class("fast", json!({"max_size": "128MiB", "quota_volumes": 3})).await.unwrap();
    site
}

fn one_node() -> Options {
    Options { nodes: 1, ..Options::default() }
}

async fn status(plugin: &Plugin, name: &str) -> Value {
    let shown = plugin.get(name).await;
    assert!(shown.is_done(), "{shown:?}");
    shown.body["Volume"]["Status"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_created_with_its_name_and_deleted_with_it() {
    if !or_skip("real mounts") {
        return;
    }
    let site = site(one_node()).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    let options = json!({"class": "fast", "size": "64MiB"});
    let created = plugin.create("data", options.clone()).await;
    assert!(created.is_done(), "{created:?}");
    // The response came after the volume was ready.
    let volume = system.volume_status("data").await.unwrap();
    let storage = volume.storage.unwrap();
    assert_eq!((storage.stage.as_str(), volume.capacity_bytes), ("ready", Some(SIZE)));
    assert_eq!(volume.name, "Docker volume data of node n1");
    assert_eq!(site.created().len(), 1);
    let shown = status(&plugin, "data").await;
    assert_eq!((&shown["class"], &shown["stage"]), (&json!("fast"), &json!("ready")), "{shown}");
    assert_eq!(shown["removal"], "the volume is deleted");
    assert_eq!(plugin.list().await, ["data"]);
    assert!(plugin.create("data", options.clone()).await.is_done(), "a repeated create succeeds");
    let refused = plugin.create("data", json!({"class": "fast", "size": "65MiB"})).await;
    assert!(refused.error().contains("there already, and is rw of default/data"), "{refused:?}");

    let mounted = plugin.mount("data", "x").await;
    let path = mounted.body["Mountpoint"].as_str().unwrap().to_owned();
    std::fs::write(format!("{path}/file"), "old").unwrap();
    let removed = plugin.remove("data").await;
    assert!(removed.error().contains("in use on this node"), "{removed:?}");
    assert!(plugin.unmount("data", "x").await.is_done());
    site.settle("data").await;
    let removed = plugin.remove("data").await;
    assert!(removed.is_done(), "{removed:?}");
    assert_eq!(site.created(), Vec::<Value>::new(), "the response came after the deletion");
    assert!(!plugin.get("data").await.is_done());
    assert_eq!(plugin.list().await, Vec::<String>::new());
    assert!(plugin.remove("data").await.is_done(), "a repeated remove succeeds");

    // The next volume of this name is another volume.
    assert!(plugin.create("data", options).await.is_done());
    let mounted = plugin.mount("data", "x").await;
    let path = mounted.body["Mountpoint"].as_str().unwrap().to_owned();
    assert!(!std::fs::exists(format!("{path}/file")).unwrap());
    assert!(plugin.unmount("data", "x").await.is_done());
    site.settle("data").await;
    assert!(plugin.remove("data").await.is_done());
    system.assert_known().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_option_reaches_the_storage() {
    if !or_skip("real mounts") {
        return;
    }
    let site = Site::start_with(one_node()).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    let options = json!({"plugin": "dev.berth", "size": "320MiB", "limit": "400MB", "fs": "ext4",
        "param.backing": "image", "param.context/tier": "gold",
        "access": "single-node-multi-writer", "reclaim": "retain"});
    let created = plugin.create("disk", options).await;
    assert!(created.is_done(), "{created:?}");
    let volume = system.volume_status("disk").await.unwrap();
    assert_eq!(volume.capacity_bytes, Some(320 << 20));
    assert_eq!(volume.context["tier"], "gold");
    assert_eq!(volume.fs_type.as_deref(), Some("ext4"));
    assert_eq!(volume.capabilities[0].to_string(), "single-node-multi-writer/file-system");
    let create = system.calls().into_iter().find(|call| call["rpc"] == "CreateVolume").unwrap();
    let limit = &create["args"]["capacity_range"]["limit_bytes"];
    assert_eq!(limit.to_string().trim_matches('"'), "400000000", "{create}");

    // Copies of it.
    system.snapshot(&["disk"], "monday", json!({})).await.unwrap();
    wait::until("the snapshot is ready", PATIENCE, || async {
        let snapshots = system.snapshots("disk").await;
        let is_ready = snapshots.iter().any(|snapshot| snapshot.state.to_string() == "ready");
        if is_ready { Ok(()) } else { Err(format!("{snapshots:?}")) }
    })
    .await;
    for (name, origin) in
        [("copy", ("from-volume", "disk")), ("back", ("from-snapshot", "disk@monday"))]
    {
        let options = json!({"plugin": "dev.berth", origin.0: origin.1, "fs": "ext4"});
        let created = plugin.create(name, options).await;
        assert!(created.is_done(), "{name}: {created:?}");
        let storage = system.volume_status(name).await.unwrap().storage.unwrap();
        assert_eq!(storage.origin.unwrap().volume.as_str(), "disk");
        assert!(plugin.remove(name).await.is_done());
    }
    // In another namespace, under another name.
    let options =
        json!({"plugin": "dev.berth", "namespace": "prod", "volume": "a b", "size": "1MiB"});
    let created = plugin.create("theirs", options).await;
    assert!(created.is_done(), "{created:?}");
    assert_eq!(status(&plugin, "theirs").await["namespace"], "prod");
    assert_eq!(site.created().len(), 2);
    let removed = plugin.remove("theirs").await;
    assert!(removed.is_done(), "{removed:?}");
    assert_eq!(site.created().len(), 1, "{:?}", site.created());

    // By its reclaim policy the volume stays.
    assert!(plugin.remove("disk").await.is_done());
    assert_eq!(site.created().len(), 1);
    system.snapshot_deleted("disk", "monday", false).await;
    system.deleted("disk").await;
    system.assert_known().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_created_is_refused_in_words_and_leaves_nothing() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site(one_node()).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    system.class("theirs", json!({"namespaces": ["team-a"]})).await.unwrap();
    let readers = json!({"capability": [{"access": "multi-node-reader-only"}]});
    system.class("readers", readers).await.unwrap();
    let block = json!([{"access": "single-node-writer", "attachment": "block-device"}]);
    system.class("raw", json!({"capability": block})).await.unwrap();
    system.volume("registered", &["single-node-writer"]).await;
    for (name, options, words) in [
        ("no", json!({"class": "slow", "size": "1MiB"}), "one of its classes: fast, raw, readers"),
        ("no", json!({"class": "theirs"}), "has no class theirs"),
        ("no", json!({"class": "readers"}), "say mode=ro"),
        ("no", json!({"class": "raw"}), "and not file-system"),
        ("no", json!({"class": "fast", "size": "1GiB"}), "BERTH0133"),
        ("no", json!({"plugin": "nowhere", "size": "1MiB"}), "BERTH0201"),
        ("no", json!({"plugin": "dev.berth", "param.speed": "high"}), "speed"),
        ("no", json!({"class": "fast", "from-volume": "nothing"}), "nothing"),
        ("no", json!({"class": "fast", "from-snapshot": "registered@no"}), "BERTH0129"),
        ("no", json!({"size": "1MiB"}), "have it created with the option class"),
        ("no", json!({"class": "fast", "volume": "registered"}), "is registered with Berth"),
        (
            "no",
            json!({"class": "fast", "size": "10 apples", "colour": "red", "limit": "x"}),
            "10 apples",
        ),
    ] {
        let refused = plugin.create(name, options.clone()).await;
        assert!(refused.error().contains(words), "{options}: {refused:?}");
        assert!(!plugin.get(name).await.is_done(), "{options}");
        assert!(plugin.remove(name).await.is_done(), "{options}");
    }
    assert_eq!(plugin.list().await, ["registered"]);
    let listed = system.volumes().await.unwrap().volumes;
    let ids: Vec<&str> = listed.iter().map(|volume| volume.id.as_str()).collect();
    assert_eq!(ids, ["registered"], "a refused creation leaves no record");
    system.assert_known().await;

    // After a refusal the name is free for other options.
    for number in 0..3 {
        let created = plugin.create(&format!("v{number}"), json!({"class": "fast"})).await;
        assert!(created.is_done(), "{created:?}");
    }
    let refused = plugin.create("v3", json!({"class": "fast"})).await;
    assert!(refused.error().contains("BERTH0134"), "{refused:?}");
    assert!(plugin.remove("v0").await.is_done());
    assert!(plugin.create("v3", json!({"class": "fast"})).await.is_done());
}

/// The engine waits for 120 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_takes_long_is_answered_in_time_and_can_be_joined() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site(Options { docker_ms: Some(1_500), ..one_node() }).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    system.hold("CreateVolume");
    let options = json!({"class": "fast", "size": "64MiB"});
    let began = Instant::now();
    let late = plugin.create("data", options.clone()).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    for words in ["is not created yet: creating", "berth volume status data"] {
        assert!(late.error().contains(words), "{words} is not in {late:?}");
    }
    // Docker lists the volume only once it is created.
    assert!(!plugin.get("data").await.is_done());
    assert_eq!(plugin.list().await, Vec::<String>::new());
    let repeated = plugin.create("data", options.clone()).await;
    assert!(repeated.error().contains("is not created yet"), "{repeated:?}");
    system.let_go();
    until_done("the same request again joins it", async || {
        plugin.create("data", options.clone()).await
    })
    .await;
    assert_eq!(site.created().len(), 1);
    until_done("it is removed", async || plugin.remove("data").await).await;

    // The plugin learns without another request that the volume is ready.
    system.hold("CreateVolume");
    assert!(!plugin.create("more", options).await.is_done());
    system.let_go();
    until_done("the volume is known", async || plugin.get("more").await).await;
    assert_eq!(status(&plugin, "more").await["removal"], "the volume is deleted");
    until_done("it is removed", async || plugin.remove("more").await).await;
    system.assert_known().await;
}

/// Berth deletes the volume of a creation that was given up, once its id is known.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_under_way_can_be_given_up() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site(Options { docker_ms: Some(1_000), ..one_node() }).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    let options = json!({"class": "fast", "size": "64MiB"});
    for by_docker in [true, false] {
        system.hold("CreateVolume");
        assert!(!plugin.create("data", options.clone()).await.is_done());
        if by_docker {
            let late = plugin.remove("data").await;
            assert!(late.error().contains("is not deleted yet"), "{late:?}");
        } else {
            system.delete("data").await.unwrap();
        }
        system.let_go();
        system.forgotten("data").await;
        // Other options are accepted, because the name is forgotten with the volume.
        until_done("the name is free", async || {
            plugin.create("data", json!({"class": "fast", "size": "1MiB"})).await
        })
        .await;
        until_done("it is removed", async || plugin.remove("data").await).await;
        assert_eq!(site.created(), Vec::<Value>::new());
    }
    system.assert_known().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_the_first_use_is_created_by_its_first_mount() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |node| vec!["--topology".to_owned(), format!("zone=z{}", node + 1)];
    let site = Site::start_with(Options { driver, ..Options::default() }).await;
    let (system, plugin) = (&site.system, site.plugin(1));
    system.class("late", json!({"topology_policy": "first-use"})).await.unwrap();
    let created = plugin.create("data", json!({"class": "late", "size": "1MiB"})).await;
    assert!(created.is_done(), "{created:?}");
    assert_eq!(site.created(), Vec::<Value>::new(), "nothing is there before the first mount");
    assert_eq!(status(&plugin, "data").await["stage"], "unused");
    assert_eq!(plugin.list().await, ["data"]);
    until_done("it is mounted", async || plugin.mount("data", "x").await).await;
    let volume = system.volume_status("data").await.unwrap();
    let zones: Vec<&String> =
        volume.topologies.iter().flat_map(|topology| topology.values()).collect();
    assert_eq!(zones, ["z2"], "{volume:?}");
    assert!(plugin.unmount("data", "x").await.is_done());
    site.settle("data").await;
    assert!(plugin.remove("data").await.is_done());
    assert_eq!(site.created(), Vec::<Value>::new());

    // A volume that was never used is only a record.
    assert!(plugin.create("never", json!({"class": "late", "size": "1MiB"})).await.is_done());
    assert!(plugin.remove("never").await.is_done());
    // A volume that the storage refuses at its first mount can be removed, too.
    let odd = json!({"plugin": "dev.berth", "topology_policy": "first-use",
        "parameters": {"speed": "high"}});
    system.class("odd", odd).await.unwrap();
    assert!(plugin.create("odd", json!({"class": "odd"})).await.is_done());
    let refused = plugin.mount("odd", "x").await;
    assert!(refused.error().contains("speed"), "{refused:?}");
    until_done("the failed mount is over, and it is removed", async || plugin.remove("odd").await)
        .await;
    let remaining = system.volumes().await.unwrap().volumes;
    assert!(remaining.is_empty(), "{remaining:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_others_are_creating_is_not_shown_before_it_is_ready() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site(Options { docker_ms: Some(1_000), ..one_node() }).await;
    let (system, plugin) = (&site.system, site.plugin(0));
    system.hold("CreateVolume");
    system.create("data", json!({"class": "fast"})).await.unwrap();
    system.under_way("CreateVolume").await;
    let shown = plugin.get("data").await;
    assert!(shown.error().contains("cannot be used: creating"), "{shown:?}");
    let refused = plugin.create("data", Value::Null).await;
    assert!(refused.error().contains("creating: the plugin is at the call"), "{refused:?}");
    assert_eq!(plugin.list().await, Vec::<String>::new());
    system.let_go();
    until_done("the volume is shown", async || plugin.get("data").await).await;
    until_done("it gets a name", async || plugin.create("data", Value::Null).await).await;
    until_done("the name is removed", async || plugin.remove("data").await).await;
    assert_eq!(site.created().len(), 1, "the volume was not created for the name");
    system.deleted("data").await;
}
