//! SIGKILL at any point, and what the next call makes of it.

use std::fs;
use std::future::Future;
use std::path::Path;

use berth_csi::{CallError, Code, Rpc};
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use berth_csi_proxy::faults::{Fault, FaultMark, FaultSide};
use berth_csi_proxy::log::LogEntry;
use berth_harness::wait;
use nix::mount::{MntFlags, umount2};

use crate::order::{begun, delay};
use crate::request::{Context, attach, detach, publish, stage, unpublish, unstage};
use crate::world::{Node, TIMEOUT, World};

/// Makes `call`, kills the instance in its midst, starts it again, and makes the call again.
async fn killed<T: std::fmt::Debug, F: Future<Output = Result<T, CallError>>>(
    node: &Node,
    rpc: Rpc,
    when: FaultSide,
    call: impl Fn() -> F,
) -> T {
    node.plant(Fault { when, ..delay(rpc) });
    let kill = async {
        begun(node, rpc).await;
        if when == FaultSide::After {
            worked(node, rpc).await;
        }
        node.daemon.kill9();
    };
    let (broken, ()) = tokio::join!(call(), kill);
    broken.unwrap_err();
    let last = node.entries().pop().unwrap();
    assert!(matches!(last, LogEntry::Begin(begin) if begin.call.rpc == rpc), "seen in the log");

    node.plant_nothing();
    node.crash().await;
    call().await.unwrap()
}

/// Waits until the call in flight has done its work, and only its delay is left.
async fn worked(node: &Node, rpc: Rpc) {
    let backend = node.backend();
    let is_worked = async || {
        let state = backend.volume("v").unwrap().unwrap().read_state().unwrap();
        let staged = state.staged_on("n1").map(|staged| staged.settled);
        let targets = state.on("n1").map(|on| on.published.values().any(|target| target.settled));
        let is_done = match rpc {
            Rpc::ControllerPublishVolume => !state.attachments.is_empty(),
            Rpc::ControllerUnpublishVolume => state.attachments.is_empty(),
            Rpc::NodeStageVolume => staged == Some(true),
            Rpc::NodeUnstageVolume => staged.is_none(),
            Rpc::NodePublishVolume => targets == Some(true),
            Rpc::NodeUnpublishVolume => state.targets_on("n1").is_empty(),
            _ => true,
        };
        if is_done { Ok(()) } else { Err(format!("{state:?}")) }
    };
    wait::until(&format!("{rpc} has done its work"), TIMEOUT, is_worked).await;
}

#[tokio::test]
async fn every_call_survives_being_killed_before_and_after_its_work() {
    for when in [FaultSide::Before, FaultSide::After] {
        let Some(world) = World::start("killed", &[]).await else { return };
        world.provision("v");
        let node = &world.n1;
        let (staging, target) = (&*node.staging("v"), &*node.target("t"));
        let attached = killed(node, Rpc::ControllerPublishVolume, when, || {
            node.call(attach("v", "n1", SingleNodeWriter))
        });
        let context = &attached.await.publish_context;
        killed(node, Rpc::NodeStageVolume, when, || {
            node.call(stage("v", staging, SingleNodeWriter, context))
        })
        .await;
        killed(node, Rpc::NodePublishVolume, when, || {
            node.call(publish("v", (staging, target), SingleNodeWriter, context))
        })
        .await;
        assert_eq!(world.mounts().len(), 2, "{:?}", world.mounts());
        fs::write(Path::new(target).join("file"), "x").unwrap();
        killed(node, Rpc::NodeUnpublishVolume, when, || node.call(unpublish("v", target))).await;
        killed(node, Rpc::NodeUnstageVolume, when, || node.call(unstage("v", staging))).await;
        killed(node, Rpc::ControllerUnpublishVolume, when, || node.call(detach("v", "n1"))).await;
        assert!(world.mounts().is_empty() && !Path::new(target).exists());
        assert_eq!(world.findings(), []);
    }
}

/// A volume that is published on n1, and its instance dead.
async fn published_and_killed(world: &World) -> (String, String, Context) {
    world.provision("v");
    let node = &world.n1;
    let (staging, target) = (node.staging("v"), node.target("t"));
    let context = world.stage(node, "v", SingleNodeWriter).await;
    let request = publish("v", (&staging, &target), SingleNodeWriter, &context);
    node.call(request).await.unwrap();
    node.daemon.kill9();
    (staging, target, context)
}

#[tokio::test]
async fn killed_between_a_mount_and_its_note() {
    let Some(world) = World::start("between", &[]).await else { return };
    let (staging, target, context) = published_and_killed(&world).await;
    // As if killed a moment earlier: mounted, and not yet noted that it is.
    let volume = world.backend().volume("v").unwrap().unwrap();
    let locked = volume.lock().unwrap();
    let mut state = locked.state().unwrap();
    let on = state.nodes.get_mut("n1").unwrap();
    on.published.values_mut().for_each(|published| published.settled = false);
    on.staged.as_mut().unwrap().settled = false;
    locked.save(&state).unwrap();
    drop(locked);

    let node = &world.n1;
    node.crash().await;
    // What may be there counts as there.
    world.n2.refused(detach("v", "n1"), Code::FailedPrecondition).await;
    node.refused(unstage("v", &staging), Code::FailedPrecondition).await;
    node.call(unpublish("v", &target)).await.unwrap();
    node.call(stage("v", &staging, SingleNodeWriter, &context)).await.unwrap();
    let request = publish("v", (&staging, &target), SingleNodeWriter, &context);
    node.call(request).await.unwrap();
    assert_eq!(world.mounts().len(), 2, "{:?}", world.mounts());
}

#[tokio::test]
async fn mounts_without_notes_are_undone_all_the_same() {
    let Some(world) = World::start("unnoted", &[]).await else { return };
    let (staging, target, _) = published_and_killed(&world).await;
    let volume = world.backend().volume("v").unwrap().unwrap();
    let locked = volume.lock().unwrap();
    let mut state = locked.state().unwrap();
    state.nodes.clear();
    locked.save(&state).unwrap();
    drop(locked);

    world.n1.crash().await;
    world.n1.call(unpublish("v", &target)).await.unwrap();
    world.n1.call(unstage("v", &staging)).await.unwrap();
    assert!(world.mounts().is_empty() && !Path::new(&target).exists());
}

#[tokio::test]
async fn after_a_reboot_nothing_is_staged() {
    let Some(world) = World::start("reboot", &[]).await else { return };
    let (staging, target, context) = published_and_killed(&world).await;
    for path in [&target, &staging] {
        umount2(Path::new(path), MntFlags::empty()).unwrap();
    }
    world.n1.crash().await;
    // The volume is still attached, and can be used again, or be detached at once.
    let request = stage("v", &staging, SingleNodeWriter, &context);
    world.n1.call(request).await.unwrap();
    world.n1.call(unstage("v", &staging)).await.unwrap();
    world.n2.call(detach("v", "n1")).await.unwrap();
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn a_stage_that_was_unmounted_by_hand_is_not_taken_for_one() {
    let Some(world) = World::start("by-hand", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let (staging, target) = (node.staging("v"), node.target("t"));
    let context = world.stage(node, "v", SingleNodeWriter).await;
    umount2(Path::new(&staging), MntFlags::empty()).unwrap();
    let request = publish("v", (&staging, &target), SingleNodeWriter, &context);
    let message = node.refused(request.clone(), Code::FailedPrecondition).await;
    assert!(message.contains("NodeStageVolume again"), "{message}");
    node.call(stage("v", &staging, SingleNodeWriter, &context)).await.unwrap();
    node.call(request).await.unwrap();
    // The CO did nothing wrong.
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn planted_answers_are_given_as_often_as_told() {
    let Some(world) = World::start("planted", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let request = attach("v", "n1", SingleNodeWriter);
    let fault = Fault {
        rpc: Some(Rpc::ControllerPublishVolume),
        volume: Some("v".into()),
        code: Some(Code::Unavailable),
        times: Some(2),
        ..Fault::default()
    };
    node.plant(fault.clone());
    for _ in 0..2 {
        node.refused(request.clone(), Code::Unavailable).await;
    }
    let attached =
        || world.backend().volume("v").unwrap().unwrap().read_state().unwrap().attachments;
    assert!(attached().is_empty(), "nothing was done");
    assert_eq!(node.last_end().fault, Some(FaultMark::Before));
    node.plant(Fault { when: FaultSide::After, times: Some(1), ..fault });
    node.refused(request.clone(), Code::Unavailable).await;
    assert!(attached().contains_key("n1"), "it was done");
    assert_eq!(node.last_end().fault, Some(FaultMark::After));
    node.call(request).await.unwrap();
}

#[tokio::test]
async fn sigterm_lets_running_calls_end() {
    let Some(world) = World::start("drain", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    node.plant(delay(Rpc::ControllerPublishVolume));
    let terminate = async {
        begun(node, Rpc::ControllerPublishVolume).await;
        node.daemon.terminate().await
    };
    let (attached, status) =
        tokio::join!(node.call(attach("v", "n1", SingleNodeWriter)), terminate);
    attached.unwrap();
    assert!(status.success(), "{status}");
    assert!(!node.socket().exists());
}
