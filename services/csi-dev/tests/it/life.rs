//! The whole life of a volume.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use berth_csi::Code;
use berth_csi_dev::backend::CallSlot;
use berth_csi_dev::capability::AccessMode::{
    MultiNodeMultiWriter, SingleNodeReaderOnly, SingleNodeWriter,
};
use berth_csi_proxy::log::LogEntry;

use crate::request::{Context, attach, detach, publish, stage, unpublish, unstage};
use crate::world::World;

#[tokio::test]
async fn what_one_node_wrote_the_next_one_reads() {
    let Some(world) = World::start("life", &[]).await else { return };
    // An id that is no file name, with all that could go wrong in one.
    let volume = "tenant/vol 1..ü%\n";
    world.provision(volume);
    for (node, next) in [(&world.n1, &world.n2), (&world.n2, &world.n1)] {
        let (staging, target) = (node.staging("s"), node.target("workload"));
        let paths = (&*staging, &*target);
        // Every call twice: the second finds it done. Any instance attaches.
        let mut context = Context::new();
        for _ in 0..2 {
            let attached = next.call(attach(volume, &node.id, SingleNodeWriter)).await.unwrap();
            assert!(context.is_empty() || context == attached.publish_context);
            context = attached.publish_context;
        }
        for _ in 0..2 {
            node.call(stage(volume, &staging, SingleNodeWriter, &context)).await.unwrap();
        }
        for _ in 0..2 {
            node.call(publish(volume, paths, SingleNodeWriter, &context)).await.unwrap();
        }
        assert_eq!(world.mounts().len(), 2, "{:?}", world.mounts());

        let file = Path::new(&target).join("file");
        if node.id == "n1" {
            fs::write(&file, "written on n1").unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "written on n1");

        for _ in 0..2 {
            node.call(unpublish(volume, &target)).await.unwrap();
            assert!(!Path::new(&target).exists());
        }
        for _ in 0..2 {
            node.call(unstage(volume, &staging)).await.unwrap();
            assert!(Path::new(&staging).is_dir());
        }
        for _ in 0..2 {
            node.call(detach(volume, &node.id)).await.unwrap();
        }
        assert!(world.mounts().is_empty());
    }
    assert_eq!(world.findings(), []);
    for node in [&world.n1, &world.n2] {
        let calls = node.entries().into_iter().filter_map(|entry| match entry {
            LogEntry::End(end) if CallSlot::of_call(end.call.rpc, &node.id).is_some() => {
                Some(end.call.volume_id)
            }
            _ => None,
        });
        let volume_ids: Vec<_> = calls.flatten().collect();
        assert!(
            !volume_ids.is_empty() && volume_ids.iter().all(|id| id == volume),
            "{}: {volume_ids:?}",
            node.id
        );
    }
}

#[tokio::test]
async fn without_attach_and_stage_a_volume_is_just_published() {
    let Some(world) = World::start("plain", &["--no-attach", "--no-stage"]).await else { return };
    world.provision("v");
    let (none, target) = (Context::new(), world.n1.target("t"));
    let call = publish("v", ("", &target), SingleNodeWriter, &none);
    world.n1.call(call).await.unwrap();
    fs::write(Path::new(&target).join("file"), "x").unwrap();
    world.n1.refused(stage("v", "/s", SingleNodeWriter, &none), Code::Unimplemented).await;
    world.n1.refused(attach("v", "n1", SingleNodeWriter), Code::Unimplemented).await;
    world.n1.call(unpublish("v", &target)).await.unwrap();
    assert!(world.mounts().is_empty());
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn readers_cannot_write() {
    let Some(world) = World::start("readers", &[]).await else { return };
    world.provision("asked");
    world.provision("mode");
    world.provision("attached");

    let context = world.stage(&world.n1, "asked", SingleNodeWriter).await;
    let (staging, target) = (world.n1.staging("asked"), world.n1.target("asked"));
    let mut readonly = publish("asked", (&staging, &target), SingleNodeWriter, &context);
    readonly.readonly = true;
    world.n1.call(readonly).await.unwrap();
    assert_read_only(&target);

    let context = world.stage(&world.n1, "mode", SingleNodeReaderOnly).await;
    let (staging, target) = (world.n1.staging("mode"), world.n1.target("mode"));
    let reader = publish("mode", (&staging, &target), SingleNodeReaderOnly, &context);
    world.n1.call(reader).await.unwrap();
    assert_read_only(&target);

    let mut readonly = attach("attached", "n1", SingleNodeWriter);
    readonly.readonly = true;
    let context = world.n2.call(readonly).await.unwrap().publish_context;
    let (staging, target) = (world.n1.staging("attached"), world.n1.target("attached"));
    world.n1.call(stage("attached", &staging, SingleNodeWriter, &context)).await.unwrap();
    let writer = publish("attached", (&staging, &target), SingleNodeWriter, &context);
    world.n1.call(writer).await.unwrap();
    assert_read_only(&target);
}

fn assert_read_only(target: &str) {
    let error = fs::write(Path::new(target).join("file"), "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{target}");
}

#[tokio::test]
async fn a_shared_volume_is_used_on_both_nodes_at_once() {
    let Some(world) = World::start("shared", &[]).await else { return };
    world.provision("v");
    for node in [&world.n1, &world.n2] {
        let context = world.stage(node, "v", MultiNodeMultiWriter).await;
        for target in [node.target("a"), node.target("b")] {
            let paths = (&*node.staging("v"), &*target);
            node.call(publish("v", paths, MultiNodeMultiWriter, &context)).await.unwrap();
        }
    }
    fs::write(Path::new(&world.n1.target("a")).join("file"), "x").unwrap();
    assert!(Path::new(&world.n2.target("b")).join("file").exists());
    // No node means all of them.
    for node in [&world.n1, &world.n2] {
        for target in [node.target("a"), node.target("b")] {
            node.call(unpublish("v", &target)).await.unwrap();
        }
        node.call(unstage("v", &node.staging("v"))).await.unwrap();
    }
    world.n1.call(detach("v", "")).await.unwrap();
    assert!(
        world.backend().volume("v").unwrap().unwrap().read_state().unwrap().attachments.is_empty()
    );
    assert_eq!(world.findings(), []);
}
