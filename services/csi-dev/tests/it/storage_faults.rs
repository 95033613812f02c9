//! Each kind of fault, at each call of the controller and group services.

use std::time::Duration;

use berth_csi::rpc::Unary;
use berth_csi::{Code, v1};
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use berth_csi_proxy::faults::{Fault, FaultMark, FaultSide};
use berth_csi_proxy::log::LogEntry;
use berth_harness::wait;
use v1::volume_capability::MountVolume;

use crate::made::{MIB, create, made, mounted};
use crate::world::{Node, TIMEOUT, World};

/// Long enough for a call to begin, on a busy machine.
const SHORT: Duration = Duration::from_millis(500);

/// That each fault for this call about `volume` is applied, and then the call succeeds.
async fn sabotaged<R: Unary + Clone>(node: &Node, volume: &str, request: R)
where
    R::Response: std::fmt::Debug + PartialEq,
{
    let rpc = R::RPC;
    let fault = || Fault {
        rpc: Some(rpc),
        volume: (!volume.is_empty()).then(|| volume.to_owned()),
        times: Some(1),
        ..Fault::default()
    };
    let mark = || node.last_end().fault;
    for (when, expected) in
        [(FaultSide::Before, FaultMark::Before), (FaultSide::After, FaultMark::After)]
    {
        node.plant(Fault { when, code: Some(Code::Unavailable), ..fault() });
        node.refused(request.clone(), Code::Unavailable).await;
        assert_eq!(mark(), Some(expected), "{rpc}");
    }
    node.plant(Fault { lose_answer: true, ..fault() });
    node.client.call(request.clone(), SHORT).await.unwrap_err();
    wait::until("its work is done", TIMEOUT, async || match node.last_end().fault {
        Some(FaultMark::Lost) => Ok(()),
        other => Err(format!("{rpc}: {other:?}")),
    })
    .await;

    node.plant(Fault { hang: true, ..fault() });
    node.client.call(request.clone(), SHORT).await.unwrap_err();
    wait::until("its caller has left", TIMEOUT, async || match node.entries().pop() {
        Some(LogEntry::Gone(_)) => Ok(()),
        other => Err(format!("{rpc}: {other:?}")),
    })
    .await;
    node.plant_nothing();

    node.plant(Fault { delay_ms: 300, ..fault() });
    // The call that hung may still be at its work.
    let done = answered(node, &request).await;
    node.plant(Fault { crash: true, when: FaultSide::After, ..fault() });
    node.call(request.clone()).await.unwrap_err();
    node.plant_nothing();
    node.crash().await;
    // The same call again gives the same, whatever became of the others.
    assert_eq!(answered(node, &request).await, done, "{rpc}");

    node.plant(Fault { volume: Some("another".into()), code: Some(Code::Aborted), ..fault() });
    node.call(request).await.unwrap();
}

async fn answered<R: Unary + Clone>(node: &Node, request: &R) -> R::Response {
    loop {
        match node.call(request.clone()).await {
            Ok(answer) => return answer,
            Err(error) if error.code() == Some(Code::Aborted) => {}
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn calls_about_a_volume() {
    let Some(world) = World::start("sabotage", &[]).await else { return };
    let node = &world.n1;
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let request = create("data", &capability, MIB);
    sabotaged(node, "data", request.clone()).await;
    let id = &*made(node, request).await;
    let volume_id = || id.to_owned();
    let range = v1::CapacityRange { required_bytes: 2 * MIB, limit_bytes: 0 };
    let expand = v1::ControllerExpandVolumeRequest {
        volume_id: volume_id(),
        capacity_range: Some(range),
        ..Default::default()
    };
    sabotaged(node, id, expand).await;
    let modify = v1::ControllerModifyVolumeRequest {
        volume_id: volume_id(),
        mutable_parameters: [("tier".to_owned(), "gold".to_owned())].into(),
        ..Default::default()
    };
    sabotaged(node, id, modify).await;
    sabotaged(node, id, v1::ControllerGetVolumeRequest { volume_id: volume_id() }).await;
    let validate = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id(),
        volume_capabilities: vec![capability],
        ..Default::default()
    };
    sabotaged(node, id, validate).await;
    sabotaged(node, "", v1::ListVolumesRequest::default()).await;
    let delete = v1::DeleteVolumeRequest { volume_id: volume_id(), ..Default::default() };
    sabotaged(node, id, delete).await;
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn calls_about_snapshots() {
    let Some(world) = World::start("sabotage", &["--pool-bytes", "100000000"]).await else {
        return;
    };
    let node = &world.n1;
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let a = made(node, create("a", &capability, MIB)).await;
    let b = made(node, create("b", &capability, MIB)).await;
    let cut = v1::CreateSnapshotRequest {
        source_volume_id: a.clone(),
        name: "s".into(),
        ..Default::default()
    };
    sabotaged(node, &a, cut.clone()).await;
    let snapshot_id = node.call(cut).await.unwrap().snapshot.unwrap().snapshot_id;
    let id = &*snapshot_id.clone();
    let get = v1::GetSnapshotRequest { snapshot_id: snapshot_id.clone(), ..Default::default() };
    sabotaged(node, id, get).await;
    sabotaged(node, "", v1::ListSnapshotsRequest::default()).await;
    sabotaged(node, "", v1::GetCapacityRequest::default()).await;
    sabotaged(node, id, v1::DeleteSnapshotRequest { snapshot_id, ..Default::default() }).await;

    let group = v1::CreateVolumeGroupSnapshotRequest {
        name: "g".into(),
        source_volume_ids: vec![a.clone(), b.clone()],
        ..Default::default()
    };
    sabotaged(node, &b, group.clone()).await;
    let group = node.call(group).await.unwrap().group_snapshot.unwrap();
    let snapshot_ids: Vec<_> =
        group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect();
    let id = &*group.group_snapshot_id;
    let get = v1::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: snapshot_ids.clone(),
        ..Default::default()
    };
    sabotaged(node, id, get).await;
    let delete = v1::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids,
        ..Default::default()
    };
    sabotaged(node, id, delete).await;
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn a_crash_between_two_copies_of_a_group_leaves_no_half_of_it() {
    let Some(world) = World::start("half", &[]).await else { return };
    let node = &world.n1;
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let mut source_volume_ids = Vec::new();
    for name in ["a", "b"] {
        source_volume_ids.push(made(node, create(name, &capability, MIB)).await);
    }
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name: "g".into(),
        source_volume_ids,
        ..Default::default()
    };
    // The second copy kills the instance, which is the parent of `timeout`.
    let script = "#!/bin/sh\n\
        case \"$*\" in *volumes/vol-b*) kill -9 $(ps -o ppid= -p $PPID) ;; esac\n\
        exec /bin/cp \"$@\"\n";
    world.replace_program("cp", script);
    node.call(request.clone()).await.unwrap_err();
    std::fs::remove_file(world.path().join("bin/cp")).unwrap();
    node.crash().await;
    let listed = node.call(v1::ListSnapshotsRequest::default()).await.unwrap();
    assert_eq!(listed.entries, []);
    let group = node.call(request).await.unwrap().group_snapshot.unwrap();
    assert_eq!((group.snapshots.len(), group.ready_to_use), (2, true));
    assert_eq!(world.findings(), []);
}
