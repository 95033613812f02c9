//! Volumes that are modified and looked at one by one, and how they are.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use berth_csi::{Code, v1};
use berth_csi_dev::backing::FsType;
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use v1::volume_capability::MountVolume;
use v1::volume_usage::Unit;

use crate::made::{MIB, attach, block, create, delete, down, made, mounted, up, with_fs};
use crate::world::{Node, World, binary};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn modify(volume_id: &str, pairs: &[(&str, &str)]) -> v1::ControllerModifyVolumeRequest {
    v1::ControllerModifyVolumeRequest {
        volume_id: volume_id.to_owned(),
        mutable_parameters: map(pairs),
        ..Default::default()
    }
}

fn in_effect(world: &World, id: &str) -> BTreeMap<String, String> {
    world.backend().volume(id).unwrap().unwrap().meta().mutable_parameters.clone()
}

#[tokio::test]
async fn a_modification_takes_effect_as_a_whole_or_not_at_all() {
    let Some(world) = World::start("modify", &[]).await else { return };
    let node = &world.n1;
    let mut request = create("data", &mounted(SingleNodeWriter, MountVolume::default()), MIB);
    request.parameters = map(&[("iops", "100"), ("tier", "bronze")]);
    request.mutable_parameters = map(&[("tier", "silver")]);
    let id = made(node, request.clone()).await;
    assert_eq!(in_effect(&world, &id), map(&[("iops", "100"), ("tier", "silver")]));

    for bad in [&[("tier", "gold"), ("iops", "0")][..], &[("tier", "gold"), ("color", "red")]] {
        let message = node.refused(modify(&id, bad), Code::InvalidArgument).await;
        assert!(message.contains(bad[1].0), "{message}");
    }
    node.refused(modify(&id, &[]), Code::InvalidArgument).await;
    node.refused(modify("none", &[("tier", "gold")]), Code::NotFound).await;
    assert_eq!(in_effect(&world, &id), map(&[("iops", "100"), ("tier", "silver")]));
    // A key that is absent stays, and the same again changes nothing.
    for instance in [node, &world.n2] {
        instance.call(modify(&id, &[("tier", "gold")])).await.unwrap();
        assert_eq!(in_effect(&world, &id), map(&[("iops", "100"), ("tier", "gold")]));
    }

    // A repeated creation is compared with the request that made the volume.
    assert_eq!(made(node, request.clone()).await, id);
    let mut other_request = request.clone();
    other_request.mutable_parameters = map(&[("tier", "gold")]);
    let message = node.refused(other_request, Code::AlreadyExists).await;
    assert!(message.contains("mutable_parameters"), "{message}");
    let mut bad = create("bad", &mounted(SingleNodeWriter, MountVolume::default()), MIB);
    bad.mutable_parameters = map(&[("color", "red")]);
    node.refused(bad, Code::InvalidArgument).await;

    let validate = |pairs: &[(&str, &str)]| v1::ValidateVolumeCapabilitiesRequest {
        volume_id: id.clone(),
        volume_capabilities: request.volume_capabilities.clone(),
        mutable_parameters: map(pairs),
        ..Default::default()
    };
    let confirmed = node.call(validate(&[("iops", "7")])).await.unwrap().confirmed.unwrap();
    assert_eq!(confirmed.mutable_parameters, map(&[("iops", "7")]));
    let doubted = node.call(validate(&[("iops", "many")])).await.unwrap();
    assert!(doubted.confirmed.is_none() && doubted.message.contains("iops"), "{doubted:?}");
    delete(node, &id).await;
    // The CO asked twice for one name, with other parameters.
    assert_eq!(world.rules_broken(), ["create-conflict".to_owned()].into());
}

#[tokio::test]
async fn what_cannot_be_modified_takes_no_mutable_parameters() {
    let Some(world) = World::start("immutable", &["--without", "modify"]).await else { return };
    let node = &world.n1;
    let mut request = create("data", &mounted(SingleNodeWriter, MountVolume::default()), MIB);
    request.mutable_parameters = map(&[("tier", "gold")]);
    let message = node.refused(request.clone(), Code::InvalidArgument).await;
    assert!(message.contains("modify is not among"), "{message}");
    request.parameters = std::mem::take(&mut request.mutable_parameters);
    let id = made(node, request.clone()).await;
    let validate = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: id.clone(),
        volume_capabilities: request.volume_capabilities,
        mutable_parameters: map(&[("tier", "gold")]),
        ..Default::default()
    };
    assert!(node.call(validate).await.unwrap().confirmed.is_none());
    delete(node, &id).await;
}

async fn seen(node: &Node, id: &str) -> v1::ControllerGetVolumeResponse {
    node.call(v1::ControllerGetVolumeRequest { volume_id: id.to_owned() }).await.unwrap()
}

#[tokio::test]
async fn one_volume_and_one_snapshot_are_as_in_the_lists() {
    let Some(world) = World::start("single", &[]).await else { return };
    let node = &world.n1;
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let id = made(node, create("data", &capability, MIB)).await;
    attach(node, &id, &capability).await;
    let entries = node.call(v1::ListVolumesRequest::default()).await.unwrap().entries;
    let stub = seen(node, &id).await;
    let status = stub.status.unwrap();
    assert_eq!(entries[0].volume, stub.volume);
    let listed = entries[0].status.clone().unwrap();
    assert_eq!(listed.published_node_ids, status.published_node_ids);
    assert_eq!(status.published_node_ids, ["n1"]);
    assert_eq!(listed.volume_condition, status.volume_condition);
    assert!(!status.volume_condition.unwrap().abnormal);
    let unknown = v1::ControllerGetVolumeRequest { volume_id: "none".into() };
    node.refused(unknown, Code::NotFound).await;

    let (source_volume_id, name) = (id.clone(), "s".to_owned());
    let cut = v1::CreateSnapshotRequest { source_volume_id, name, ..Default::default() };
    let cut = node.call(cut).await.unwrap().snapshot.unwrap();
    let get = |snapshot_id: &str| {
        let snapshot_id = snapshot_id.to_owned();
        v1::GetSnapshotRequest { snapshot_id, ..Default::default() }
    };
    let got = world.n2.call(get(&cut.snapshot_id)).await.unwrap().snapshot.unwrap();
    assert_eq!(got, cut);
    node.refused(get("none"), Code::NotFound).await;
}

/// Marks the volume as a test does it.
pub fn mark(world: &World, id: &str, text: &str) -> String {
    let mut command = Command::new(binary());
    command.args(["provision", "--volume", id, "--abnormal", text, "--backend"]);
    let output = command.arg(world.path().join("backend")).output().unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn an_abnormal_volume_is_reported_everywhere() {
    let Some(world) = World::start("abnormal", &[]).await else { return };
    let node = &world.n1;
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let id = made(node, create("data", &capability, MIB)).await;
    let target = up(node, &id, &capability).await;
    let volume_path = target.to_str().unwrap().to_owned();
    let stats =
        v1::NodeGetVolumeStatsRequest { volume_id: id.clone(), volume_path, ..Default::default() };
    let conditions = async || {
        let listed = node.call(v1::ListVolumesRequest::default()).await.unwrap();
        let of_list = listed.entries[0].status.clone().unwrap().volume_condition.unwrap();
        let of_one = seen(node, &id).await.status.unwrap().volume_condition.unwrap();
        let of_node = node.call(stats.clone()).await.unwrap().volume_condition.unwrap();
        [of_list, of_one, of_node]
    };
    let say = |abnormal, message: &str| {
        let condition = v1::VolumeCondition { abnormal, message: message.into() };
        [condition.clone(), condition.clone(), condition]
    };
    assert_eq!(conditions().await, say(false, "in order"));
    assert!(mark(&world, "none", "x").contains("does not exist"));
    assert!(mark(&world, &id, "a disk is failing").contains("abnormal"));
    assert_eq!(conditions().await, say(true, "a disk is failing"));
    assert!(mark(&world, &id, "").contains("no longer"));
    assert_eq!(conditions().await, say(false, "in order"));

    // The content is gone.
    let data = world.backend().volume(&id).unwrap().unwrap().data();
    let aside = data.with_extension("aside");
    fs::rename(&data, &aside).unwrap();
    for condition in conditions().await {
        assert!(condition.abnormal && condition.message.contains("missing"), "{condition:?}");
    }
    fs::rename(&aside, &data).unwrap();
    // The mount is gone.
    nix::mount::umount2(&target, nix::mount::MntFlags::empty()).unwrap();
    let [of_list, _, of_node] = conditions().await;
    assert!(!of_list.abnormal && of_node.abnormal, "{of_node:?}");
    down(node, &id).await;
    node.refused(stats, Code::NotFound).await;
    delete(node, &id).await;
}

#[tokio::test]
async fn usage_is_what_the_kernel_says() {
    let Some(world) = World::start("usage", &["--without", "condition"]).await else { return };
    let node = &world.n1;
    let capability = with_fs(SingleNodeWriter, FsType::Ext4);
    let id = made(node, create("image", &capability, 16 * MIB)).await;
    let target = up(node, &id, &capability).await;
    let stats = |volume_id: &str, volume_path: &str| v1::NodeGetVolumeStatsRequest {
        volume_id: volume_id.to_owned(),
        volume_path: volume_path.to_owned(),
        ..Default::default()
    };
    for path in [target.to_str().unwrap(), &node.staging(&id)] {
        fs::write(target.join("file"), vec![0; 1 << 20]).unwrap();
        let usage = node.call(stats(&id, path)).await.unwrap();
        assert_eq!(usage.volume_condition, None);
        let [bytes, inodes] = &usage.usage[..] else { panic!("{usage:?}") };
        assert_eq!((bytes.unit(), inodes.unit()), (Unit::Bytes, Unit::Inodes));
        assert!(bytes.total > 8 * MIB && bytes.total <= 16 * MIB, "{bytes:?}");
        assert!(bytes.used >= MIB && bytes.used + bytes.available <= bytes.total, "{bytes:?}");
        assert!(inodes.used >= 1 && inodes.total >= inodes.used, "{inodes:?}");
    }
    node.refused(stats(&id, "/no/such/path"), Code::NotFound).await;
    node.refused(stats("none", "/no/such/path"), Code::NotFound).await;
    down(node, &id).await;
    delete(node, &id).await;

    let capability = block(SingleNodeWriter);
    let id = made(node, create("device", &capability, 16 * MIB)).await;
    let target = up(node, &id, &capability).await;
    let usage = node.call(stats(&id, target.to_str().unwrap())).await.unwrap();
    assert_eq!((usage.usage.len(), usage.usage[0].total), (1, 16 * MIB));
    down(node, &id).await;
    delete(node, &id).await;
    assert_eq!(world.findings(), []);
}
