//! Names and numbers at the edge of what CSI allows, and beyond.

use berth_contract::code::Code;
use berth_domain::plugin::Half;
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::{Value, json};

use super::{await_instance, await_rest, one_node, provision, register, use_on, use_with};

/// 192 bytes, with dots, spaces, slashes and letters that are not ASCII.
fn odd_node(node: usize) -> String {
    let start = format!("projects/p 1/zones/eu.west-{node}a/ü.");
    let rest = 192 - start.len();
    format!("{start}{}", "n".repeat(rest))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_id_of_192_bytes_with_dots_spaces_and_slashes() {
    if !or_skip("real mounts") {
        return;
    }
    let system = use_with(Options { external_node: odd_node, ..one_node() }).await;
    assert_eq!(odd_node(0).len(), 192);
    let attached = system
        .calls()
        .into_iter()
        .find(|call| call["entry"] == "begin" && call["rpc"] == "ControllerPublishVolume");
    assert_eq!(attached.unwrap()["node_id"], odd_node(0), "the plugin gets the id unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_id_of_128_bytes_with_slashes_and_spaces() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(one_node()).await;
    let start = "nfs.example#/exports/team a/../x#".to_owned();
    let external = format!("{start}{}", "v".repeat(128 - start.len()));
    provision(&system, &external, &[]);
    register(&system, "data", json!({"external_id": external})).await.unwrap();
    use_on(&system, 0, "data").await;
}

/// CSI forbids a negative limit. We treat it as no limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_volumes_that_is_none() {
    if !or_skip("real mounts") {
        return;
    }
    let planted = Some(r#"[{"wrong": "negative-limit"}]"#);
    let system = use_with(Options { planted, ..one_node() }).await;
    let node = await_instance(&system, "n1", Half::Node, |node| node["healthy"] == true).await;
    assert!(node["abilities"]["max_volumes"].is_null(), "{node}");
}

/// The limit may have changed while the driver runs, and may be another one than the plugin keeps.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_answers_that_it_is_full_gets_no_other_volume_and_is_asked_for_its_limit() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { max_volumes: 3, ..one_node() }).await;
    for volume in ["a", "b"] {
        provision(&system, volume, &[]);
        register(&system, volume, json!({})).await.expect("the volume is registered");
        system.alloc(&format!("of-{volume}"), 0, volume, false).await;
    }
    await_instance(&system, "n1", Half::Node, |node| node["abilities"]["max_volumes"] == 3).await;
    system.plant(
        0,
        &json!([
            {"rpc": "NodeStageVolume", "volume": "a", "code": "RESOURCE_EXHAUSTED"},
            {"rpc": "NodeGetInfo", "wrong": "negative-limit"},
        ]),
    );
    system.try_mount("of-a", 0, "a").await.expect_err("the plugin has no room");
    let is_full = |node: &Value| {
        let why = node["abilities"]["full"].as_str().unwrap_or_default();
        why.contains("RESOURCE_EXHAUSTED") && node["abilities"]["max_volumes"].is_null()
    };
    await_instance(&system, "n1", Half::Node, is_full).await;
    let refused = system.try_mount("of-b", 0, "b").await.unwrap_err();
    assert_eq!(refused.code, Code::NodeFull, "{refused}");
    assert!(refused.message.contains("RESOURCE_EXHAUSTED"), "the plugin's words: {refused}");
    system.plant(0, &json!([]));
    for alloc in ["of-a", "of-b"] {
        system.stop(alloc).await;
    }
    await_rest(&system, "a").await;
    let has_room = |node: &Value| node["abilities"]["full"].is_null();
    await_instance(&system, "n1", Half::Node, has_room).await;
    use_on(&system, 0, "b").await;
}

/// A volume context with many entries, each of which is repeated in every call.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_context_of_a_hundred_entries() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(one_node()).await;
    let entries: Vec<(String, String)> =
        (0..100).map(|number| (format!("k/{number}"), format!("value {number}"))).collect();
    let args: Vec<String> = entries
        .iter()
        .flat_map(|(key, value)| ["--context".to_owned(), format!("{key}={value}")])
        .collect();
    provision(&system, "data", &args.iter().map(String::as_str).collect::<Vec<_>>());
    let context: serde_json::Map<_, _> =
        entries.into_iter().map(|(key, value)| (key, json!(value))).collect();
    register(&system, "data", json!({"context": context})).await.unwrap();
    use_on(&system, 0, "data").await;

    let wide: serde_json::Map<_, _> =
        (0..100).map(|number| (format!("k{number}"), json!("x".repeat(100)))).collect();
    let refused = register(&system, "wide", json!({"context": wide})).await.unwrap_err();
    assert_eq!(refused.code, Code::BadInput, "{refused}");
    assert_eq!(refused.faults[0].path, "context");
}
