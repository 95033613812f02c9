//! What the log says of a call, and what it never says.

use std::collections::BTreeMap;
use std::fs;

use berth_csi::{Code, v1};
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use berth_csi_proxy::log::LogEntry;
use serde_json::json;
use v1::volume_capability::{AccessType, MountVolume};

use crate::request::{attach, detach, stage};
use crate::world::World;

const SECRET: &str = "hunter2-and-more";
const FLAG: &str = "credentials=/etc/hunter3";

fn secrets() -> BTreeMap<String, String> {
    [("password".to_owned(), SECRET.to_owned())].into()
}

fn with_flag(capability: Option<v1::VolumeCapability>) -> Option<v1::VolumeCapability> {
    let mount = MountVolume { mount_flags: vec![FLAG.to_owned()], ..MountVolume::default() };
    let access_type = Some(AccessType::Mount(mount));
    capability.map(|capability| v1::VolumeCapability { access_type, ..capability })
}

#[tokio::test]
async fn an_end_holds_everything_about_its_call() {
    let Some(world) = World::start("whole", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let request = attach("v", "n1", SingleNodeWriter);
    let answer = node.call(request.clone()).await.unwrap();
    let end = node.last_end();
    let trace = end.call.trace.clone().unwrap();
    assert_eq!((trace.trace_id.len(), trace.parent_span_id.len()), (32, 16));
    assert_eq!(end.call.volume_id.as_deref(), Some("v"));
    assert_eq!(end.answer["publish_context"], json!(answer.publish_context));
    assert_eq!(
        end.call.args,
        json!({
            "volume_id": "v",
            "node_id": "n1",
            "readonly": false,
            "volume_context": request.volume_context,
            "volume_capability": {
                "access_mode": {"mode": "SINGLE_NODE_WRITER"},
                "access_type": {"mount": {}},
            },
        })
    );
    let begun = node.entries().into_iter().find_map(|entry| match entry {
        LogEntry::Begin(begin) if begin.seq == end.seq => Some(begin),
        _ => None,
    });
    let begun = begun.unwrap();
    assert_eq!((begun.begin_us, begun.call), (end.begin_us, end.call));
    assert!(end.begin_us < end.end_us);
}

#[tokio::test]
async fn no_secret_and_no_mount_flag_is_ever_in_the_log() {
    let Some(world) = World::start("secrets", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let attached = v1::ControllerPublishVolumeRequest {
        secrets: secrets(),
        ..attach("v", "n1", SingleNodeWriter)
    };
    let context = node.call(attached).await.unwrap().publish_context;
    // A flag that cannot be honoured is refused, with a message that names its place.
    let path = node.staging("v");
    let staged = v1::NodeStageVolumeRequest {
        secrets: secrets(),
        ..stage("v", &path, SingleNodeWriter, &context)
    };
    let capability = with_flag(staged.volume_capability.clone());
    let flagged = v1::NodeStageVolumeRequest { volume_capability: capability, ..staged.clone() };
    node.refused(flagged, Code::InvalidArgument).await;
    node.call(staged).await.unwrap();
    // Whatever is done with these, they are logged.
    let capability = with_flag(attach("v", "n1", SingleNodeWriter).volume_capability);
    let create = v1::CreateVolumeRequest {
        name: "made".into(),
        secrets: secrets(),
        volume_capabilities: capability.into_iter().collect(),
        ..Default::default()
    };
    _ = node.call(create).await;
    let delete = v1::DeleteVolumeRequest { volume_id: "none".into(), secrets: secrets() };
    _ = node.call(delete).await;
    let detach = v1::ControllerUnpublishVolumeRequest { secrets: secrets(), ..detach("w", "n1") };
    _ = node.call(detach).await;

    let log = fs::read_to_string(node.log()).unwrap();
    assert!(!log.contains("hunter"), "{log}");
    for part in [r#""secrets":{"password":"***"}"#, r#""mount_flags":["***"]"#] {
        assert!(log.contains(part), "{part} in {log}");
    }
    let ends = node.entries().into_iter().filter(|entry| matches!(entry, LogEntry::End(_)));
    assert!(ends.count() >= 6, "{log}");
}
