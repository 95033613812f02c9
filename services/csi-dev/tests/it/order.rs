//! What a CO must never do is refused, and found in the logs afterwards.

use berth_csi::{Code, Rpc, v1};
use berth_csi_dev::capability::AccessMode::{MultiNodeSingleWriter, SingleNodeWriter};
use berth_csi_proxy::faults::Fault;
use berth_csi_proxy::log::LogEntry;
use berth_harness::wait;
use berth_judge::{Finding, FindingKind};

use crate::request::{Context, attach, detach, publish, stage, unpublish, unstage};
use crate::world::{Node, TIMEOUT, World};

impl World {
    /// The rules that the judge finds broken. The driver has to have noticed each, and to agree.
    fn broken(&self) -> Vec<String> {
        let findings = self.findings();
        let agreed = |finding: &Finding| finding.noticed && finding.kind == FindingKind::Violation;
        assert!(findings.iter().all(agreed), "{findings:?}");
        findings.into_iter().map(|finding| finding.rule.name).collect()
    }
}

#[tokio::test]
async fn an_exclusive_volume_on_a_second_node() {
    let Some(world) = World::start("order", &[]).await else { return };
    world.provision("v");
    world.stage(&world.n1, "v", SingleNodeWriter).await;
    let refused = world.n2.refused(attach("v", "n2", SingleNodeWriter), Code::FailedPrecondition);
    let message = refused.await;
    assert!(message.contains("attached to n1"), "{message}");
    assert_eq!(world.broken(), ["exclusive-attach"]);
    let violation = world.n2.last_end().violation.unwrap();
    assert_eq!(serde_json::to_value(violation).unwrap(), "exclusive-attach");
}

#[tokio::test]
async fn an_exclusive_volume_on_a_second_node_without_a_controller() {
    let Some(world) = World::start("order", &["--no-controller"]).await else { return };
    world.provision("v");
    let nothing = Context::new();
    let stage_on = |node: &Node| stage("v", &node.staging("v"), SingleNodeWriter, &nothing);
    world.n1.call(stage_on(&world.n1)).await.unwrap();
    let refused = world.n2.refused(stage_on(&world.n2), Code::FailedPrecondition);
    let message = refused.await;
    assert!(message.contains("in use on n1"), "{message}");
    world.n1.call(unstage("v", &world.n1.staging("v"))).await.unwrap();
    world.n2.call(stage_on(&world.n2)).await.unwrap();
    assert_eq!(world.broken(), ["exclusive-use"]);
}

#[tokio::test]
async fn a_second_writer() {
    let Some(world) = World::start("order", &[]).await else { return };
    world.provision("v");
    world.n1.call(attach("v", "n1", MultiNodeSingleWriter)).await.unwrap();
    let second = attach("v", "n2", MultiNodeSingleWriter);
    world.n1.refused(second.clone(), Code::FailedPrecondition).await;
    let mut reader = second;
    reader.readonly = true;
    world.n1.call(reader).await.unwrap();
    assert_eq!(world.broken(), ["second-writer"]);
}

#[tokio::test]
async fn down_in_the_wrong_order() {
    let Some(world) = World::start("order", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let context = world.stage(node, "v", SingleNodeWriter).await;
    let (staging, target) = (node.staging("v"), node.target("t"));
    let published = publish("v", (&staging, &target), SingleNodeWriter, &context);
    node.call(published).await.unwrap();

    let message = node.refused(unstage("v", &staging), Code::FailedPrecondition).await;
    assert!(message.contains(&target), "{message}");
    for node_id in ["n1", ""] {
        let refused = world.n2.refused(detach("v", node_id), Code::FailedPrecondition);
        let message = refused.await;
        assert!(message.contains(&staging) && message.contains(&target), "{message}");
    }
    node.call(unpublish("v", &target)).await.unwrap();
    world.n2.refused(detach("v", "n1"), Code::FailedPrecondition).await;
    node.call(unstage("v", &staging)).await.unwrap();
    world.n2.call(detach("v", "n1")).await.unwrap();
    let detach = "detach-before-unstage";
    assert_eq!(world.broken(), ["unstage-before-unpublish", detach, detach, detach]);
}

#[tokio::test]
async fn up_in_the_wrong_order() {
    let Some(world) = World::start("order", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let (staging, target) = (node.staging("v"), node.target("t"));
    let stage_at = |path: &str, context: &Context| stage("v", path, SingleNodeWriter, context);
    let publish_from =
        |path: &str, context: &Context| publish("v", (path, &target), SingleNodeWriter, context);
    let nothing = Context::new();
    let early = Code::FailedPrecondition;
    node.refused(stage_at(&staging, &nothing), early).await;
    node.refused(publish_from(&staging, &nothing), early).await;
    let attached = node.call(attach("v", "n1", SingleNodeWriter)).await.unwrap();
    let context = attached.publish_context;
    node.refused(publish_from(&staging, &context), early).await;
    node.refused(publish_from("", &context), early).await;
    node.call(stage_at(&staging, &context)).await.unwrap();
    node.refused(stage_at(&node.staging("other"), &context), early).await;
    node.call(publish_from(&staging, &context)).await.unwrap();
    assert_eq!(
        world.broken(),
        [
            "node-call-before-attach",
            "node-call-before-attach",
            "publish-before-stage",
            "publish-before-stage",
            "second-staging-path"
        ]
    );
}

/// Waits until the call `rpc` has begun and not ended.
pub async fn begun(node: &Node, rpc: Rpc) {
    let what = format!("{rpc} is in flight");
    let look = async || {
        let entries = node.entries();
        let last_of_rpc = entries.iter().rev().find_map(|entry| match entry {
            LogEntry::Begin(begin) if begin.call.rpc == rpc => Some(true),
            LogEntry::End(end) if end.call.rpc == rpc => Some(false),
            _ => None,
        });
        if last_of_rpc == Some(true) { Ok(()) } else { Err(format!("{entries:?}")) }
    };
    wait::until(&what, TIMEOUT, look).await;
}

/// A delay that is long enough to look around in, whatever else the machine does.
pub fn delay(rpc: Rpc) -> Fault {
    Fault { rpc: Some(rpc), delay_ms: 3000, times: Some(1), ..Fault::default() }
}

#[tokio::test]
async fn two_controller_calls_at_once_at_two_instances() {
    let Some(world) = World::start("overlap", &[]).await else { return };
    world.provision("v");
    world.n1.plant(delay(Rpc::ControllerPublishVolume));
    let first = world.n1.call(attach("v", "n1", SingleNodeWriter));
    let second = async {
        begun(&world.n1, Rpc::ControllerPublishVolume).await;
        let message = world.n2.refused(detach("v", "n1"), Code::Aborted).await;
        assert!(message.contains("ControllerPublishVolume"), "{message}");
        // Another volume is not concerned.
        world.provision("w");
        world.n2.call(attach("w", "n1", SingleNodeWriter)).await.unwrap();
    };
    let (first, ()) = tokio::join!(first, second);
    first.unwrap();
    world.n2.call(detach("v", "n1")).await.unwrap();
    assert_eq!(world.broken(), ["overlapping-controller-calls"]);
}

#[tokio::test]
async fn a_group_snapshot_is_a_call_about_each_of_its_volumes() {
    let Some(world) = World::start("group-overlap", &[]).await else { return };
    for volume in ["v", "w", "x"] {
        world.provision(volume);
    }
    let group = |name: &str, volumes: &[&str]| v1::CreateVolumeGroupSnapshotRequest {
        name: name.to_owned(),
        source_volume_ids: volumes.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    world.n1.plant(delay(Rpc::CreateVolumeGroupSnapshot));
    let first = world.n1.call(group("g", &["v", "w"]));
    let other_calls = async {
        begun(&world.n1, Rpc::CreateVolumeGroupSnapshot).await;
        let message = world.n2.refused(detach("w", "n1"), Code::Aborted).await;
        assert!(message.contains("CreateVolumeGroupSnapshot"), "{message}");
        world.n2.refused(group("h", &["x", "v"]), Code::Aborted).await;
        // A refused group leaves its other volumes free.
        world.n2.call(attach("x", "n1", SingleNodeWriter)).await.unwrap();
    };
    let (first, ()) = tokio::join!(first, other_calls);
    first.unwrap();
    world.n1.plant(delay(Rpc::ControllerPublishVolume));
    let first = world.n1.call(attach("v", "n1", SingleNodeWriter));
    let second = async {
        begun(&world.n1, Rpc::ControllerPublishVolume).await;
        world.n2.refused(group("h", &["v", "w"]), Code::Aborted).await;
    };
    let (first, ()) = tokio::join!(first, second);
    first.unwrap();
    assert_eq!(world.broken(), ["overlapping-controller-calls"; 3]);
}

#[tokio::test]
async fn two_node_calls_at_once_and_a_detach_beside_one() {
    let Some(world) = World::start("overlap", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let attached = node.call(attach("v", "n1", SingleNodeWriter)).await.unwrap();
    let context = attached.publish_context;
    let staging = node.staging("v");
    node.plant(delay(Rpc::NodeStageVolume));
    let first = node.call(stage("v", &staging, SingleNodeWriter, &context));
    let other_calls = async {
        begun(node, Rpc::NodeStageVolume).await;
        node.refused(unstage("v", &staging), Code::Aborted).await;
        let refused = world.n2.refused(detach("v", "n1"), Code::FailedPrecondition);
        let message = refused.await;
        assert!(message.contains("NodeStageVolume"), "{message}");
    };
    let (first, ()) = tokio::join!(first, other_calls);
    first.unwrap();
    assert_eq!(world.broken(), ["detach-before-unstage", "overlapping-node-calls"]);
}

#[tokio::test]
async fn a_caller_that_left_may_call_again_and_is_told_to_wait() {
    let Some(world) = World::start("gone", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let attached = node.call(attach("v", "n1", SingleNodeWriter)).await.unwrap();
    let request = stage("v", &node.staging("v"), SingleNodeWriter, &attached.publish_context);
    node.plant(Fault { hang: true, delay_ms: 0, ..delay(Rpc::NodeStageVolume) });
    let (client, first) = (node.client.clone(), request.clone());
    let waiting = tokio::spawn(async move { client.call(first, TIMEOUT).await });
    let logged = async |what: &str, is: fn(&LogEntry) -> bool| {
        wait::until(what, TIMEOUT, async || {
            if node.entries().iter().any(is) { Ok(()) } else { Err("it is not in the log") }
        })
        .await;
    };
    logged(
        "the call has begun",
        |entry| matches!(entry, LogEntry::Begin(begin) if begin.call.rpc == Rpc::NodeStageVolume),
    )
    .await;
    waiting.abort();
    logged("its caller has left", |entry| matches!(entry, LogEntry::Gone(_))).await;
    // Its plugin still works on it: that is no fault of the CO's.
    node.refused(request.clone(), Code::Aborted).await;
    assert_eq!(node.last_end().violation, None);
    node.plant_nothing();
    wait::until("the first call has ended", TIMEOUT, async || {
        node.call(request.clone()).await.map_err(|error| error.to_string())
    })
    .await;
    let gone = node.entries().into_iter().filter(|entry| matches!(entry, LogEntry::Gone(_)));
    assert_eq!(gone.count(), 1);
    assert_eq!(world.mounts().len(), 1);
    assert_eq!(world.findings(), []);
}
