//! A volume's way onto the node, and what is left when it goes wrong half-way.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::claim::Grant;
use berth_contract::problem::Problem;
use berth_contract::stream;
use berth_domain::volume::{CallKind, MountOptions};
use berth_harness::{root, wait};
use serde_json::{Value, json};

use crate::world::{Differences, PATIENCE, World, call, grant};

#[tokio::test]
async fn a_volume_is_attached_mounted_written_to_and_taken_down() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = World::start().await;
    let context = world.attach(10).await;
    assert!(!context.is_empty());
    world.grant("a", 7, &context);
    let mounted = world.mount("a").await.unwrap();
    assert_eq!((mounted.epoch, mounted.read_only), (7, false));
    assert!(mounted.path.len() <= 128 && world.mounts().contains(&mounted.path.clone().into()));
    fs::write(Path::new(&mounted.path).join("file"), "kept").unwrap();

    // Asking again is answered the same, and the plugin is not asked again.
    let calls = world.calls();
    assert_eq!(calls, ["ControllerPublishVolume OK", "NodeStageVolume OK", "NodePublishVolume OK"]);
    assert_eq!(world.mount("a").await.unwrap(), mounted);
    assert_eq!(world.calls(), calls);
    let status = world.status().await.unwrap();
    assert_eq!(status.controllers.len(), 1);
    assert!(status.mounts[0].mounted && status.mounts[0].path == mounted.path);

    world.detach("a", 7, 11).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    assert!(world.status().await.unwrap().mounts.is_empty());
    // "Nothing here" is success, and the plugin is not asked what is known.
    let calls = world.calls();
    world.detach("a", 7, 12).await.unwrap();
    assert_eq!(world.calls(), calls);

    world.call(call(CallKind::ControllerUnpublish, "a", 7, 13)).await.unwrap();
    let data = walk(&world.dir.join("backend"), "file").expect("the workload's file is kept");
    assert_eq!(data, "kept");
    told(&world, &["volume.mounted", "volume.unmounted"]).await;
    world.judge();
}

/// The content of the first file of this name.
fn walk(dir: &Path, name: &str) -> Option<String> {
    fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, name)
        } else {
            (entry.file_name() == name).then(|| fs::read_to_string(path).unwrap())
        }
    })
}

/// Waits until the events of the volume are these.
async fn told(world: &World, expected: &[&str]) {
    let events = world.bus.events(&stream::EVENTS, 1).await.unwrap();
    wait::until("the events are there", PATIENCE, async || {
        let filter = "berth.v1.event.default.volume.data.>";
        let last = events.last(filter, 10, PATIENCE).await.map_err(|error| error.to_string())?;
        let names: Vec<Value> = last
            .iter()
            .map(|event| serde_json::from_slice::<Value>(&event.body).unwrap()["event"].clone())
            .collect();
        if names == expected { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_plugin_without_controller_and_staging_is_only_asked_to_publish() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let driver = ["--no-controller", "--no-stage"];
    let world = World::start_with(Differences { driver: &driver, ..Default::default() }).await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    world.detach("a", 7, 11).await.unwrap();
    assert_eq!(world.calls(), ["NodePublishVolume OK", "NodeUnpublishVolume OK"]);
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    let refused = world.call(call(CallKind::ControllerPublish, "a", 7, 12)).await.unwrap_err();
    assert_eq!(refused.code, Code::NoResponder, "it has no controller: {refused}");
    world.judge();
}

#[tokio::test]
async fn a_claim_that_is_refused_is_told_and_one_that_is_not_ready_is_asked_for_again() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = World::start_with(no_attach()).await;
    world.answer_take("a", Err(Problem::new(Code::Held, "held by b")));
    let refused = world.mount("a").await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (Code::Held, "held by b"));
    assert_eq!(refused.step.as_deref(), Some("claim.take"));
    assert_eq!(refused.volume.as_deref(), Some("default/data"));

    world.answer_take("a", Err(Problem::new(Code::Busy, "not yet").retryable()));
    let late = world.mount_within("a", Duration::from_millis(500)).await.unwrap_err();
    // Or the last question came too late to be taken up.
    assert!(matches!(late.code, Code::Busy | Code::NoAnswer | Code::Late), "{late}");
    let (mounted, ()) = tokio::join!(world.mount("a"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.grant("a", 7, &BTreeMap::new());
    });
    assert_eq!(mounted.unwrap().epoch, 7);
}

fn no_attach() -> Differences<'static> {
    Differences { driver: &["--no-attach"], ..Default::default() }
}

/// The plugin may have done what it says has failed: it stays known, and is taken down.
#[tokio::test]
async fn what_failed_half_way_is_taken_down_all_the_same() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = World::start_with(no_attach()).await;
    world.grant("a", 7, &BTreeMap::new());
    world.plant(&json!([{"rpc": "NodePublishVolume", "when": "after", "code": "INTERNAL"}]));
    let failed = world.mount("a").await.unwrap_err();
    assert_eq!((failed.code, failed.retryable), (Code::PluginFailed, true), "{failed}");
    assert_eq!(failed.step.as_deref(), Some("node.publish"));
    assert_eq!(failed.plugin.as_deref(), Some("dev.berth"));
    assert_eq!(failed.node.as_deref(), Some("n.1"));
    assert!(failed.message.contains("NodePublishVolume"), "{failed}");
    assert!(failed.message.contains("INTERNAL"), "{failed}");
    let status = world.status().await.unwrap();
    assert!(status.mounts[0].mounted, "done, whatever was answered: {status:?}");

    world.detach("a", 7, 11).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

/// Somebody unmounts the staging behind everybody's back: another alloc's use is no proof any more.
#[tokio::test]
async fn a_plugin_that_says_it_is_not_staged_is_asked_to_stage_again() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = World::start_with(no_attach()).await;
    for alloc in ["a", "b"] {
        world.grant(alloc, 7, &BTreeMap::new());
    }
    world.mount("a").await.unwrap();
    let staging = world.mounts().into_iter().find(|path| path.ends_with("staging")).unwrap();
    let unmounted = std::process::Command::new("umount").arg(&staging).status().unwrap();
    assert!(unmounted.success());
    world.mount("b").await.unwrap();
    assert_eq!(world.count("NodeStageVolume OK"), 2);
    for (alloc, revision) in [("a", 11), ("b", 12)] {
        world.detach(alloc, 7, revision).await.unwrap();
    }
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

/// A staged volume has one set of mount options. An alloc with other options is refused until the
/// allocs before it have left.
#[tokio::test]
async fn other_mount_options_than_those_it_is_staged_with_wait_for_their_turn() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let driver = ["--no-attach"];
    let mut world = World::start_with(Differences { driver: &driver, ..Default::default() }).await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    let mount = MountOptions { flags: vec!["noexec".to_owned()], ..MountOptions::default() };
    world.answer_take("b", Ok(Grant { mount, ..grant("b", 8, &BTreeMap::new()) }));
    let calls = world.calls();
    let told_apart = async |world: &World| {
        let refused = world.mount("b").await.unwrap_err();
        assert_eq!((refused.code, refused.retryable), (Code::MountOptionsRefused, true));
        let says = |what: &str| refused.message.contains(what);
        assert!(says("alloc a") && !says("noexec"), "{refused}");
    };
    told_apart(&world).await;
    // Who has the volume with which options is in the journal, and flags themselves are not.
    world.replace_agent(&[]);
    world.healthy_now().await;
    told_apart(&world).await;
    assert_eq!(world.calls(), calls, "nothing was asked of the plugin");

    world.detach("a", 7, 11).await.unwrap();
    let path = world.mount("b").await.unwrap().path;
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(&path)).unwrap();
    assert!(line.contains("noexec"), "{line}");
    world.detach("b", 8, 12).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}
