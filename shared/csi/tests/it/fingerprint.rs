//! Identifying plugins of every shape.

use std::path::PathBuf;
use std::time::Duration;

use berth_csi::advertised::{ControllerCapabilities, NodeCapabilities};
use berth_csi::{Class, Client, Code, Fingerprint, IdentifyError, Remedy, identify, v1};

use crate::plugin::Script;

const AMPLE: Duration = Duration::from_secs(20);

const CONTROLLER_SERVICE: i32 = 1;
const PUBLISH_UNPUBLISH_VOLUME: i32 = 2;
const STAGE_UNSTAGE_VOLUME: i32 = 1;
/// A number of a future CSI.
const NEWER: i32 = 4711;

async fn identify_script(script: Script) -> Result<Fingerprint, IdentifyError> {
    let dir = tempfile::tempdir().unwrap();
    let socket: PathBuf = dir.path().join("csi.sock");
    let _plugin = script.serve(&socket);
    identify(&Client::new(&socket), AMPLE).await
}

fn node_info() -> v1::NodeGetInfoResponse {
    v1::NodeGetInfoResponse {
        node_id: "node-1".into(),
        max_volumes_per_node: 16,
        accessible_topology: Some(v1::Topology { segments: [("zone".into(), "z1".into())].into() }),
    }
}

#[tokio::test]
async fn a_plugin_with_everything() {
    let script = Script {
        services: vec![CONTROLLER_SERVICE, NEWER],
        ready: Some(true),
        controller: Some(vec![NEWER, PUBLISH_UNPUBLISH_VOLUME]),
        node: Some(vec![STAGE_UNSTAGE_VOLUME, NEWER]),
        node_info: Some(node_info()),
        ..Script::default()
    };
    let fingerprint = identify_script(script).await.unwrap();
    assert_eq!((fingerprint.name.as_str(), fingerprint.vendor_version.as_str()), ("test.csi", "1"));
    assert!(fingerprint.services.controller_service);
    assert!(!fingerprint.services.volume_accessibility_constraints);
    let controller = ControllerCapabilities {
        publish_unpublish_volume: true,
        ..ControllerCapabilities::default()
    };
    assert_eq!(fingerprint.controller, Some(controller));
    let node = fingerprint.node.unwrap();
    assert_eq!(node.node_id.as_deref(), Some("node-1"));
    assert_eq!(node.max_volumes, Some(16));
    assert_eq!(node.topology, [("zone".to_owned(), "z1".to_owned())].into());
    let capabilities =
        NodeCapabilities { stage_unstage_volume: true, ..NodeCapabilities::default() };
    assert_eq!(node.capabilities, capabilities);
}

#[tokio::test]
async fn a_node_instance_of_a_plugin_whose_controller_runs_elsewhere() {
    let script = Script {
        services: vec![CONTROLLER_SERVICE],
        node: Some(vec![]),
        node_info: Some(node_info()),
        ..Script::default()
    };
    let fingerprint = identify_script(script).await.unwrap();
    assert!(fingerprint.services.controller_service);
    assert_eq!(fingerprint.controller, None);
    assert_eq!(fingerprint.node.unwrap().node_id.as_deref(), Some("node-1"));
}

#[tokio::test]
async fn a_controller_instance_without_node() {
    let script = Script {
        services: vec![CONTROLLER_SERVICE],
        controller: Some(vec![]),
        ..Script::default()
    };
    let fingerprint = identify_script(script).await.unwrap();
    assert_eq!(fingerprint.controller, Some(ControllerCapabilities::default()));
    assert_eq!(fingerprint.node, None);
}

#[tokio::test]
async fn a_controller_that_is_not_advertised_is_not_asked() {
    let script = Script { controller: Some(vec![1]), ..Script::default() };
    assert_eq!(identify_script(script).await.unwrap().controller, None);
}

#[tokio::test]
async fn a_node_that_sets_no_limit_and_has_no_place() {
    for max_volumes_per_node in [0, -1] {
        let info = v1::NodeGetInfoResponse { max_volumes_per_node, ..Default::default() };
        let script = Script { node: Some(vec![]), node_info: Some(info), ..Script::default() };
        let node = identify_script(script).await.unwrap().node.unwrap();
        assert_eq!((node.node_id, node.max_volumes), (None, None));
        assert!(node.topology.is_empty());
    }
}

#[tokio::test]
async fn a_node_may_lack_node_get_info() {
    let script = Script { node: Some(vec![STAGE_UNSTAGE_VOLUME]), ..Script::default() };
    let node = identify_script(script).await.unwrap().node.unwrap();
    assert_eq!(node.node_id, None);
    assert!(node.capabilities.stage_unstage_volume);
}

#[tokio::test]
async fn a_plugin_that_still_starts_is_told_from_a_sick_one() {
    let starting = Script { ready: Some(false), ..Script::default() };
    let error = identify_script(starting).await.unwrap_err();
    assert!(
        matches!(&error, IdentifyError::Starting { name, .. } if name == "test.csi"),
        "{error}"
    );

    let sick = Script { sick: true, ..Script::default() };
    let error = identify_script(sick).await.unwrap_err();
    let IdentifyError::Call(call) = &error else { panic!("{error}") };
    assert_eq!(call.code(), Some(Code::FailedPrecondition));
    assert_eq!(call.class(), Class::Retry(Remedy::HealPlugin));
    assert!(error.to_string().contains("Probe on /"), "{error}");
}

#[tokio::test]
async fn a_plugin_without_a_usable_name_is_refused() {
    for name in ["", "a\nb"] {
        let mut script = Script::default();
        script.info.name = name.into();
        let error = identify_script(script).await.unwrap_err();
        assert!(matches!(error, IdentifyError::Name { .. }), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn an_answer_beyond_the_limits_of_csi_is_refused() {
    let mut wordy = node_info();
    wordy.node_id = "x".repeat(257);
    let mut scattered = node_info();
    let segments = (0..1000).map(|n| (format!("{n:04}"), "x".to_owned())).collect();
    scattered.accessible_topology = Some(v1::Topology { segments });
    for info in [wordy, scattered] {
        let script = Script { node: Some(vec![]), node_info: Some(info), ..Script::default() };
        let error = identify_script(script).await.unwrap_err();
        assert!(matches!(error, IdentifyError::Oversized { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_socket_where_nobody_answers_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let timeout = Duration::from_millis(200);
    let error = identify(&Client::new(&socket), timeout).await.unwrap_err();
    assert!(error.to_string().contains("no answer within"), "{error}");
}
