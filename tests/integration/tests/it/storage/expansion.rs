//! Volumes grow: at the controller, on nodes, online and offline.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::storage::StorageWait;
use berth_domain::volume::storage::Stage;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
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
    system.stop("b").await;
    system.freed("data").await;
    system.deleted("data").await;
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
