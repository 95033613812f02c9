//! What a lenient instance carries out, and the judge finds in the logs afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use berth_csi::v1;
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use berth_judge::FindingKind;

use crate::request::{Context, detach, publish, stage, unpublish, unstage};
use crate::world::{Node, World};

impl World {
    /// The rules that the judge finds broken by the CO, each once. It finds no fault of the driver.
    fn broken_by_the_co(&self) -> BTreeSet<String> {
        let findings = self.findings();
        let all_the_cos = findings.iter().all(|finding| finding.kind == FindingKind::Violation);
        assert!(all_the_cos, "{findings:?}");
        findings.into_iter().map(|finding| finding.rule.name).collect()
    }
}

fn rules(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn published(world: &World, node: &Node, volume: &str) -> String {
    let context = world.stage(node, volume, SingleNodeWriter).await;
    let (staging, target) = (node.staging(volume), node.target(volume));
    let wanted = publish(volume, (&staging, &target), SingleNodeWriter, &context);
    node.call(wanted).await.unwrap();
    target
}

#[tokio::test]
async fn a_volume_for_one_node_is_used_on_two() {
    let Some(world) = World::start("lenient", &["--lenient"]).await else { return };
    world.provision("v");
    let first = published(&world, &world.n1, "v").await;
    let second = published(&world, &world.n2, "v").await;
    fs::write(Path::new(&first).join("f"), "one").unwrap();
    // Two writers, for real.
    assert_eq!(fs::read_to_string(Path::new(&second).join("f")).unwrap(), "one");
    assert_eq!(world.broken_by_the_co(), rules(&["exclusive-attach", "exclusive-use"]));
}

#[tokio::test]
async fn a_volume_is_deleted_and_detached_under_its_mount() {
    let Some(world) = World::start("lenient", &["--lenient"]).await else { return };
    world.provision("v");
    let target = published(&world, &world.n1, "v").await;
    fs::write(Path::new(&target).join("f"), "data").unwrap();
    world.n2.call(detach("v", "n1")).await.unwrap();
    assert_eq!(fs::read_to_string(Path::new(&target).join("f")).unwrap(), "data");
    let delete = v1::DeleteVolumeRequest { volume_id: "v".into(), ..Default::default() };
    world.n2.call(delete).await.unwrap();
    assert!(fs::read(Path::new(&target).join("f")).is_err(), "the data is gone");
    let broken = world.broken_by_the_co();
    for rule in ["detach-before-unstage", "delete-in-use", "destroyed-while-mounted"] {
        assert!(broken.contains(rule), "{rule}: {broken:?}");
    }
    // What is left goes, as with a plugin that knows the path alone.
    world.n1.call(unpublish("v", &target)).await.unwrap();
    world.n1.call(unstage("v", &world.n1.staging("v"))).await.unwrap();
    assert!(world.mounts().is_empty(), "{:?}", world.mounts());
}

#[tokio::test]
async fn an_unpublish_of_another_id_takes_down_what_is_at_the_path() {
    let Some(world) = World::start("lenient", &["--lenient"]).await else { return };
    for volume in ["v", "w"] {
        world.provision(volume);
    }
    let target = published(&world, &world.n1, "v").await;
    world.n1.call(unpublish("w", &target)).await.unwrap();
    assert!(!Path::new(&target).exists());
    assert!(world.broken_by_the_co().contains("undo-of-another-volume"));
}

#[tokio::test]
async fn a_volume_is_used_without_an_attachment() {
    let Some(world) = World::start("lenient", &["--lenient"]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let (staging, target, nothing) = (node.staging("v"), node.target("v"), Context::new());
    node.call(stage("v", &staging, SingleNodeWriter, &nothing)).await.unwrap();
    node.call(publish("v", (&staging, &target), SingleNodeWriter, &nothing)).await.unwrap();
    fs::write(Path::new(&target).join("f"), "data").unwrap();
    assert_eq!(world.broken_by_the_co(), rules(&["node-call-before-attach"]));
}
