//! Requests that are refused before anything is sent to a plugin, and creations that it refuses.

use berth_contract::code::Code;
use berth_contract::message::volume::Volumes;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::volume::storage::{OperationKind, Stage};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_gets_all_its_faults_and_writes_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let subject = "berth.v1.volume.create.default";
    for (size, word) in [
        (json!(0), "at least 1 byte"),
        (json!(-5), "less than 0"),
        (json!("-1GiB"), "less than 0"),
        (json!("10 monkeys"), "no size"),
        (json!(9_223_372_036_854_775_808_u64), "more than"),
        (json!("9EiB"), "more than"),
        (json!("9ZiB"), "no size"),
    ] {
        let document = json!({"id": "data", "size": size, "color": 1, "capability": []});
        let refused = system.ask::<Value>(subject, &document).await.unwrap_err();
        assert_eq!(refused.code, Code::BadInput, "{refused}");
        let text = format!("{refused} {:?}", refused.faults);
        for part in [word, "color", "class", "capability"] {
            assert!(text.contains(part), "{size}: {part} is missing in {text}");
        }
    }
    let unknown = json!({"size": "1MiB", "parameters": {"speed": "high"}});
    system.create("odd", unknown).await.unwrap();
    let failed = system.staged_as("odd", Stage::Failed).await;
    assert!(failed.failure.as_ref().unwrap().failure.message.contains("speed"), "{failed:?}");
    assert_eq!(failed.requested_bytes, Some(1 << 20));
    let status = system.volume_status("odd").await.unwrap();
    assert_eq!((status.external_id, status.health.healthy), (None, false));
    let subject = verb::VolumeList::subject(&Namespace::default());
    let listed: Volumes = system.persist(&subject, &json!({})).await.unwrap();
    let [stub] = listed.volumes.as_slice() else { panic!("{listed:?}") };
    assert_eq!((stub.healthy, stub.refused), (false, Some(OperationKind::Create)));
    let refused = system.run_refused("a", 0, "odd").await;
    assert_eq!(refused.code, Code::VolumeNotReady, "{refused}");
    system.stop("a").await;
    system.assert_known().await;
    system.deleted("odd").await;
    let gone = system.volume_status("data").await.unwrap_err();
    assert_eq!(gone.code, Code::NoSuchVolume, "nothing was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_plugin_cannot_do_is_refused_by_the_name_of_the_ability() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| {
        let abilities = ["create", "expand", "expand-node", "snapshot", "modify"];
        abilities.iter().flat_map(|name| ["--without".to_owned(), (*name).to_owned()]).collect()
    };
    let system = System::start(Options { nodes: 1, driver, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let cases = [
        (
            "berth.v1.volume.create.default",
            json!({"id": "new", "plugin": "csi-dev",
            "capability": [{"access": "single-node-writer"}]}),
            "CREATE_DELETE_VOLUME",
        ),
        ("berth.v1.volume.delete.default", json!({"id": "data"}), "CREATE_DELETE_VOLUME"),
        ("berth.v1.volume.expand.default", json!({"id": "data", "size": "1GiB"}), "EXPAND_VOLUME"),
        (
            "berth.v1.volume.modify.default",
            json!({"id": "data", "parameters": {"a": "b"}}),
            "MODIFY_VOLUME",
        ),
        (
            "berth.v1.snapshot.create.default",
            json!({"volumes": ["data"], "snapshot": "s"}),
            "CREATE_DELETE_SNAPSHOT",
        ),
    ];
    for (subject, mut body, ability) in cases {
        if body.get("plugin").is_some() {
            body["plugin"] = json!(berth_integration::PLUGIN);
        }
        let refused = system.ask::<Value>(subject, &body).await.unwrap_err();
        assert_eq!(refused.code, Code::PluginLacks, "{subject}: {refused}");
        assert!(refused.message.contains(ability), "{subject}: {refused}");
    }
    let calls = system.calls();
    let is_change = |call: &&Value| {
        call["rpc"]
            .as_str()
            .is_some_and(|rpc| rpc.contains("CreateVolume") || rpc.contains("Expand"))
    };
    assert_eq!(calls.iter().find(is_change), None, "nothing was sent");
}
