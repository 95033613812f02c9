//! What is made of volumes: snapshots, groups of them, clones; and lists of all.

use std::fs;

use berth_csi::{Code, v1};
use berth_csi_dev::backing::FsType;
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use v1::volume_capability::MountVolume;
use v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::made::{MIB, assert_nothing_left, create, delete, down, made, mounted, up, with_fs};
use crate::world::World;

fn snapshot(name: &str, source: &str) -> v1::CreateSnapshotRequest {
    v1::CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: source.to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_snapshot_keeps_what_was_and_a_clone_has_what_is() {
    let Some(world) = World::start("copies", &[]).await else { return };
    let node = &world.n1;
    let directory = mounted(SingleNodeWriter, MountVolume::default());
    for (capability, name) in
        [(directory, "directory"), (with_fs(SingleNodeWriter, FsType::Ext4), "image")]
    {
        let id = made(node, create(name, &capability, 16 * MIB)).await;
        let target = up(node, &id, &capability).await;
        fs::write(target.join("file"), "then").unwrap();
        // While it is mounted: what was written before the call is in it.
        let cut = node.call(snapshot(name, &id)).await.unwrap().snapshot.unwrap();
        assert!(cut.ready_to_use && cut.size_bytes == 16 * MIB, "{cut:?}");
        let repeated = node.call(snapshot(name, &id)).await.unwrap().snapshot.unwrap();
        assert_eq!(repeated, cut);
        fs::write(target.join("file"), "now").unwrap();
        down(node, &id).await;

        for (kind, from, expected) in [
            (
                "restored",
                Type::Snapshot(SnapshotSource { snapshot_id: cut.snapshot_id.clone() }),
                "then",
            ),
            ("cloned", Type::Volume(VolumeSource { volume_id: id.clone() }), "now"),
        ] {
            let source = Some(v1::VolumeContentSource { r#type: Some(from) });
            let mut request = create(&format!("{name}-{kind}"), &capability, 32 * MIB);
            request.volume_content_source = source.clone();
            let volume = node.call(request.clone()).await.unwrap().volume.unwrap();
            assert_eq!((volume.content_source, volume.capacity_bytes), (source, 32 * MIB));
            let copy = up(node, &volume.volume_id, &capability).await;
            assert_eq!(fs::read_to_string(copy.join("file")).unwrap(), expected, "{kind}");
            down(node, &volume.volume_id).await;
            delete(node, &volume.volume_id).await;
            // Too small for what it is made from.
            request.capacity_range =
                Some(v1::CapacityRange { required_bytes: MIB, limit_bytes: MIB });
            node.refused(request, Code::OutOfRange).await;
        }
        delete(node, &id).await;
        let snapshot_id = cut.snapshot_id;
        node.call(v1::DeleteSnapshotRequest { snapshot_id, ..Default::default() }).await.unwrap();
    }
    assert_nothing_left(&world);
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn the_same_name_is_the_same_volume_or_an_error() {
    let Some(world) = World::start("names", &["--pool-bytes", "100000000"]).await else { return };
    let node = &world.n1;
    let room = async || {
        let answer = node.call(v1::GetCapacityRequest::default()).await;
        answer.unwrap().available_capacity
    };
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let request = create("data", &capability, 16 * MIB);
    assert_eq!(room().await, 100_000_000);
    let first = node.call(request.clone()).await.unwrap();
    assert_eq!(world.n2.call(request.clone()).await.unwrap(), first);
    assert_eq!(room().await, 100_000_000 - 16 * MIB, "once, however often it is asked for");
    let id = first.volume.unwrap().volume_id;
    assert_ne!(id, "data", "an id is no name");
    let exists = Code::AlreadyExists;
    node.refused(create("data", &capability, 17 * MIB), exists).await;
    let mut other_request = request.clone();
    other_request.parameters.insert("context/pool".into(), "slow".into());
    let message = node.refused(other_request, exists).await;
    assert!(message.contains("parameters"), "{message}");
    node.refused(create("data", &with_fs(SingleNodeWriter, FsType::Ext4), 16 * MIB), exists).await;
    let message = node.refused(create("more", &capability, 90 << 20), Code::ResourceExhausted);
    let message = message.await;
    assert!(message.contains("left in the pool"), "{message}");

    // In use, it stays.
    up(node, &id, &capability).await;
    let delete_it = v1::DeleteVolumeRequest { volume_id: id.clone(), ..Default::default() };
    node.refused(delete_it, Code::FailedPrecondition).await;
    down(node, &id).await;
    delete(node, &id).await;
    delete(node, &id).await;
    assert_eq!(room().await, 100_000_000);
    // No secret of any call is in any file.
    for log in world.logs() {
        assert!(!fs::read_to_string(log).unwrap().contains("hunter2"));
    }
    assert_nothing_left(&world);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let Some(world) = World::start("pages", &[]).await else { return };
    let node = &world.n1;
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let mut ids = Vec::new();
    for name in ["c", "a", "b"] {
        ids.push(made(node, create(name, &capability, MIB)).await);
        node.call(snapshot(name, &ids[ids.len() - 1])).await.unwrap();
    }
    ids.sort();
    up(node, &ids[0], &capability).await;

    let page = |max_entries, starting_token: &str| {
        let starting_token = starting_token.to_owned();
        node.call(v1::ListVolumesRequest { max_entries, starting_token })
    };
    let first = page(2, "").await.unwrap();
    // What the token names may be gone by the time of the next page.
    delete(node, &ids[1]).await;
    let second = page(2, &first.next_token).await.unwrap();
    assert_eq!(second.next_token, "");
    let entries = [first.entries, second.entries].concat();
    let listed: Vec<_> =
        entries.iter().map(|entry| &entry.volume.as_ref().unwrap().volume_id).collect();
    assert_eq!(listed, ids.iter().collect::<Vec<_>>());
    let status = entries[0].status.clone().unwrap();
    assert_eq!(status.published_node_ids, ["n1"]);
    let bad = v1::ListVolumesRequest { starting_token: "7".into(), ..Default::default() };
    node.refused(bad, Code::Aborted).await;

    let first_page = v1::ListSnapshotsRequest { max_entries: 1, ..Default::default() };
    let first = node.call(first_page).await.unwrap();
    let rest = v1::ListSnapshotsRequest { starting_token: first.next_token, ..Default::default() };
    assert_eq!((first.entries.len(), node.call(rest).await.unwrap().entries.len()), (1, 2));
    let of_one =
        v1::ListSnapshotsRequest { source_volume_id: ids[1].clone(), ..Default::default() };
    assert_eq!(node.call(of_one).await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn a_group_is_there_as_a_whole_or_not_at_all() {
    let Some(world) = World::start("group", &[]).await else { return };
    let node = &world.n1;
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let first_id = made(node, create("one", &capability, MIB)).await;
    let two = made(node, create("two", &capability, MIB)).await;
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name: "g".into(),
        source_volume_ids: vec![first_id.clone(), two.clone()],
        ..Default::default()
    };
    up(node, &first_id, &capability).await;
    let message = node.refused(request.clone(), Code::FailedPrecondition).await;
    assert!(message.contains(&first_id), "{message}");
    let list = v1::ListSnapshotsRequest::default();
    assert!(node.call(list.clone()).await.unwrap().entries.is_empty(), "not even half of it");
    down(node, &first_id).await;

    let group = node.call(request.clone()).await.unwrap().group_snapshot.unwrap();
    assert!(group.ready_to_use && group.snapshots.len() == 2, "{group:?}");
    let repeated = world.n2.call(request.clone()).await.unwrap().group_snapshot.unwrap();
    assert_eq!(repeated, group);
    let other = v1::CreateVolumeGroupSnapshotRequest { source_volume_ids: vec![two], ..request };
    node.refused(other, Code::AlreadyExists).await;
    let ids: Vec<_> = group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect();
    assert!(
        group
            .snapshots
            .iter()
            .all(|snapshot| snapshot.group_snapshot_id == group.group_snapshot_id)
    );
    // Only as a whole.
    let single = v1::DeleteSnapshotRequest { snapshot_id: ids[0].clone(), ..Default::default() };
    node.refused(single, Code::InvalidArgument).await;
    let whole = v1::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids: ids[..1].to_vec(),
        ..Default::default()
    };
    node.refused(whole.clone(), Code::InvalidArgument).await;
    let whole = v1::DeleteVolumeGroupSnapshotRequest { snapshot_ids: ids.clone(), ..whole };
    for _ in 0..2 {
        node.call(whole.clone()).await.unwrap();
    }
    let get = v1::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id,
        snapshot_ids: ids,
        ..Default::default()
    };
    node.refused(get, Code::NotFound).await;
    assert!(node.call(list).await.unwrap().entries.is_empty());
    let rules = ["create-conflict", "delete-of-member", "other-members"];
    assert_eq!(world.rules_broken(), rules.map(str::to_owned).into());
}

#[tokio::test]
async fn bound_to_its_node_an_instance_knows_only_what_it_made() {
    let flags = ["--bound", "--topology", "zone=a,rack=1"];
    let Some(world) = World::start("bound", &flags).await else { return };
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let mut request = create("data", &capability, MIB);
    let own_zone = v1::Topology { segments: [("zone".to_owned(), "a".to_owned())].into() };
    request.accessibility_requirements =
        Some(v1::TopologyRequirement { requisite: vec![own_zone], ..Default::default() });
    let volume = world.n1.call(request.clone()).await.unwrap().volume.unwrap();
    assert_eq!(volume.accessible_topology[0].segments["rack"], "1");
    // The same name on another node is another volume.
    assert_ne!(made(&world.n2, request).await, volume.volume_id);
    let volume_id = volume.volume_id.clone();
    let delete_it = v1::DeleteVolumeRequest { volume_id, ..Default::default() };
    world.n2.refused(delete_it, Code::NotFound).await;
    let listed = world.n2.call(v1::ListVolumesRequest::default()).await.unwrap();
    assert_eq!(listed.entries.len(), 1);
    up(&world.n1, &volume.volume_id, &capability).await;
    down(&world.n1, &volume.volume_id).await;
}
