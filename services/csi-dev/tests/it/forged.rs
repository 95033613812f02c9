//! Answers that are wrong about what there is at the storage.

use std::collections::BTreeSet;

use berth_csi::{Code, Rpc, v1};
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use berth_csi_proxy::faults::{Fault, FaultMark, WrongAnswer};
use v1::volume_capability::MountVolume;
use v1::volume_content_source::{Type, VolumeSource};

use crate::made::{MIB, block, create, delete, made, mounted};
use crate::world::{Node, World};

fn plant(node: &Node, rpc: Rpc, wrong: WrongAnswer) {
    let fault = Fault { rpc: Some(rpc), wrong: Some(wrong), times: Some(1), ..Fault::default() };
    node.plant(fault);
}

fn directory() -> v1::VolumeCapability {
    mounted(SingleNodeWriter, MountVolume::default())
}

async fn created(node: &Node, request: &v1::CreateVolumeRequest) -> v1::Volume {
    node.call(request.clone()).await.unwrap().volume.unwrap()
}

#[tokio::test]
async fn less_than_required_is_made_and_recorded() {
    let Some(world) = World::start("less", &[]).await else { return };
    let node = &world.n1;
    for (name, capability) in [("directory", directory()), ("image", block(SingleNodeWriter))] {
        plant(node, Rpc::CreateVolume, WrongAnswer::LessCapacity);
        let request = create(name, &capability, 16 * MIB);
        let volume = created(node, &request).await;
        assert_eq!(volume.capacity_bytes, 8 * MIB, "{name}");
        assert_eq!(node.last_end().fault, Some(FaultMark::Wrong));
        // The storage has no more, and a right plugin does not take it for the same.
        node.refused(request, Code::AlreadyExists).await;
        let expand = v1::ControllerExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            capacity_range: Some(v1::CapacityRange { required_bytes: 16 * MIB, limit_bytes: 0 }),
            ..Default::default()
        };
        plant(node, Rpc::ControllerExpandVolume, WrongAnswer::LessCapacity);
        let grown = node.call(expand.clone()).await.unwrap();
        assert_eq!(grown.capacity_bytes, 12 * MIB, "{name}");
        let meta = world.backend().volume(&volume.volume_id).unwrap().unwrap().meta().clone();
        assert_eq!(meta.capacity_bytes, 12 * MIB, "{name}");
        assert_eq!(node.call(expand).await.unwrap().capacity_bytes, 16 * MIB, "{name}");
        delete(node, &volume.volume_id).await;
    }
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn ids_are_missing_or_of_another_volume() {
    let Some(world) = World::start("ids", &[]).await else { return };
    let node = &world.n1;
    let first = made(node, create("first", &directory(), MIB)).await;
    let request = create("second", &directory(), MIB);
    plant(node, Rpc::CreateVolume, WrongAnswer::NoId);
    assert_eq!(created(node, &request).await.volume_id, "");
    plant(node, Rpc::CreateVolume, WrongAnswer::IdOfAnother);
    assert_eq!(created(node, &request).await.volume_id, first);
    // It is there all the same.
    let second = made(node, request).await;
    assert_ne!(first, second);

    let cut = |name: &str| v1::CreateSnapshotRequest {
        source_volume_id: first.clone(),
        name: name.to_owned(),
        ..Default::default()
    };
    let snapshot_id =
        async |name: &str| node.call(cut(name)).await.unwrap().snapshot.unwrap().snapshot_id;
    plant(node, Rpc::CreateSnapshot, WrongAnswer::IdOfAnother);
    let a = snapshot_id("a").await;
    assert_eq!(node.last_end().fault, None, "there is no other one");
    plant(node, Rpc::CreateSnapshot, WrongAnswer::IdOfAnother);
    assert_eq!(snapshot_id("b").await, a);
    plant(node, Rpc::CreateSnapshot, WrongAnswer::NoId);
    assert_eq!(snapshot_id("b").await, "");
    assert_ne!(snapshot_id("b").await, a);
}

#[tokio::test]
async fn a_second_volume_is_made_for_the_name() {
    let Some(world) = World::start("twice", &[]).await else { return };
    let node = &world.n1;
    let request = create("data", &directory(), MIB);
    let mut ids = BTreeSet::new();
    for _ in 0..2 {
        plant(node, Rpc::CreateVolume, WrongAnswer::OtherId);
        ids.insert(created(node, &request).await.volume_id);
    }
    ids.insert(created(node, &request).await.volume_id);
    let volumes = world.backend().volumes().unwrap();
    let volumes: BTreeSet<_> =
        volumes.iter().map(|volume| volume.meta().volume_id.clone()).collect();
    assert_eq!((ids.len(), &ids), (3, &volumes));
}

#[tokio::test]
async fn a_source_and_a_topology_are_not_what_was_requested() {
    let Some(world) = World::start("elsewhere", &["--topology", "zone=a"]).await else { return };
    let node = &world.n1;
    let mut request = create("data", &directory(), MIB);
    let own_zone = v1::Topology { segments: [("zone".to_owned(), "a".to_owned())].into() };
    request.accessibility_requirements =
        Some(v1::TopologyRequirement { requisite: vec![own_zone.clone()], ..Default::default() });
    plant(node, Rpc::CreateVolume, WrongAnswer::OtherTopology);
    let volume = created(node, &request).await;
    assert_eq!(volume.accessible_topology[0].segments["zone"], "a-elsewhere");
    assert_eq!(created(node, &request).await.accessible_topology, [own_zone]);

    request.name = "copy".into();
    let kind = Type::Volume(VolumeSource { volume_id: volume.volume_id });
    request.volume_content_source = Some(v1::VolumeContentSource { r#type: Some(kind) });
    plant(node, Rpc::CreateVolume, WrongAnswer::NoSource);
    assert_eq!(created(node, &request).await.content_source, None);
    assert_eq!(created(node, &request).await.content_source, request.volume_content_source);
}

#[tokio::test]
async fn lists_never_end() {
    let Some(world) = World::start("endless", &[]).await else { return };
    let node = &world.n1;
    for name in ["a", "b", "c"] {
        let source_volume_id = made(node, create(name, &directory(), MIB)).await;
        let name = name.to_owned();
        let cut = v1::CreateSnapshotRequest { source_volume_id, name, ..Default::default() };
        node.call(cut).await.unwrap();
    }
    for (wrong, tokens) in [(WrongAnswer::EndlessPages, 6), (WrongAnswer::EndlessToken, 1)] {
        node.plant(Fault { wrong: Some(wrong), ..Fault::default() });
        let (mut volumes, mut snapshots) = (BTreeSet::new(), BTreeSet::new());
        let (mut of_volumes, mut of_snapshots) = (String::new(), String::new());
        for _ in 0..6 {
            let starting_token = of_volumes;
            let list = v1::ListVolumesRequest { max_entries: 2, starting_token };
            let page = node.call(list).await.unwrap();
            assert!(!page.entries.is_empty(), "{wrong:?}");
            of_volumes = page.next_token;
            let starting_token = of_snapshots;
            let list =
                v1::ListSnapshotsRequest { max_entries: 3, starting_token, ..Default::default() };
            let page = node.call(list).await.unwrap();
            assert_eq!(page.entries.len(), 3, "{wrong:?}");
            of_snapshots = page.next_token;
            volumes.insert(of_volumes.clone());
            snapshots.insert(of_snapshots.clone());
        }
        assert_eq!(snapshots.len(), tokens, "{snapshots:?}");
        // The tokens within a round are those of a right plugin.
        assert_eq!(volumes.len(), tokens.min(4), "{volumes:?}");
        assert!(!volumes.contains("") && !snapshots.contains(""), "{wrong:?}");
    }
}
