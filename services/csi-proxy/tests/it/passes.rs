//! Calls and answers are the same as without a proxy, and in its log.

use std::fs;
use std::process::Command;

use berth_csi::{Code, Rpc, v1};
use berth_csi_proxy::log::{CallEffect, LogEntry};
use berth_harness::root;
use berth_judge::judge_files;

use crate::world::{World, capability, create, delete};

const SECRET: &str = "hunter2-in-no-file";

#[tokio::test]
async fn the_life_of_a_volume_is_passed_on_and_judged() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let world = World::start("life", &[]).await;
    let started = world.entries().remove(0);
    let LogEntry::Start(started) = started else { panic!("{started:?}") };
    assert_eq!((&*started.source.node_id, started.foreign), ("n1", true));
    assert_eq!((started.attach, started.stage), (false, true), "as the driver says");

    let secrets = [("key".to_owned(), SECRET.to_owned())];
    let request = v1::CreateVolumeRequest { secrets: secrets.clone().into(), ..create("data") };
    let volume = world.call(request).await.unwrap().volume.unwrap();
    let staging = world.dir.path().join("staging");
    fs::create_dir(&staging).unwrap();
    let staging = staging.to_str().unwrap().to_owned();
    let target = world.dir.path().join("target").to_str().unwrap().to_owned();
    let stage = v1::NodeStageVolumeRequest {
        volume_id: volume.volume_id.clone(),
        staging_target_path: staging.clone(),
        volume_capability: Some(capability()),
        volume_context: volume.volume_context.clone(),
        secrets: secrets.into(),
        ..Default::default()
    };
    world.call(stage).await.unwrap();
    let publish = v1::NodePublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        staging_target_path: staging.clone(),
        target_path: target.clone(),
        volume_capability: Some(capability()),
        volume_context: volume.volume_context.clone(),
        ..Default::default()
    };
    world.call(publish).await.unwrap();
    let published = world.last_end();
    assert_eq!(published.kernel.unwrap()[1].mounts.len(), 1, "the kernel was asked");
    let unpublish =
        v1::NodeUnpublishVolumeRequest { volume_id: volume.volume_id.clone(), target_path: target };
    world.call(unpublish).await.unwrap();
    let unstage = v1::NodeUnstageVolumeRequest {
        volume_id: volume.volume_id.clone(),
        staging_target_path: staging,
    };
    world.call(unstage).await.unwrap();
    world.call(delete(&volume.volume_id)).await.unwrap();
    assert_eq!(judge_files(&[world.log()]).unwrap(), []);
    let text = fs::read_to_string(world.log()).unwrap();
    assert!(text.contains("data") && !text.contains(SECRET), "{text}");
}

#[tokio::test]
async fn errors_keep_their_code_and_text() {
    let world = World::start("errors", &[]).await;
    let message = world.refused(create(""), Code::InvalidArgument).await;
    assert!(message.contains("missing: name"), "{message}");
    let end = world.last_end();
    let outcome = (end.call.rpc, end.code, end.effect);
    assert_eq!(outcome, (Rpc::CreateVolume, Code::InvalidArgument, CallEffect::None));
    assert!(message.contains(&end.message), "{message} and {}", end.message);
    // A call that the driver does not offer.
    let attach = v1::ControllerPublishVolumeRequest::default();
    world.refused(attach, Code::Unimplemented).await;
}

/// The judge finds the CO's mistakes even if the driver allows them.
#[tokio::test]
async fn a_rule_that_is_broken_is_found_in_the_log_of_the_proxy() {
    let world = World::start("broken", &["--lenient"]).await;
    let volume = world.call(create("data")).await.unwrap().volume.unwrap();
    let expand = |bytes| v1::ControllerExpandVolumeRequest {
        volume_id: volume.volume_id.clone(),
        capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        ..Default::default()
    };
    world.call(expand(3 << 30)).await.unwrap();
    _ = world.call(expand(2 << 30)).await;
    let findings = judge_files(&[world.log()]).unwrap();
    let rules: Vec<_> = findings.iter().map(|finding| &*finding.rule.name).collect();
    assert_eq!(rules, ["smaller-expansion"]);
    let mut judge = Command::new(env!("CARGO_BIN_EXE_berth-csi-proxy"));
    let judged = judge.arg("judge").arg(world.log()).output().unwrap();
    let printed = String::from_utf8(judged.stdout).unwrap();
    assert!(judged.status.code() == Some(1) && printed.contains("smaller-expansion"), "{printed}");
}
