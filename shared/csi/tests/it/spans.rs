//! The span of a call: the plugin may continue it, and it has ids and codes only.

use std::time::Duration;

use berth_contract::trace::TraceContext;
use berth_csi::{Client, v1};
use berth_harness::otlp::Collector;
use berth_telemetry::{Identity, Kind, Protocol, Span, TelemetryConfig};

use crate::plugin::{Script, Stage};

const AMPLE: Duration = Duration::from_secs(20);

fn stage() -> v1::NodeStageVolumeRequest {
    v1::NodeStageVolumeRequest {
        volume_id: "vol-1".into(),
        secrets: [("password".into(), "hunter2".into())].into(),
        volume_context: [("server".into(), "a-parameter".into())].into(),
        ..v1::NodeStageVolumeRequest::default()
    }
}

#[tokio::test]
async fn a_call_is_a_step_of_its_trace_for_the_collector_and_for_the_plugin() {
    let collector = Collector::start().await;
    let identity = Identity {
        service: "csi-test".to_owned(),
        version: "0".to_owned(),
        instance: "1".to_owned(),
        host: "here".to_owned(),
    };
    let config = TelemetryConfig {
        endpoint: Some(collector.http()),
        protocol: Some(Protocol::Http),
        metrics_listen: None,
    };
    let telemetry = berth_telemetry::start(&identity, &config, None).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let stage_fails = Stage::Fails(tonic::Code::NotFound, "no hunter2, no a-parameter".into());
    let script = Script { node: Some(vec![]), stage: stage_fails, ..Script::default() };
    let parents = script.traces.clone();
    let _plugin = script.serve(&socket);
    let client = Client::new(&socket);

    let mount = Span::root("mount", Kind::Internal);
    let traced = client.traced(mount.context());
    traced.call(v1::GetPluginInfoRequest {}, AMPLE).await.unwrap();
    traced.call(stage(), AMPLE).await.unwrap_err();
    // A probe belongs to no trace.
    client.call(stage(), AMPLE).await.unwrap_err();
    let trace = mount.context().trace_id();
    mount.end();
    telemetry.end(Duration::from_secs(3)).await;

    let spans = collector.spans();
    assert_eq!(
        spans.tree(),
        "mount\n  csi.v1.Identity/GetPluginInfo\n  csi.v1.Node/NodeStageVolume ! NOT_FOUND\n"
    );
    let call = &spans.named("csi.v1.Node/NodeStageVolume").0[0];
    for (key, value) in [
        ("rpc.system.name", "grpc"),
        ("rpc.method", "csi.v1.Node/NodeStageVolume"),
        ("rpc.response.status_code", "NOT_FOUND"),
        ("error.type", "NOT_FOUND"),
        ("berth.external_id", "vol-1"),
    ] {
        assert_eq!(call.get(key), Some(value), "{key}");
    }
    let parents = parents.lock().unwrap().clone();
    assert_eq!(parents[0], format!("00-{trace}-{}-01", call.id));
    let untold = TraceContext::parse(&parents[1]).unwrap();
    assert!(!untold.sampled() && untold.trace_id() != trace, "{untold}");
    // Safety 6.
    assert!(!collector.mentions("hunter2") && !collector.mentions("a-parameter"));
    let calls = collector.metrics("berth.plugin.calls").pop().unwrap();
    let codes: Vec<&str> = calls.points.iter().map(|point| &*point.labels["code"]).collect();
    assert!(codes.contains(&"OK") && codes.contains(&"NOT_FOUND"), "{calls:?}");
}
