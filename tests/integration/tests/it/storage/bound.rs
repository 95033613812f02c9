//! Plugins whose controllers have a storage each: every call of a volume goes to the controller
//! that has it.

use berth_domain::volume::storage::{SnapshotState, Stage};
use berth_harness::root::or_skip;
use berth_harness::{storage, wait};
use berth_integration::{Options, Part, RECOVERY, System};
use serde_json::{Value, json};

fn options() -> Options {
    let driver =
        |node| vec!["--bound".to_owned(), "--topology".to_owned(), format!("host=h{}", node + 1)];
    Options { nodes: 3, driver, ..Options::default() }
}

fn on(host: &str) -> Value {
    json!({"size": "1MiB", "topology": [{"host": host}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_goes_to_the_controller_that_has_the_volume() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(options()).await;
    for (node, host) in ["h1", "h2", "h3"].into_iter().enumerate() {
        let volume = format!("data-{host}");
        system.created(&volume, on(host)).await;
        let status = system.volume_status(&volume).await.unwrap();
        let hosts: Vec<&String> =
            status.topologies.iter().flat_map(|topology| topology.values()).collect();
        assert_eq!(hosts, [host], "{status:?}");
        system.expand(&volume, json!({"size": "2MiB"})).await.unwrap();
        system.snapshot(&[&volume], "s", json!({})).await.unwrap();
        system.snapshot_is(&volume, "s", SnapshotState::Ready).await;
        system.run(&format!("a-{host}"), node, &volume).await;
        system.stop(&format!("a-{host}")).await;
        system.settle(&volume).await;
        system.staged_as(&volume, Stage::Ready).await;
    }
    system.assert_known().await;
    for host in ["h1", "h2", "h3"] {
        let volume = format!("data-{host}");
        system.deleted(&volume).await;
        system.snapshot_deleted(&volume, "s", false).await;
    }
    system.assert_known().await;
    assert!(storage::volumes(&system.backend()).is_empty(), "the storage is empty");
    system.judge();
}

/// Rule 19: a creation that may have been carried out is repeated at the same controller. Another
/// controller would create a second volume.
#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_creation_is_repeated_by_the_controller_that_got_it() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(options()).await;
    for node in 0..3 {
        system
            .plant(node, &json!([{"rpc": "CreateVolume", "when": "after", "code": "UNAVAILABLE"}]));
    }
    // Without a topology, each of the three could create it.
    system.create("data", json!({"size": "1MiB"})).await.unwrap();
    wait::until("two answers are lost", RECOVERY, || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        match status.storage.and_then(|storage| storage.operation) {
            Some(operation) if operation.tries > 1 && operation.uncertain => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let volumes = storage::volumes(&system.backend());
    assert_eq!(volumes.len(), 1, "one controller was called: {volumes:?}");
    // The controller that may have it is down: no other is called.
    let node = (0..3).find(|node| has_created(&system, *node)).expect("one controller was called");
    system.kill9(Part::Driver(node));
    for other in (0..3).filter(|other| *other != node) {
        system.plant(other, &json!([]));
    }
    let tries = || async {
        let status = system.volume_status("data").await.ok()?;
        Some(status.storage?.operation?.tries)
    };
    let before = tries().await.expect("the creation is under way");
    wait::until("the creation is tried again", RECOVERY, || async {
        match tries().await {
            Some(now) if now > before => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(storage::volumes(&system.backend()).len(), 1);
    system.plant(node, &json!([]));
    system.restart(Part::Driver(node));
    system.staged_as("data", Stage::Ready).await;
    system.assert_known().await;
    assert_eq!(storage::volumes(&system.backend()).len(), 1);
    system.judge();
}

fn has_created(system: &System, node: usize) -> bool {
    let log = std::fs::read_to_string(&system.call_logs()[node]).unwrap_or_default();
    log.contains("\"CreateVolume\"")
}
