//! Answers that are slightly wrong, or unusual and right: the volumes are used anyway.

use berth_domain::plugin::Half;
use berth_harness::root::or_skip;
use berth_integration::Options;
use serde_json::json;

use super::{
    await_instance, call_count, is_showable, one_node, provision, register, try_register, use_with,
};

#[tokio::test(flavor = "multi_thread")]
async fn capabilities_and_modes_of_a_later_csi() {
    if or_skip("real mounts") {
        let planted = Some(r#"[{"wrong": "unknown-enum"}]"#);
        use_with(Options { planted, ..one_node() }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_not_said_and_topology_is_empty() {
    if !or_skip("real mounts") {
        return;
    }
    let planted = Some(r#"[{"rpc": "Probe", "wrong": "no-ready"}, {"wrong": "empty-topology"}]"#);
    let driver: fn(usize) -> Vec<String> = |_| vec!["--topology=zone=a".to_owned()];
    let system = use_with(Options { planted, driver, ..one_node() }).await;
    // A volume with a topology needs a node that reports one.
    provision(&system, "placed", &[]);
    register(&system, "placed", json!({"topology": [{"zone": "a"}]})).await.unwrap();
    system.alloc("a", 0, "placed", false).await;
    let refused = system.mount("a", 0, "placed").await.unwrap_err();
    assert!(refused.message.contains("no topology that its plugin tells of"), "{refused}");
    system.stop("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn constraints_are_claimed_and_no_topology_is_told() {
    if or_skip("real mounts") {
        let planted = Some(r#"[{"wrong": "no-topology"}]"#);
        let driver: fn(usize) -> Vec<String> = |_| vec!["--topology=zone=a".to_owned()];
        use_with(Options { planted, driver, ..one_node() }).await;
    }
}

/// CSI requires these calls of every plugin, and many plugins lack them. An absent answer counts as
/// empty, and another call is used where one exists.
#[tokio::test(flavor = "multi_thread")]
async fn required_calls_are_not_offered() {
    if !or_skip("real mounts") {
        return;
    }
    let planted = Some(
        r#"[{"rpc": "GetPluginCapabilities", "code": "UNIMPLEMENTED"},
            {"rpc": "Probe", "code": "UNIMPLEMENTED"},
            {"rpc": "NodeGetCapabilities", "code": "UNIMPLEMENTED"},
            {"rpc": "ValidateVolumeCapabilities", "code": "UNIMPLEMENTED"}]"#,
    );
    let system = use_with(Options { planted, stage: false, ..one_node() }).await;
    assert_eq!(call_count(&system, 0, "ControllerPublishVolume"), 1, "the controller was called");
}

/// A plugin that lists a controller and does not report its capabilities may run it elsewhere. Its
/// volumes wait, and each caller gets the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_does_not_say_what_it_can_do() {
    let planted = Some(r#"[{"rpc": "ControllerGetCapabilities", "code": "UNIMPLEMENTED"}]"#);
    let options = Options { planted, healthy: Some((1, 0)), ..one_node() };
    let system = berth_integration::System::start(options).await;
    provision(&system, "data", &[]);
    let refused = try_register(&system, "data", json!({})).await.unwrap_err();
    assert!(refused.message.contains("no healthy controller"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_that_does_not_say_of_what() {
    if or_skip("real mounts") {
        let planted =
            Some(r#"[{"rpc": "ValidateVolumeCapabilities", "wrong": "no-capabilities"}]"#);
        use_with(Options { planted, ..one_node() }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attaching_tells_the_node_nothing() {
    if or_skip("real mounts") {
        let driver: fn(usize) -> Vec<String> = |_| vec!["--no-publish-context".to_owned()];
        use_with(Options { driver, ..one_node() }).await;
    }
}

/// A hundred entries in each map; texts of 64 KiB with line breaks, control characters and text
/// that resembles passwords.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_talks_much() {
    if !or_skip("real mounts") {
        return;
    }
    let planted = Some(r#"[{"wrong": "chatty"}]"#);
    let system = use_with(Options { planted, ..one_node() }).await;
    let node = await_instance(&system, "n1", Half::Node, |node| node["healthy"] == true).await;
    for field in ["version", "description"] {
        let text = node[field].as_str().unwrap();
        assert!(!text.is_empty() && is_showable(text), "{field}: {text:?}");
    }
    let unknown = try_register(&system, "unknown", json!({})).await.unwrap_err();
    assert!(unknown.message.contains("NOT_FOUND"), "the error keeps the code: {unknown}");
    assert!(is_showable(&unknown.message), "{}: {unknown:?}", unknown.message.len());
}

/// Every answer takes seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_takes_its_time() {
    if or_skip("real mounts") {
        let planted = Some(r#"[{"delay_ms": 1500}]"#);
        use_with(Options { planted, call_timeout_ms: 20_000, ..one_node() }).await;
    }
}
