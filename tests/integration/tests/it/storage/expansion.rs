//! Volumes grow: at the controller, on nodes, online and offline.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::storage::StorageWait;
use berth_domain::volume::storage::{SnapshotState, Stage};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, RECOVERY, System};
use serde_json::json;

/// The size of the file system at a path, in bytes.
fn bytes_at(path: &str) -> u64 {
    let stat = nix::sys::statvfs::statvfs(path).unwrap();
    stat.blocks() * stat.fragment_size()
}

async fn grows(fs: &str, small: u64, large: u64) {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let image = json!({"size": small, "parameters": {"backing": "image", "fs-type": fs}});
    system.created("data", image).await;
    let mounted = system.run("a", 0, "data").await;
    let before = bytes_at(&mounted.path);
    assert!(before < large / 2, "{before}");
    system.expand("data", json!({"size": large})).await.unwrap();
    // Some kernels grow this file system only while it is not mounted. Then the plugin is called
    // again only when the volume is staged again (CSI, `NodeExpandVolume`, FAILED_PRECONDITION).
    let is_grown =
        wait::until("the volume has grown, or waits", Duration::from_secs(30), || async {
            let status =
                system.volume_status("data").await.map_err(|problem| problem.to_string())?;
            match status.storage.and_then(|storage| storage.operation) {
                None => Ok(true),
                Some(operation) if operation.waits_for == Some(StorageWait::StagedAgain) => {
                    Ok(false)
                }
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    let mounted = if is_grown {
        mounted
    } else {
        system.stop("a").await;
        system.freed("data").await;
        system.run("a-again", 0, "data").await
    };
    system.staged_as("data", Stage::Ready).await;
    let after = bytes_at(&mounted.path);
    assert!(after > large / 2, "{fs} grew from {before} to {after}, and {large} were requested");
    let status = system.volume_status("data").await.unwrap();
    assert_eq!(status.capacity_bytes, Some(large));
    let smaller = system.expand("data", json!({"size": small})).await.unwrap_err();
    assert_eq!(smaller.code, Code::NeverSmaller, "{smaller}");
    system.stop(if is_grown { "a" } else { "a-again" }).await;
    system.freed("data").await;

    // The volume is staged nowhere: the controller grows it now, and its next staging grows the
    // file system.
    system.expand("data", json!({"size": large * 2})).await.unwrap();
    wait::until("the controller has expanded the volume", Duration::from_secs(30), || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        let operation = status.storage.and_then(|storage| storage.operation);
        match (status.capacity_bytes, operation) {
            (Some(bytes), Some(operation))
                if bytes == large * 2 && operation.waits_for.is_some() =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let mounted = system.run("b", 0, "data").await;
    let after = bytes_at(&mounted.path);
    assert!(after > large, "the staging left {after} of {} bytes", large * 2);
    system.staged_as("data", Stage::Ready).await;
    system.ended_and_deleted("b", "data").await;
    system.assert_known().await;
    system.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn ext4_grows_while_it_is_mounted_and_when_it_is_staged_next() {
    grows("ext4", 32 << 20, 128 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn xfs_grows_while_it_is_mounted_and_when_it_is_staged_next() {
    grows("xfs", 320 << 20, 1024 << 20).await;
}

/// Rule 22: if the plugin expands only offline, an expansion waits until the volume is free, or is
/// refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_expands_offline_only_is_called_when_the_volume_is_free() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| vec!["--without".to_owned(), "online-expand".to_owned()];
    let system = System::start(Options { nodes: 1, driver, ..Options::default() }).await;
    system.created("data", json!({"size": "1MiB"})).await;
    system.run("a", 0, "data").await;
    let subject = "berth.v1.volume.expand.default";
    let larger = json!({"id": "data", "size": "2MiB"});
    let refused = system.ask::<serde_json::Value>(subject, &larger).await.unwrap_err();
    assert_eq!(refused.code, Code::VolumeInUse, "{refused}");
    assert!(refused.message.contains("alloc a on node n1"), "{refused}");
    system.expand("data", json!({"size": "2MiB", "when_free": true})).await.unwrap();
    let status = system.volume_status("data").await.unwrap();
    assert_eq!(status.capacity_bytes, Some(1 << 20), "the expansion waits");
    system.stop("a").await;
    system.staged_as("data", Stage::Ready).await;
    assert_eq!(system.volume_status("data").await.unwrap().capacity_bytes, Some(2 << 20));
    system.deleted("data").await;
    system.judge();
}

/// The plugin leaves the file system of a copy as large as it was. The development driver grows it
/// only by the call.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_larger_than_its_source_has_a_larger_file_system() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let (small, large) = (320_u64 << 20, 1024_u64 << 20);
    let image = json!({"size": small, "parameters": {"backing": "image", "fs-type": "xfs"}});
    system.created("data", image.clone()).await;
    system.snapshot(&["data"], "monday", json!({})).await.unwrap();
    for (copy, from) in [
        ("clone", json!({"volume": "data"})),
        ("restored", json!({"volume": "data", "snapshot": "monday"})),
    ] {
        let mut document = image.clone();
        (document["size"], document["from"]) = (json!(large), from);
        system.create(copy, document).await.unwrap();
        let mounted = system.run(&format!("a-{copy}"), 0, copy).await;
        assert!(bytes_at(&mounted.path) > large / 2, "{copy}: {}", bytes_at(&mounted.path));
        system.staged_as(copy, Stage::Ready).await;
        system.ended_and_deleted(&format!("a-{copy}"), copy).await;
    }
    system.judge();
}

/// The file system in the snapshot is the smaller one, although its volume has grown since.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_volume_that_waits_to_grow_is_restored_with_its_whole_size() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let (small, large) = (320_u64 << 20, 1024_u64 << 20);
    let image = json!({"size": small, "parameters": {"backing": "image", "fs-type": "xfs"}});
    system.created("data", image.clone()).await;
    system.run("first", 0, "data").await;
    system.stop("first").await;
    system.freed("data").await;
    system.expand("data", json!({"size": large})).await.unwrap();
    wait::until("the controller has expanded the volume", Duration::from_secs(30), || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        if status.capacity_bytes == Some(large) { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    system.snapshot(&["data"], "monday", json!({})).await.unwrap();
    system.snapshot_is("data", "monday", SnapshotState::Ready).await;
    system.run("second", 0, "data").await;
    system.staged_as("data", Stage::Ready).await;
    let from = json!({"volume": "data", "snapshot": "monday"});
    let document = json!({"from": from, "parameters": image["parameters"]});
    system.create("restored", document).await.unwrap();
    let mounted = system.run("third", 0, "restored").await;
    assert!(bytes_at(&mounted.path) > large / 2, "{}", bytes_at(&mounted.path));
    for (alloc, volume) in [("third", "restored"), ("second", "data")] {
        system.staged_as(volume, Stage::Ready).await;
        system.ended_and_deleted(alloc, volume).await;
    }
    system.judge();
}

/// CSI allows a plugin to expand on nodes alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_expands_on_nodes_only_does_so_at_the_mount() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| vec!["--without".to_owned(), "expand".to_owned()];
    let system = System::start(Options { nodes: 1, driver, ..Options::default() }).await;
    let (small, large) = (320_u64 << 20, 1024_u64 << 20);
    let image = json!({"size": small, "parameters": {"backing": "image", "fs-type": "xfs"}});
    system.created("data", image).await;
    let mounted = system.run("a", 0, "data").await;
    system.expand("data", json!({"size": large})).await.unwrap();
    system.staged_as("data", Stage::Ready).await;
    assert!(bytes_at(&mounted.path) > large / 2, "while it is mounted");
    assert_eq!(system.volume_status("data").await.unwrap().capacity_bytes, Some(large));
    system.stop("a").await;
    system.freed("data").await;

    system.expand("data", json!({"size": large * 2})).await.unwrap();
    let status = system.volume_status("data").await.unwrap();
    let waits = status.storage.and_then(|it| it.operation).and_then(|it| it.waits_for);
    assert_eq!(waits, Some(StorageWait::NextStaging));
    assert_eq!(status.capacity_bytes, Some(large), "nothing was called yet");
    let mounted = system.run("b", 0, "data").await;
    system.staged_as("data", Stage::Ready).await;
    assert!(bytes_at(&mounted.path) > large, "at its next mount");
    assert_eq!(system.volume_status("data").await.unwrap().capacity_bytes, Some(large * 2));
    system.ended_and_deleted("b", "data").await;
    system.judge();
}

/// Other changes go on beside an expansion that waits for a mount, and a copy asks for the size
/// that its source will have.
#[tokio::test(flavor = "multi_thread")]
async fn an_expansion_that_waits_holds_up_no_other_change() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let (small, large) = (320_u64 << 20, 1024_u64 << 20);
    let image = json!({"size": small, "parameters": {"backing": "image", "fs-type": "xfs"}});
    system.created("data", image.clone()).await;
    let refused = json!([{"rpc": "ControllerExpandVolume", "when": "before", "code": "UNAVAILABLE",
        "times": 3}]);
    system.plant(0, &refused);
    system.expand("data", json!({"size": large})).await.unwrap();
    let mut copy = image;
    copy["from"] = json!({"volume": "data"});
    copy.as_object_mut().unwrap().remove("size");
    system.create("copy", copy).await.unwrap();
    wait::until("only the mount is left", RECOVERY, || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        let waits = status.storage.and_then(|it| it.operation).and_then(|it| it.waits_for);
        if waits == Some(StorageWait::NextStaging) { Ok(()) } else { Err(format!("{waits:?}")) }
    })
    .await;
    let modify = json!({"id": "data", "parameters": {"iops": "7"}});
    let _: serde_json::Value =
        system.persist("berth.v1.volume.modify.default", &modify).await.unwrap();
    wait::until("it is modified", RECOVERY, || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        let storage = status.storage.unwrap();
        let is_set = storage.mutable_parameters.get("iops").is_some_and(|iops| iops == "7");
        if is_set { Ok(()) } else { Err(format!("{storage:?}")) }
    })
    .await;
    let mounted = system.run("a", 0, "data").await;
    assert!(bytes_at(&mounted.path) > large / 2, "it grows although it was modified meanwhile");
    system.staged_as("data", Stage::Ready).await;
    let mounted = system.run("b", 0, "copy").await;
    assert!(bytes_at(&mounted.path) > large / 2, "the copy has the new size");
    for (alloc, volume) in [("a", "data"), ("b", "copy")] {
        system.ended_and_deleted(alloc, volume).await;
    }
    system.judge();
}

/// A claim that came after the expansion waits behind it.
#[tokio::test(flavor = "multi_thread")]
async fn an_offline_expansion_has_a_place_in_line() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| vec!["--without".to_owned(), "online-expand".to_owned()];
    let system = System::start(Options { nodes: 1, driver, ..Options::default() }).await;
    let shared = json!([{"access": "single-node-multi-writer"}]);
    system.created("data", json!({"size": "1MiB", "capability": shared})).await;
    system.run("a", 0, "data").await;
    system.expand("data", json!({"size": "2MiB", "when_free": true})).await.unwrap();
    let refused = system.run_refused("b", 0, "data").await;
    assert_eq!(refused.code, Code::OperationUnderWay, "{refused}");
    system.alloc("c", 0, "data", false).await;
    let (mounted, ()) = tokio::join!(system.mount_in_turn("c", 0, "data"), async {
        wait::until("it is in line", RECOVERY, || async {
            let claims = system.claims("data").await.claims;
            if claims.len() == 2 { Ok(()) } else { Err(format!("{claims:?}")) }
        })
        .await;
        system.stop("a").await;
    });
    mounted.unwrap();
    let size = system.volume_status("data").await.unwrap().capacity_bytes;
    assert_eq!(size, Some(2 << 20), "the expansion was first");
    system.stop("b").await;
    system.stop("c").await;
    system.freed("data").await;
    system.deleted("data").await;
    system.judge();
}
