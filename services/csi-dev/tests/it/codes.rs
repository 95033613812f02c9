//! The codes that CSI has for what goes wrong, and messages that name it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use berth_csi::{Code, v1};
use berth_csi_dev::capability::AccessMode::{
    MultiNodeMultiWriter, SingleNodeMultiWriter, SingleNodeReaderOnly, SingleNodeWriter,
};
use v1::volume_capability::{AccessType, BlockVolume};

use crate::request::{
    Context, attach, capability, detach, publish, stage, unpublish, unstage, volume_context,
};
use crate::world::World;

#[tokio::test]
async fn every_missing_field_is_named_at_once() {
    let Some(world) = World::start("fields", &[]).await else { return };
    let node = &world.n1;
    let bad = Code::InvalidArgument;
    let named = |message: &str, fields: &[&str]| {
        for field in fields {
            assert!(message.contains(field), "{field} in {message}");
        }
    };
    let message = node.refused(v1::ControllerPublishVolumeRequest::default(), bad).await;
    named(&message, &["volume_id", "node_id", "volume_capability"]);
    let message = node.refused(v1::ControllerUnpublishVolumeRequest::default(), bad).await;
    named(&message, &["volume_id"]);
    let message = node.refused(v1::ValidateVolumeCapabilitiesRequest::default(), bad).await;
    named(&message, &["volume_id", "volume_capabilities"]);
    let message = node.refused(v1::NodeStageVolumeRequest::default(), bad).await;
    named(&message, &["volume_id", "staging_target_path", "volume_capability"]);
    let message = node.refused(v1::NodeUnstageVolumeRequest::default(), bad).await;
    named(&message, &["volume_id", "staging_target_path"]);
    let message = node.refused(v1::NodePublishVolumeRequest::default(), bad).await;
    named(&message, &["volume_id", "target_path", "volume_capability"]);
    let message = node.refused(v1::NodeUnpublishVolumeRequest::default(), bad).await;
    named(&message, &["volume_id", "target_path"]);
}

#[tokio::test]
async fn unknown_volumes_and_nodes() {
    let Some(world) = World::start("unknown", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let (nothing, unknown) = (Context::new(), Code::NotFound);
    let target = node.target("t");
    node.refused(attach("x", "n1", SingleNodeWriter), unknown).await;
    let message = node.refused(attach("v", "n9", SingleNodeWriter), unknown).await;
    assert!(message.contains("n9"), "{message}");
    node.refused(stage("x", &node.staging("x"), SingleNodeWriter, &nothing), unknown).await;
    node.refused(unstage("x", &node.staging("x")), unknown).await;
    node.refused(publish("x", ("/s", &target), SingleNodeWriter, &nothing), unknown).await;
    node.refused(unpublish("x", &target), unknown).await;
    // Known for certain to be nowhere attached.
    node.call(detach("x", "n1")).await.unwrap();
    node.call(detach("v", "n9")).await.unwrap();
}

#[tokio::test]
async fn done_already_but_otherwise() {
    let Some(world) = World::start("otherwise", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let (staging, target) = (node.staging("v"), node.target("t"));
    let context = world.stage(node, "v", SingleNodeWriter).await;
    let exists = Code::AlreadyExists;
    node.refused(attach("v", "n1", SingleNodeReaderOnly), exists).await;
    let mut readonly = attach("v", "n1", SingleNodeWriter);
    readonly.readonly = true;
    node.refused(readonly, exists).await;
    node.refused(stage("v", &staging, SingleNodeReaderOnly, &context), exists).await;

    let published = publish("v", (&staging, &target), SingleNodeWriter, &context);
    node.call(published.clone()).await.unwrap();
    let mut readonly = published;
    readonly.readonly = true;
    node.refused(readonly, exists).await;
    assert_eq!(world.rules_broken(), ["changed-in-place".to_owned()].into());
}

#[tokio::test]
async fn a_second_target_needs_a_mode_for_many() {
    let Some(world) = World::start("targets", &[]).await else { return };
    let node = &world.n1;
    for (volume, mode, allowed) in [
        ("one", SingleNodeWriter, false),
        ("many", SingleNodeMultiWriter, true),
        ("shared", MultiNodeMultiWriter, true),
    ] {
        world.provision(volume);
        let context = world.stage(node, volume, mode).await;
        let staging = node.staging(volume);
        let at = |name: &str| {
            let target = node.target(&format!("{volume}-{name}"));
            publish(volume, (&staging, &target), mode, &context)
        };
        node.call(at("a")).await.unwrap();
        if allowed {
            node.call(at("b")).await.unwrap();
        } else {
            let message = node.refused(at("b"), Code::FailedPrecondition).await;
            assert!(message.contains(&node.target("one-a")), "{message}");
        }
    }
    assert_eq!(world.rules_broken(), ["second-target".to_owned()].into());
}

#[tokio::test]
async fn contexts_have_to_be_passed_on() {
    let Some(world) = World::start("contexts", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let bad = Code::InvalidArgument;
    let staging = node.staging("v");

    let mut other = attach("v", "n1", SingleNodeWriter);
    other.volume_context = BTreeMap::from([("pool".to_owned(), "slow".to_owned())]);
    let message = node.refused(other.clone(), bad).await;
    assert!(message.contains("pool"), "{message}");
    // A CO's own keys do no harm.
    other.volume_context = volume_context();
    other.volume_context.insert("co/pod".into(), "x".into());
    let old = node.call(other).await.unwrap().publish_context;

    let nothing = Context::new();
    let message = node.refused(stage("v", &staging, SingleNodeWriter, &nothing), bad).await;
    assert!(message.contains("dev.berth/device"), "{message}");
    // Another attachment has another context.
    node.call(detach("v", "n1")).await.unwrap();
    let new = node.call(attach("v", "n1", SingleNodeWriter)).await.unwrap().publish_context;
    assert_ne!(old, new);
    node.refused(stage("v", &staging, SingleNodeWriter, &old), bad).await;
    node.call(stage("v", &staging, SingleNodeWriter, &new)).await.unwrap();
    let target = node.target("t");
    node.refused(publish("v", (&staging, &target), SingleNodeWriter, &old), bad).await;
    assert_eq!(world.rules_broken(), ["stale-publish-context".to_owned()].into());
}

#[tokio::test]
async fn the_attach_limit_of_a_node() {
    let Some(world) = World::start("limit", &["--max-volumes", "2"]).await else { return };
    for volume in ["a", "b", "c"] {
        world.provision(volume);
    }
    for volume in ["a", "b"] {
        world.n2.call(attach(volume, "n1", SingleNodeWriter)).await.unwrap();
    }
    let full = world.n2.refused(attach("c", "n1", SingleNodeWriter), Code::ResourceExhausted);
    let message = full.await;
    assert!(message.contains("node n1 has 2"), "{message}");
    world.n2.call(attach("b", "n1", SingleNodeWriter)).await.unwrap();
    world.n2.call(attach("c", "n2", SingleNodeWriter)).await.unwrap();
}

#[tokio::test]
async fn validation_confirms_only_what_later_calls_accept() {
    let Some(world) = World::start("validate", &[]).await else { return };
    world.provision("v");
    let request = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: "v".into(),
        volume_context: volume_context(),
        volume_capabilities: vec![capability(SingleNodeWriter)],
        ..Default::default()
    };
    let answer = world.n1.call(request.clone()).await.unwrap();
    let confirmed = answer.confirmed.unwrap();
    assert_eq!(confirmed.volume_capabilities, request.volume_capabilities);
    assert_eq!(confirmed.volume_context, request.volume_context);

    let mut block = request.clone();
    block.volume_capabilities[0].access_type = Some(AccessType::Block(BlockVolume {}));
    block.volume_context.clear();
    block.parameters.insert("tier".into(), "gold".into());
    let answer = world.n1.call(block.clone()).await.unwrap();
    assert!(answer.confirmed.is_none());
    for part in ["block", "pool", "tier"] {
        assert!(answer.message.contains(part), "{part} in {}", answer.message);
    }
    let unknown = v1::ValidateVolumeCapabilitiesRequest { volume_id: "x".into(), ..request };
    world.n1.refused(unknown, Code::NotFound).await;
    // And indeed.
    let mut attach = attach("v", "n1", SingleNodeWriter);
    attach.volume_capability = block.volume_capabilities.pop();
    world.n1.refused(attach, Code::InvalidArgument).await;
}

#[tokio::test]
async fn nothing_foreign_is_unmounted_or_removed() {
    let Some(world) = World::start("foreign", &[]).await else { return };
    world.provision("v");
    world.provision("w");
    let node = &world.n1;
    let context = world.stage(node, "v", SingleNodeWriter).await;
    let (staging, target) = (node.staging("v"), node.target("t"));
    let published = publish("v", (&staging, &target), SingleNodeWriter, &context);

    // Files where the target is to be: not ours to cover or to delete.
    fs::create_dir(&target).unwrap();
    fs::write(Path::new(&target).join("file"), "kept").unwrap();
    node.refused(published.clone(), Code::FailedPrecondition).await;
    node.refused(unpublish("v", &target), Code::FailedPrecondition).await;
    assert_eq!(fs::read_to_string(Path::new(&target).join("file")).unwrap(), "kept");
    fs::remove_file(Path::new(&target).join("file")).unwrap();
    // A refusal leaves nothing that would be in the way.
    node.call(published).await.unwrap();

    // Another volume's mount.
    fs::write(Path::new(&target).join("file"), "kept").unwrap();
    node.refused(unpublish("w", &target), Code::FailedPrecondition).await;
    node.refused(unstage("w", &staging), Code::FailedPrecondition).await;
    assert_eq!(fs::read_to_string(Path::new(&target).join("file")).unwrap(), "kept");

    // A mount that is in use, as long as it is.
    let used = fs::File::open(Path::new(&target).join("file")).unwrap();
    let message = node.refused(unpublish("v", &target), Code::Internal).await;
    assert!(message.contains("in use"), "{message}");
    drop(used);
    node.call(unpublish("v", &target)).await.unwrap();

    // Places that are none.
    for path in ["relative", "/", "/no/such/directory/target"] {
        let bad = publish("v", (&staging, path), SingleNodeWriter, &context);
        node.refused(bad, Code::InvalidArgument).await;
    }
    node.call(unpublish("v", "/no/such/directory/target")).await.unwrap();
}
