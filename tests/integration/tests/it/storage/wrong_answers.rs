//! Plugins that answer otherwise than CSI says: the fault is shown, and the result can be deleted.

use berth_contract::code::Code;
use berth_contract::message::storage::Externals;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::volume::storage::{OperationKind, SnapshotState, Stage};
use berth_harness::root::or_skip;
use berth_harness::{storage, wait};
use berth_integration::{Options, PLUGIN, RECOVERY, System};
use serde_json::json;

async fn start() -> System {
    let driver = |_| vec!["--topology".to_owned(), "zone=a".to_owned()];
    System::start(Options { nodes: 1, driver, ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_not_what_was_requested_is_told_of_and_can_be_deleted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    for (wrong, words) in [
        ("less-capacity", "were requested"),
        ("other-topology", "where it was not requested"),
        ("no-source", "copy of its source"),
    ] {
        let mut document = json!({"size": "2MiB", "topology": [{"zone": "a"}]});
        if wrong == "no-source" {
            system.created("source", json!({"size": "2MiB"})).await;
            document["from"] = json!({"volume": "source"});
        }
        system.plant(0, &json!([{"rpc": "CreateVolume", "wrong": wrong, "times": 1}]));
        let storage = system.created("data", document).await;
        let [fault] = storage.faults.as_slice() else { panic!("{wrong}: {storage:?}") };
        assert!(fault.contains(words), "{wrong}: {fault}");
        system.deleted("data").await;
    }
    system.deleted("source").await;
    system.assert_known().await;
    assert!(storage::volumes(&system.backend()).is_empty());
    system.judge();
}

/// A volume without its own id could not be deleted, so it does not become ready. What it may have
/// left at the storage is found in the plugin's list.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_without_an_id_of_its_own_is_not_used() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    system.created("first", json!({"size": "1MiB"})).await;
    for (wrong, words) in [("id-of-another", "which is the one of"), ("no-id", "gives no id")] {
        system.plant(0, &json!([{"rpc": "CreateVolume", "wrong": wrong, "times": 1}]));
        system.create("data", json!({"size": "1MiB"})).await.unwrap();
        let storage = system.staged_as("data", Stage::Failed).await;
        let failure = storage.failure.expect("the failure is on record");
        assert_eq!(failure.operation, OperationKind::Create);
        assert!(failure.failure.message.contains(words), "{wrong}: {}", failure.failure);
        let refused = system.run_refused(&format!("a-{wrong}"), 0, "data").await;
        assert_eq!(refused.code, Code::VolumeNotReady, "{refused}");
        system.stop(&format!("a-{wrong}")).await;
        system.deleted("data").await;
        // Unknown volumes are not deleted: they are listed.
        let subject = verb::VolumeExternal::subject(&Namespace::default());
        let all: Externals = system.persist(&subject, &json!({"plugin": PLUGIN})).await.unwrap();
        let unknown = all.volumes.iter().filter(|entry| entry.volume.is_none()).count();
        assert!(unknown >= 1, "{all:?}");
    }
    let mounted = system.run("a", 0, "first").await;
    assert!(!mounted.path.is_empty(), "the other volume is not touched");
}

/// To delete it would delete the other snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_with_the_id_of_another_is_not_used() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    system.created("data", json!({"size": "1MiB"})).await;
    system.snapshot(&["data"], "first", json!({})).await.unwrap();
    let first = system.snapshot_is("data", "first", SnapshotState::Ready).await;
    system.plant(0, &json!([{"rpc": "CreateSnapshot", "wrong": "id-of-another", "times": 1}]));
    system.snapshot(&["data"], "second", json!({})).await.unwrap();
    let second = system.snapshot_is("data", "second", SnapshotState::Failed).await;
    let error = second.error().unwrap_or_default();
    assert!(error.contains("which is the one of snapshot first of volume data"), "{error}");
    system.snapshot_deleted("data", "second", false).await;
    let kept = system.snapshot_is("data", "first", SnapshotState::Ready).await;
    assert_eq!(kept.external_id, first.external_id);
    let snapshots = storage::snapshots(&system.backend());
    let is_first =
        |entry: &serde_json::Value| entry["snapshot_id"].as_str() == first.external_id.as_deref();
    assert!(snapshots.iter().any(is_first), "{snapshots:?}");
}

/// A plugin without a list of snapshots: to learn whether a snapshot is ready, its creation is
/// repeated, and the plugin cuts another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_cut_twice_is_deleted_twice() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| {
        let without = ["list-snapshots", "get-snapshot"];
        without.iter().flat_map(|ability| ["--without".to_owned(), (*ability).to_owned()]).collect()
    };
    let system = System::start(Options { nodes: 1, driver, ..Options::default() }).await;
    system.created("data", json!({"size": "1MiB"})).await;
    let slow = json!({"parameters": {"ready-after-ms": "60000"}});
    system.snapshot(&["data"], "s", slow).await.unwrap();
    system.snapshot_is("data", "s", SnapshotState::Cut).await;
    system.plant(0, &json!([{"rpc": "CreateSnapshot", "wrong": "other-id"}]));
    wait::until("the snapshot was cut twice", RECOVERY, || async {
        let snapshots = system.snapshots("data").await;
        let error = snapshots.first().and_then(|snapshot| snapshot.error()).unwrap_or_default();
        error.contains("both are deleted").then_some(()).ok_or(format!("{snapshots:?}"))
    })
    .await;
    assert_eq!(storage::snapshots(&system.backend()).len(), 2);
    system.assert_known().await;
    system.snapshot_deleted("data", "s", false).await;
    assert!(storage::snapshots(&system.backend()).is_empty());
    system.deleted("data").await;
    system.assert_known().await;
}

/// The volume is at the storage, and without its context it would be published as another volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_context_cannot_be_stored_is_only_deleted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    system.plant(0, &json!([{"rpc": "CreateVolume", "wrong": "chatty", "times": 1}]));
    system.create("data", json!({"size": "1MiB"})).await.unwrap();
    let storage = system.staged_as("data", Stage::Failed).await;
    let failure = storage.failure.expect("the failure is on record").failure.message;
    assert!(failure.contains("volume_context of 65"), "{failure}");
    system.assert_known().await;
    let refused = system.run_refused("a", 0, "data").await;
    assert_eq!(refused.code, Code::VolumeNotReady, "{refused}");
    system.stop("a").await;
    system.deleted("data").await;
    assert!(storage::volumes(&system.backend()).is_empty());
    system.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_without_an_end_is_cut_off() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    for id in ["a", "b", "c"] {
        system.created(id, json!({"size": "1MiB"})).await;
    }
    let subject = verb::VolumeExternal::subject(&Namespace::default());
    for wrong in ["endless-pages", "endless-token"] {
        system.plant(0, &json!([{"rpc": "ListVolumes", "wrong": wrong}]));
        let mut query = json!({"plugin": PLUGIN});
        let cut_off = loop {
            let page: Externals = system.persist(&subject, &query).await.unwrap();
            if page.truncated || page.next.is_none() {
                break page.truncated;
            }
            query["after"] = json!(page.next);
        };
        assert!(cut_off, "{wrong}");
    }
}

/// A plugin that says it expanded the volume, and did not.
#[tokio::test(flavor = "multi_thread")]
async fn an_expansion_to_less_than_requested_is_told_of() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    system.created("data", json!({"size": "2MiB"})).await;
    let less = json!([{"rpc": "ControllerExpandVolume", "wrong": "less-capacity", "times": 1}]);
    system.plant(0, &less);
    system.expand("data", json!({"size": "8MiB"})).await.unwrap();
    // Mounted, so that the node expands it, too.
    system.run("a", 0, "data").await;
    let storage = system.staged_as("data", Stage::Ready).await;
    assert!(storage.faults.iter().any(|fault| fault.contains("8388608")), "{storage:?}");
    system.stop("a").await;
    system.settle("data").await;
    system.deleted("data").await;
    system.assert_known().await;
}

/// Mutable parameters are changed, refused, and changed to the same values.
#[tokio::test(flavor = "multi_thread")]
async fn mutable_parameters_are_changed_as_a_whole() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    let document = json!({"size": "1MiB", "mutable_parameters": {"tier": "silver"}});
    system.created("data", document).await;
    let subject = verb::VolumeModify::subject(&Namespace::default());
    let modify = |parameters: serde_json::Value| {
        let body = json!({"id": "data", "parameters": parameters});
        let (system, subject) = (&system, subject.clone());
        async move { system.persist::<serde_json::Value>(&subject, &body).await }
    };
    modify(json!({"tier": "gold"})).await.unwrap();
    let storage = system.staged_as("data", Stage::Ready).await;
    assert_eq!(storage.mutable_parameters["tier"], "gold");
    let repeated = modify(json!({"tier": "gold"})).await.unwrap();
    assert_eq!(repeated["changed"], false, "{repeated}");
    modify(json!({"color": "red"})).await.unwrap();
    let storage = system.staged_as("data", Stage::Ready).await;
    let failure = storage.failure.expect("the plugin refuses the change");
    assert!(failure.failure.message.contains("color"), "{}", failure.failure);
    assert_eq!(storage.mutable_parameters["tier"], "gold", "the refused change has no effect");
    system.deleted("data").await;
    system.assert_known().await;
    system.judge();
}

/// Something is at the storage under the snapshot's id, and nothing may be restored from it.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_the_plugin_says_is_of_another_volume_can_only_be_deleted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    let mut ids = Vec::new();
    for volume in ["data", "other"] {
        system.created(volume, json!({"size": "1MiB"})).await;
        let handle = system.volume_status(volume).await.unwrap().external_id;
        ids.push(handle.unwrap());
    }
    // The second shows the fault only when the plugin is asked whether it is ready.
    let slow = json!({"parameters": {"ready-after-ms": "60000"}});
    for (snapshot, rpc, options) in
        [("cut", "CreateSnapshot", json!({})), ("polled", "GetSnapshot", slow)]
    {
        let wrong = json!([{"rpc": rpc, "answer": {"source_volume_id": ids[1]}}]);
        system.plant(0, &wrong);
        system.snapshot(&["data"], snapshot, options).await.unwrap();
        let foreign = wait::until("the fault is on the record", RECOVERY, || async {
            let all = system.snapshots("data").await;
            let foreign = all.iter().find(|listed| listed.snapshot.as_str() == snapshot);
            foreign.filter(|listed| listed.foreign).cloned().ok_or(format!("{all:?}"))
        })
        .await;
        let error = foreign.error().map(str::to_owned).unwrap_or_default();
        assert_eq!(foreign.state, SnapshotState::Cut);
        assert!(
            ids.iter().all(|id| error.contains(id)) && foreign.external_id.is_some(),
            "{error}"
        );
        system.plant(0, &json!([]));
        // Nothing leaks, and no copy is made from it.
        system.assert_known().await;
        let from = json!({
            "id": "copy", "plugin": PLUGIN, "capability": [{"access": "single-node-writer"}],
            "from": {"volume": "data", "snapshot": snapshot},
        });
        let create = verb::VolumeCreate::subject(&Namespace::default());
        let refused = system.ask::<serde_json::Value>(&create, &from).await.unwrap_err();
        assert_eq!(refused.code, Code::StorageInUse, "{refused}");
        system.snapshot_deleted("data", snapshot, false).await;
    }
    assert!(storage::snapshots(&system.backend()).is_empty());
    for volume in ["data", "other"] {
        system.deleted(volume).await;
    }
    system.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_something_else_can_only_be_deleted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    system.created("source", json!({"size": "1MiB"})).await;
    for (alloc, document) in
        [("a", json!({"from": {"volume": "source"}})), ("b", json!({"size": "1MiB"}))]
    {
        let wrong = json!({"rpc": "CreateVolume", "answer": {"source_volume": "vol-else"}});
        system.plant(0, &json!([wrong]));
        system.create("data", document).await.unwrap();
        let failed = system.staged_as("data", Stage::Failed).await;
        let failure = failed.failure.expect("the failure is on record").failure.message;
        assert!(failure.contains("a copy of volume \"vol-else\""), "{failure}");
        system.assert_known().await;
        let refused = system.run_refused(alloc, 0, "data").await;
        assert_eq!(refused.code, Code::VolumeNotReady, "{refused}");
        system.stop(alloc).await;
        system.plant(0, &json!([]));
        system.deleted("data").await;
    }
    system.deleted("source").await;
    assert!(storage::volumes(&system.backend()).is_empty());
    system.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_of_another_volume_is_not_taken() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    system.provision("there");
    let subject = verb::VolumeExternal::subject(&Namespace::default());
    let query = json!({"plugin": PLUGIN, "id": "there"});
    let right: Externals = system.persist(&subject, &query).await.unwrap();
    assert_eq!(right.volumes[0].listed.external_id, "there");
    system.plant(0, &json!([{"rpc": "ControllerGetVolume", "answer": {"volume_id": "else"}}]));
    let wrong: Externals = system.persist(&subject, &query).await.unwrap();
    assert!(wrong.volumes.is_empty(), "{wrong:?}");
    let [reason] = wrong.not_asked.as_slice() else { panic!("{wrong:?}") };
    assert!(reason.contains("contradicts the request") && reason.contains("\"else\""), "{reason}");
}

/// A volume never gets smaller, whatever the plugin says.
#[tokio::test(flavor = "multi_thread")]
async fn a_size_below_the_one_before_is_told_of_and_not_stored() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    system.created("data", json!({"size": "2MiB"})).await;
    system.plant(0, &json!([{"rpc": "ControllerExpandVolume", "answer": {"capacity_bytes": 5}}]));
    system.expand("data", json!({"size": "4MiB"})).await.unwrap();
    system.run("a", 0, "data").await;
    let storage = system.staged_as("data", Stage::Ready).await;
    assert!(storage.faults.iter().any(|fault| fault.contains("to 5 bytes")), "{storage:?}");
    let status = system.volume_status("data").await.unwrap();
    assert_eq!(status.capacity_bytes, Some(2 << 20), "{status:?}");
    system.stop("a").await;
    system.settle("data").await;
    system.plant(0, &json!([]));
    system.deleted("data").await;
    system.assert_known().await;
}

/// A claim of such a node could not be released: no call could name the node to detach from.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_service_without_a_node_id_is_unhealthy_where_volumes_are_attached() {
    let planted = Some(r#"[{"rpc": "NodeGetInfo", "answer": {"node_id": ""}}]"#);
    let options = Options { nodes: 1, planted, healthy: Some((0, 0)), ..Options::default() };
    let system = System::start(options).await;
    let descriptions = wait::until("the plugin's fault is shown", RECOVERY, || async {
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let instances = nodes.into_iter().flat_map(|node| node.instances);
        let descriptions: Vec<String> = instances.map(|instance| instance.description).collect();
        if descriptions.iter().any(|description| description.contains("gives this one no id")) {
            Ok(descriptions)
        } else {
            Err(format!("{descriptions:?}"))
        }
    })
    .await;
    assert!(!descriptions.is_empty());
    system.plant(0, &json!([]));
    wait::until("the plugin is healthy", RECOVERY, || async {
        let plugins = system.plugins().await.map_err(|problem| problem.to_string())?.plugins;
        let healthy = plugins.first().map_or(0, |plugin| plugin.nodes.healthy);
        if healthy == 1 { Ok(()) } else { Err(format!("{plugins:?}")) }
    })
    .await;
}

/// The whole group is deleted by one call, with the ids that the plugin returned.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_the_plugin_says_is_of_other_volumes_can_only_be_deleted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start().await;
    for volume in ["x", "y", "other"] {
        system.created(volume, json!({"size": "1MiB"})).await;
    }
    let other = system.volume_status("other").await.unwrap().external_id.unwrap();
    // The second shows the fault only when the plugin is asked whether it is ready.
    let slow = json!({"parameters": {"ready-after-ms": "60000"}});
    for (snapshot, rpc, options) in [
        ("cut", "CreateVolumeGroupSnapshot", json!({})),
        ("polled", "GetVolumeGroupSnapshot", slow),
    ] {
        let wrong = json!([{"rpc": rpc, "answer": {"source_volume_id": other}}]);
        system.plant(0, &wrong);
        let is_call = |call: &&serde_json::Value| call["entry"] == "end" && call["rpc"] == rpc;
        let count = || system.calls().iter().filter(is_call).count();
        let earlier = count();
        system.snapshot(&["x", "y"], snapshot, options).await.unwrap();
        for volume in ["x", "y"] {
            let foreign = wait::until("the fault is on the record", RECOVERY, || async {
                let all = system.snapshots(volume).await;
                let foreign = all.iter().find(|listed| listed.snapshot.as_str() == snapshot);
                foreign.filter(|listed| listed.foreign).cloned().ok_or(format!("{all:?}"))
            })
            .await;
            assert_eq!(foreign.state, SnapshotState::Cut);
            let error = foreign.error().unwrap_or_default();
            assert!(error.contains(&other), "{error}");
        }
        assert_eq!(count(), earlier + 1, "{rpc}");
        // Nothing leaks, and no copy is made from it.
        system.assert_known().await;
        let from = json!({
            "id": "copy", "plugin": PLUGIN, "capability": [{"access": "single-node-writer"}],
            "from": {"volume": "y", "snapshot": snapshot},
        });
        let create = verb::VolumeCreate::subject(&Namespace::default());
        let refused = system.ask::<serde_json::Value>(&create, &from).await.unwrap_err();
        assert_eq!(refused.code, Code::StorageInUse, "{refused}");
        // The driver refuses other ids than those of the group.
        system.snapshot_deleted("y", snapshot, true).await;
        assert_eq!(count(), earlier + 1, "{rpc}");
    }
    assert!(storage::snapshots(&system.backend()).is_empty());
    for volume in ["x", "y", "other"] {
        system.deleted(volume).await;
    }
    system.judge();
}
