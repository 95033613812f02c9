//! Containers with volumes, on a real engine.

use std::fs;
use std::process::Command;

use berth_docker_tests::{Site, engine_or_skip};
use berth_harness::process::binary;
use serde_json::{Value, json};

const WRITER: &[&str] = &["single-node-writer"];
const SLEEP: &str = "while true; do sleep 1; done";

#[tokio::test(flavor = "multi_thread")]
async fn what_one_container_writes_another_reads() {
    if !engine_or_skip() {
        return;
    }
    let site = Site::start(1).await;
    site.system.volume("data", WRITER).await;
    let (engine, driver) = (site.engine(0).await, site.driver(0));
    engine.create("data", &[]).await;
    engine.shell("data", &["--rm"], "echo kept > /data/file && sync").await;
    // The volume is free in between: the second container claims it again.
    site.settle("data").await;
    assert_eq!(engine.shell("data", &["--rm"], "cat /data/file").await, "kept");
    site.settle("data").await;

    assert_eq!(engine.volumes().await, ["data"]);
    let shown = engine.ok(&["volume", "inspect", "data"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown[0]["Driver"], driver.as_str());
    assert_eq!((&shown[0]["Scope"], &shown[0]["Status"]["mode"]), (&"global".into(), &"rw".into()));
    assert_eq!(site.count("NodePublishVolume"), 2);
    assert_eq!(site.count("NodeUnstageVolume"), 2);

    // Only the name is removed.
    engine.ok(&["volume", "rm", "data"]).await;
    assert_eq!(engine.shell("data", &["--rm"], "cat /data/file").await, "kept");
    site.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_one_node_share_a_claim_and_the_last_one_ends_it() {
    if !engine_or_skip() {
        return;
    }
    let site = Site::start(1).await;
    site.system.volume("data", WRITER).await;
    let engine = site.engine(0).await;
    for name in ["one", "two"] {
        engine.shell("data", &["-d", "--name", name], SLEEP).await;
    }
    engine.ok(&["exec", "one", "/bin/sh", "-c", "echo shared > /data/file"]).await;
    assert_eq!(engine.ok(&["exec", "two", "/bin/cat", "/data/file"]).await, "shared");
    assert_eq!(site.plugin(0).references("data").await, 2);
    assert_eq!(site.system.claims("data").await.claims.len(), 1);
    assert_eq!(site.count("NodePublishVolume"), 1);

    engine.ok(&["rm", "-f", "one"]).await;
    assert_eq!(site.plugin(0).references("data").await, 1);
    engine.ok(&["exec", "two", "/bin/touch", "/data/more"]).await;
    assert_eq!(site.count("NodeUnpublishVolume"), 0);
    engine.ok(&["rm", "-f", "two"]).await;
    site.settle("data").await;
    assert_eq!(site.count("NodeUnpublishVolume"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_into_a_running_container_does_not_end_its_use() {
    if !engine_or_skip() {
        return;
    }
    let site = Site::start(1).await;
    site.system.volume("data", WRITER).await;
    let engine = site.engine(0).await;
    engine.shell("data", &["-d", "--name", "one"], SLEEP).await;
    let file = site.system.dir().join("file");
    fs::write(&file, "copied").unwrap();
    for _ in 0..3 {
        engine.ok(&["cp", file.to_str().unwrap(), "one:/data/file"]).await;
        let back = engine.ok(&["cp", "one:/data/file", "-"]).await;
        assert!(back.contains("copied"), "{back}");
    }
    assert_eq!(site.plugin(0).references("data").await, 1);
    assert_eq!(engine.ok(&["exec", "one", "/bin/cat", "/data/file"]).await, "copied");
    assert_eq!(site.count("NodeUnpublishVolume"), 0);
    // For a stopped container, Docker mounts the volume only for the copy.
    engine.ok(&["stop", "-t", "0", "one"]).await;
    site.settle("data").await;
    let back = engine.ok(&["cp", "one:/data/file", "-"]).await;
    assert!(back.contains("copied"), "{back}");
    site.settle("data").await;
    engine.ok(&["start", "one"]).await;
    assert_eq!(engine.ok(&["exec", "one", "/bin/cat", "/data/file"]).await, "copied");
    engine.ok(&["rm", "-f", "one"]).await;
    site.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_another_node_holds_is_refused_in_words() {
    if !engine_or_skip() {
        return;
    }
    let site = Site::start(2).await;
    site.system.volume("data", WRITER).await;
    let engine = site.engine(0).await;
    site.system.run("elsewhere", 1, "data").await;
    let volume = "data:/data";
    let refused = engine.refused(&engine.shell_arguments(volume, &["--rm"], "true")).await;
    assert!(refused.contains("BERTH0106") && refused.contains("elsewhere"), "{refused}");
    // The name is kept while another container of the fleet uses its volume.
    engine.create("data", &[]).await;
    let removed = engine.refused(&["volume", "rm", "data"]).await;
    assert!(removed.contains("claimed by elsewhere on node n2"), "{removed}");

    site.system.stop("elsewhere").await;
    site.settle("data").await;
    engine.shell("data", &["--rm"], "touch /data/file").await;
    site.settle("data").await;
    engine.ok(&["volume", "rm", "data"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_say_which_volume_and_what_may_be_done() {
    if !engine_or_skip() {
        return;
    }
    let site = Site::start(1).await;
    site.system.volume("a b[2]", &["single-node-multi-writer"]).await;
    let engine = site.engine(0).await;
    engine.create("rw-name", &["volume=a b[2]"]).await;
    engine.create("ro-name", &["volume=a b[2]", "mode=ro"]).await;
    let wrong = engine
        .create_refused("wrong", &["volume=nowhere", "mode=rx", "reclaim=keep", "colour=red"])
        .await;
    for fault in ["mode=rx", "reclaim=keep", "colour=red"] {
        assert!(wrong.contains(fault), "{fault} is not in: {wrong}");
    }
    let wrong = engine.create_refused("wrong", &["volume=nowhere"]).await;
    assert!(wrong.contains("there is no volume nowhere"), "{wrong}");

    engine.shell("rw-name", &["--rm"], "echo kept > /data/file").await;
    let volume = "ro-name:/data";
    let read = engine.shell("ro-name", &["--rm"], "cat /data/file").await;
    assert_eq!(read, "kept");
    let refused = engine.refused(&engine.shell_arguments(volume, &["--rm"], "touch /data/x")).await;
    assert!(refused.contains("Read-only file system"), "{refused}");
    site.settle("a b[2]").await;
    for name in ["rw-name", "ro-name"] {
        engine.ok(&["volume", "rm", name]).await;
    }
    // A volume without a name of its own is not listed to Docker.
    assert!(engine.volumes().await.is_empty());
}

/// `fs` is sent to the plugin with the request, and `size` is compared with the registration.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_is_asked_of_the_plugin_and_a_size_of_what_is_registered() {
    if !engine_or_skip() {
        return;
    }
    let site = Site::start(1).await;
    let bytes: u64 = 64 << 20;
    let provisioned = Command::new(binary("berth-csi-dev"))
        .args(["provision", "--volume", "disk", "--backing", "image", "--fs-type", "ext4"])
        .args(["--capacity-bytes", &bytes.to_string(), "--backend"])
        .arg(site.system.backend())
        .output()
        .unwrap();
    assert!(provisioned.status.success(), "{provisioned:?}");
    let disk = json!({"id": "disk", "plugin": "dev.berth", "capacity_bytes": bytes,
        "capability": [{"access": "single-node-writer"}]});
    site.system.ask::<Value>("berth.v1.volume.register.default", &disk).await.unwrap();
    site.system.volume("data", WRITER).await;
    let engine = site.engine(0).await;
    for (options, words) in [
        (["volume=disk", "size=1G"], "has 67108864 bytes, and 1073741824 are asked for"),
        (["volume=data", "size=1M"], "how large volume default/data is, is not known"),
    ] {
        let wrong = engine.create_refused("wrong", &options).await;
        assert!(wrong.contains(words), "{wrong}");
    }
    engine.create("right", &["volume=disk", "size=64M", "fs=ext4"]).await;
    let mounts = engine.shell("right", &["--rm"], "cat /proc/mounts").await;
    let at_data = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/data")).unwrap();
    assert_eq!(at_data.split(' ').nth(2), Some("ext4"), "{mounts}");
    site.settle("disk").await;
    let is_staged = |call: &&Value| call["rpc"] == "NodeStageVolume" && call["code"] == "OK";
    let calls = site.system.calls();
    let stage_calls = calls.iter().filter(is_staged).map(Value::to_string).collect::<Vec<_>>();
    assert!(
        !stage_calls.is_empty() && stage_calls.iter().all(|call| call.contains("ext4")),
        "{stage_calls:?}"
    );

    // The plugin refuses another file system than the volume has.
    engine.create("other", &["volume=disk", "fs=xfs"]).await;
    let refused = engine.refused(&engine.shell_arguments("other:/data", &["--rm"], "true")).await;
    assert!(refused.contains("the volume was made with ext4"), "{refused}");
    site.settle("disk").await;
    let shown = engine.ok(&["volume", "inspect", "right"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown[0]["Status"]["fs"], "ext4", "{shown}");
    assert_eq!(shown[0]["Status"]["size"], bytes, "{shown}");
}
