//! The calls about health of CSI 1.13.

use berth_csi::{Code, health, v1};
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use v1::volume_capability::MountVolume;

use crate::changes::mark;
use crate::made::{MIB, create, delete, down, made, mounted, up};
use crate::world::{Node, World};

/// What a controller lists and answers, and what the node answers.
async fn said(node: &Node, id: &str, path: &str) -> [Option<String>; 3] {
    let listed = node.call(v1::ControllerListVolumeHealthRequest::default()).await.unwrap();
    let of_list = listed.entries.iter().find(|entry| entry.volume_id == id);
    let request =
        v1::ControllerGetVolumeHealthRequest { volume_id: id.to_owned(), ..Default::default() };
    let of_one = node.call(request).await.unwrap().volume_health;
    let request = v1::NodeGetVolumeHealthRequest {
        volume_id: id.to_owned(),
        volume_publish_path: path.to_owned(),
        ..Default::default()
    };
    let of_node = node.call(request).await.unwrap().volume_health;
    [of_list, of_one.as_ref(), of_node.as_ref()].map(|one| one.and_then(health::of_volume))
}

#[tokio::test]
async fn an_unwell_volume_is_told_of_by_each_call_until_it_is_well() {
    let flags = ["--without", "condition"];
    let Some(world) = World::start("health", &flags).await else { return };
    let node = &world.n1;
    let capability = mounted(SingleNodeWriter, MountVolume::default());
    let id = made(node, create("data", &capability, MIB)).await;
    let other = made(node, create("other", &capability, MIB)).await;
    let target = up(node, &id, &capability).await;
    let path = target.to_str().unwrap();
    assert_eq!(said(node, &id, path).await, [const { None }; 3]);
    mark(&world, &id, "a disk is failing");
    let failing = Some("degraded (Abnormal): a disk is failing".to_owned());
    assert_eq!(said(node, &id, path).await, [failing.clone(), failing.clone(), failing]);
    assert_eq!(said(node, &other, "").await, [const { None }; 3]);
    mark(&world, &id, "");
    // The mount is gone: only the node knows.
    nix::mount::umount2(&target, nix::mount::MntFlags::empty()).unwrap();
    let [None, None, Some(gone)] = said(node, &id, path).await else { panic!("it is gone") };
    assert!(gone.starts_with("inaccessible (Abnormal): it is no longer at"), "{gone}");
    down(node, &id).await;
    for id in [id, other] {
        delete(node, &id).await;
    }
    let request =
        v1::ControllerGetVolumeHealthRequest { volume_id: "none".to_owned(), ..Default::default() };
    node.refused(request, Code::NotFound).await;
}

#[tokio::test]
async fn the_storage_is_unwell_for_one_node_until_that_is_taken_back() {
    let Some(world) = World::start("trouble", &[]).await else { return };
    let troubles = async |node: &Node| {
        let answer = node.call(v1::NodeGetStorageHealthRequest::default()).await.unwrap();
        let troubles = health::of_storage(&answer).into_iter();
        troubles.map(|trouble| (trouble.unreachable, trouble.said)).collect::<Vec<_>>()
    };
    for (text, unreachable, said) in [
        ("no route", true, "it cannot be reached (Trouble): no route"),
        ("degraded one path of two", false, "it is degraded (Trouble): one path of two"),
    ] {
        world.backend().set_trouble("n1", Some(text.to_owned())).unwrap();
        assert_eq!(troubles(&world.n1).await, [(unreachable, said.to_owned())]);
        assert!(troubles(&world.n2).await.is_empty());
    }
    world.backend().set_trouble("n1", None).unwrap();
    assert!(troubles(&world.n1).await.is_empty());
}
