//! The plugin's own list beside the records, and adoption from it.

use berth_contract::code::Code;
use berth_contract::message::snapshot::SnapshotsChanged;
use berth_contract::message::storage::{Capacities, Externals, Registration};
use berth_contract::verb::{self, Verb as _};
use berth_domain::volume::storage::SnapshotState;
use berth_domain::{Namespace, VolumeId};
use berth_harness::process::binary;
use berth_harness::root::or_skip;
use berth_harness::storage;
use berth_integration::{Options, PLUGIN, System};
use serde_json::{Value, json};

async fn listed(system: &System, snapshots: bool) -> Externals {
    let subject = verb::VolumeExternal::subject(&Namespace::default());
    let body = json!({"plugin": PLUGIN, "snapshots": snapshots});
    system.persist(&subject, &body).await.expect("the plugin's list")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_plugin_has_is_listed_beside_what_is_registered() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.created("ours", json!({"size": "1MiB"})).await;
    system.snapshot(&["ours"], "s", json!({})).await.unwrap();
    system.snapshot_is("ours", "s", SnapshotState::Ready).await;
    system.provision("theirs");
    system.volume("gone", &["single-node-writer"]).await;
    // Removed without Berth.
    std::fs::remove_dir_all(system.backend().join("volumes").join("gone")).unwrap_or_else(
        |error| {
            panic!("{error}: {:?}", storage::volumes(&system.backend()));
        },
    );

    let all = listed(&system, false).await;
    assert!(!all.truncated && all.not_asked.is_empty(), "{all:?}");
    let ids = |registration| {
        let matching = all.volumes.iter().filter(move |entry| entry.registration == registration);
        matching.map(|entry| entry.listed.external_id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(Registration::NotRegistered), ["theirs"], "{all:?}");
    assert_eq!(ids(Registration::NotListed), ["gone"], "{all:?}");
    assert_eq!(ids(Registration::Known).len(), 1, "{all:?}");

    // Two entries, then the last one.
    let subject = verb::VolumeExternal::subject(&Namespace::default());
    let first = json!({"plugin": PLUGIN, "limit": 2});
    let first: Externals = system.persist(&subject, &first).await.unwrap();
    let rest = json!({"plugin": PLUGIN, "limit": 2, "after": first.next});
    let rest: Externals = system.persist(&subject, &rest).await.unwrap();
    assert_eq!((first.volumes.len(), rest.volumes.len(), &rest.next), (2, 1, &None));
    let paged: Vec<_> = first.volumes.into_iter().chain(rest.volumes).collect();
    assert_eq!(paged, all.volumes);

    // A snapshot that Berth forgot is adopted from the list, and deleted like any other.
    let snapshots = listed(&system, true).await;
    assert_eq!(snapshots.snapshots.len(), 1, "{snapshots:?}");
    assert_eq!(snapshots.snapshots[0].registration, Registration::Known);
    let wrong =
        json!({"volume": "ours", "snapshot": "t", "external_id": "no-such", "plugin": PLUGIN});
    let subject = verb::SnapshotAdopt::subject(&Namespace::default());
    let refused = system.ask::<Value>(&subject, &wrong).await.unwrap_err();
    assert_ne!(refused.code, Code::BadInput, "{refused}");
    assert!(refused.message.contains("no-such"), "{refused}");

    let id = snapshots.snapshots[0].listed.external_id.clone();
    let adopt = async |volume: &str, snapshot: &str| {
        let subject = verb::SnapshotAdopt::subject(&Namespace::default());
        let body = json!({
            "volume": volume, "snapshot": snapshot, "external_id": id, "plugin": PLUGIN,
        });
        system.persist::<SnapshotsChanged>(&subject, &body).await
    };
    let known = adopt("ours", "again").await.unwrap_err();
    assert_eq!(known.code, Code::SnapshotExists, "{known}");
    let forget = json!({"volume": "ours", "snapshot": "s", "forget": true});
    let subject = verb::SnapshotDelete::subject(&Namespace::default());
    system.persist::<SnapshotsChanged>(&subject, &forget).await.unwrap();
    let stray = &listed(&system, true).await.snapshots[0];
    assert_eq!(stray.registration, Registration::NotRegistered);
    let elsewhere = adopt("gone", "s").await.unwrap_err();
    let next = elsewhere.specific_advice().unwrap_or_default();
    assert!(next.contains("ours@s"), "{elsewhere}");
    let adopted = adopt("ours", "again").await.unwrap();
    assert!(adopted.changed && adopted.snapshots.len() == 1, "{adopted:?}");
    assert!(!adopt("ours", "again").await.unwrap().changed, "a repetition changes nothing");
    let twice = adopt("ours", "twice").await.unwrap_err();
    assert_eq!(twice.code, Code::SnapshotExists, "{twice}");

    system.snapshot_deleted("ours", "again", false).await;
    assert!(listed(&system, true).await.snapshots.is_empty());
    system.deleted("ours").await;
    system.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_room_of_a_plugin_is_told_by_place() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |node| vec!["--topology".to_owned(), format!("zone=z{}", node + 1)];
    let system = System::start(Options { driver, ..Options::default() }).await;
    let subject = verb::PluginCapacity::subject(&());
    let all: Capacities = system.persist(&subject, &json!({"plugin": PLUGIN})).await.unwrap();
    let zones: Vec<&str> = all
        .capacities
        .iter()
        .filter_map(|capacity| capacity.topology.as_ref()?.get("zone"))
        .map(String::as_str)
        .collect();
    assert_eq!(zones, ["z1", "z2"], "{all:?}");
    assert!(all.capacities.iter().all(|capacity| capacity.available_bytes.is_some()), "{all:?}");
    let one_zone = json!({"plugin": PLUGIN, "topology": {"zone": "z2"}});
    let one_zone: Capacities = system.persist(&subject, &one_zone).await.unwrap();
    assert_eq!(one_zone.capacities.len(), 1, "{one_zone:?}");
    // The request has no namespace, so it may name any class.
    system.class("theirs", json!({"namespaces": ["team-a"]})).await.unwrap();
    for query in [json!({"class": "theirs"}), json!({"class": "theirs", "plugin": PLUGIN})] {
        let answer: Capacities = system.persist(&subject, &query).await.unwrap();
        assert_eq!((answer.plugin.as_str(), answer.capacities.len()), (PLUGIN, 2), "{answer:?}");
    }
    let wrong = json!({"class": "theirs", "plugin": "no.such"});
    let refused = system.ask::<Value>(&subject, &wrong).await.unwrap_err();
    assert_eq!(refused.code, Code::BadInput, "{refused}");
    let unknown = system.ask::<Value>(&subject, &json!({"plugin": "no.such"})).await.unwrap_err();
    assert_eq!(unknown.code, Code::NoSuchPlugin, "{unknown}");
}

/// The condition of a volume, by the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn one_volume_is_asked_for_and_how_it_is() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.created("data", json!({"size": "1MiB"})).await;
    system.created("other", json!({"size": "1MiB"})).await;
    let all = listed(&system, false).await;
    assert!(all.volumes.iter().all(|entry| entry.listed.abnormal.is_none()), "{all:?}");
    let is_data = |id: &VolumeId| id.as_str() == "data";
    let data = all.volumes.iter().find(|entry| entry.volume.as_ref().is_some_and(is_data));
    let id = data.expect("the volume is listed").listed.external_id.clone();
    let marked = std::process::Command::new(binary("berth-csi-dev"))
        .args(["provision", "--volume", &id, "--abnormal", "a disk fails", "--backend"])
        .arg(system.backend())
        .output()
        .unwrap();
    assert!(marked.status.success(), "{marked:?}");
    let subject = verb::VolumeExternal::subject(&Namespace::default());
    let registered = json!({"plugin": PLUGIN, "id": id});
    let registered: Externals = system.persist(&subject, &registered).await.unwrap();
    let [volume] = registered.volumes.as_slice() else { panic!("{registered:?}") };
    assert_eq!(volume.registration, Registration::Known);
    assert_eq!(volume.listed.abnormal.as_deref(), Some("a disk fails"), "{registered:?}");
    let is_get_called = || system.calls().iter().any(|call| call["rpc"] == "ControllerGetVolume");
    assert!(!is_get_called(), "a registered volume is searched in the list");
    system.provision("theirs");
    let theirs = json!({"plugin": PLUGIN, "id": "theirs"});
    let theirs: Externals = system.persist(&subject, &theirs).await.unwrap();
    assert_eq!(theirs.volumes.len(), 1, "{theirs:?}");
    assert!(is_get_called(), "an unregistered volume is requested alone");
    let none = json!({"plugin": PLUGIN, "id": "no-such"});
    let none: Externals = system.persist(&subject, &none).await.unwrap();
    assert!(none.volumes.is_empty(), "{none:?}");
}
