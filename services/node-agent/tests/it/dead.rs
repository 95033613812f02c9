//! What is mounted and does not answer is seen, told and brought back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use berth_contract::code::Code;
use berth_contract::message::agent::{
    MountHealth, MountState, MountStatus, Republish, Republished,
};
use berth_contract::problem::Problem;
use berth_contract::stream;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, VolumeId};
use berth_harness::fuse::{fuse_or_skip, mount_hanging};
use berth_harness::{root, wait};
use nix::mount::{MntFlags, umount2};
use serde_json::Value;

use crate::world::{Differences, PATIENCE, World, id, node};

/// How often the agent looks at its mounts here.
pub const LOOKS: &str = "look_interval_ms = 100";

async fn world() -> World {
    World::start_with(Differences { driver: &["--no-attach"], agent: LOOKS }).await
}

/// Waits until the alloc's mount is seen so.
pub async fn seen(world: &World, alloc: &str, health: MountHealth) -> MountStatus {
    wait::until(&format!("{alloc} is seen as {health:?}"), PATIENCE, async || {
        let status = world.status().await.map_err(|problem| problem.to_string())?;
        let mount = status.mounts.into_iter().find(|mount| mount.alloc == id(alloc));
        let mount = mount.ok_or("it is not listed")?;
        if mount.health == health { Ok(mount) } else { Err(format!("{mount:?}")) }
    })
    .await
}

pub async fn republish(world: &World, alloc: Option<&str>) -> Result<Republished, Problem> {
    ask_republish(world, alloc, false).await
}

async fn ask_republish(
    world: &World,
    alloc: Option<&str>,
    force: bool,
) -> Result<Republished, Problem> {
    let request = Republish {
        namespace: Namespace::default(),
        volume: VolumeId::new("data").unwrap(),
        alloc: alloc.map(id),
        force,
    };
    world.ask(&verb::AgentRepublish::subject(&node()), &request, PATIENCE).await
}

/// The events of this name so far, each as alloc and detail.
pub async fn told(world: &World, name: &str) -> Vec<(String, String)> {
    let events = world.bus.events(&stream::EVENTS, 1).await.unwrap();
    let filter = "berth.v1.event.default.volume.data.>";
    let all = events.last(filter, 1_000, PATIENCE).await.unwrap();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let of = all.iter().map(|event| serde_json::from_slice::<Value>(&event.body).unwrap());
    let of = of.filter(|event| event["event"] == name);
    of.map(|event| (text(&event, "alloc"), text(&event, "detail"))).collect()
}

/// The mount table names it still, and it answers: but what is written there is lost.
/// The calls that ended, without those that look after a mount each minute.
fn changes(world: &World) -> Vec<String> {
    let mut calls = world.calls();
    calls.retain(|call| !call.starts_with("NodeGetVolumeStats"));
    calls
}

#[tokio::test]
async fn a_bind_whose_source_was_deleted_is_shown_as_dead() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world().await;
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    seen(&world, "a", MountHealth::Well).await;
    let volumes = fs::read_dir(world.dir.join("backend/volumes")).unwrap();
    let sources: Vec<_> = volumes.map(|volume| volume.unwrap().path().join("data")).collect();
    let [source] = &sources[..] else { panic!("one volume: {sources:?}") };
    fs::remove_dir(source).unwrap();
    let dead = seen(&world, "a", MountHealth::Dead).await;
    let trouble = dead.trouble.clone().unwrap();
    assert!(trouble.contains("was deleted") && trouble.contains("/data"), "{trouble}");
    assert!(dead.mounted && dead.health_since.is_some(), "the mount itself is there: {dead:?}");
    wait::until("it is told", PATIENCE, async || {
        let told = told(&world, "volume.mount-dead").await;
        match &told[..] {
            [(alloc, detail)] if alloc == "a" && detail.contains("was deleted") => Ok(()),
            _ => Err(format!("{told:?}")),
        }
    })
    .await;
    // Nobody is given it any more.
    let refused = world.mount("a").await.unwrap_err();
    assert!(
        refused.message.contains(&path) && refused.message.contains("was deleted"),
        "{refused}"
    );
    // The driver takes it for a stranger's: it goes by hand, and then the release is not kept up.
    fs::create_dir(source).unwrap();
    for point in world.mounts().iter().rev() {
        umount2(point, MntFlags::empty()).unwrap();
    }
    world.detach("a", 7, 8).await.unwrap();
    assert!(world.mounts().is_empty());
}

#[tokio::test]
async fn a_mount_that_somebody_unmounted_is_seen_told_and_brought_back() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world().await;
    for (alloc, epoch) in [("a", 7), ("b", 8)] {
        world.grant(alloc, epoch, &BTreeMap::new());
    }
    let path = world.mount("a").await.unwrap().path;
    world.mount("b").await.unwrap();
    fs::write(Path::new(&path).join("file"), "kept").unwrap();
    let well = seen(&world, "a", MountHealth::Well).await;
    assert_eq!((well.state, well.mounted, well.staged), (MountState::Published, true, true));
    umount2(Path::new(&path), MntFlags::empty()).unwrap();
    let missing = seen(&world, "a", MountHealth::Missing).await;
    assert!(!missing.mounted && !missing.earlier_boot, "{missing:?}");
    wait::until("it is told once", PATIENCE, async || {
        let told = told(&world, "volume.mount-dead").await;
        match &told[..] {
            [(alloc, detail)] if alloc == "a" && detail.contains(&path) => Ok(()),
            _ => Err(format!("{told:?}")),
        }
    })
    .await;
    seen(&world, "b", MountHealth::Well).await;

    // The other's mount is left alone: the staging is not touched.
    let before = changes(&world).len();
    let again = republish(&world, Some("a")).await.unwrap();
    assert_eq!((again.mounts.len(), &again.mounts[0].path), (1, &path));
    assert_eq!(changes(&world)[before..], ["NodeUnpublishVolume OK", "NodePublishVolume OK"]);
    assert_eq!(fs::read_to_string(Path::new(&path).join("file")).unwrap(), "kept");
    seen(&world, "a", MountHealth::Well).await;
    wait::until("it is told that it answers", PATIENCE, async || {
        let told = told(&world, "volume.mount-well").await;
        if told.len() == 1 { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;

    // What is well stays mounted, for one and for all.
    let before = changes(&world).len();
    for alloc in [Some("a"), None] {
        let refused = republish(&world, alloc).await.unwrap_err();
        assert_eq!(refused.code, Code::MountWell, "{refused}");
        assert!(refused.next.contains("republish data --node n.1 --force"), "{refused}");
    }
    assert_eq!(changes(&world).len(), before, "nothing was asked of the plugin");

    // By force all mounts are taken down, and the staging is mounted again as well.
    assert_eq!(ask_republish(&world, None, true).await.unwrap().mounts.len(), 2);
    let expected = [
        "NodeUnpublishVolume OK",
        "NodeUnpublishVolume OK",
        "NodeUnstageVolume OK",
        "NodeStageVolume OK",
        "NodePublishVolume OK",
        "NodePublishVolume OK",
    ];
    assert_eq!(changes(&world)[before..], expected);
    for (alloc, epoch) in [("a", 7), ("b", 8)] {
        world.detach(alloc, epoch, 10 + epoch).await.unwrap();
    }
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    assert_eq!(told(&world, "volume.mount-dead").await.len(), 1, "a detach is no death");
    world.judge();
}

#[tokio::test]
async fn what_cannot_be_brought_back_is_refused_in_words() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world().await;
    let nothing = republish(&world, None).await.unwrap_err();
    assert_eq!(nothing.code, Code::NoSuchClaim, "{nothing}");
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    let calls = changes(&world);
    let ended = Problem::new(Code::AllocTerminal, "the alloc has ended");
    world.answer_take("a", Err(ended));
    let refused = ask_republish(&world, None, true).await.unwrap_err();
    assert_eq!(refused.code, Code::AllocTerminal, "{refused}");
    assert!(refused.message.contains("alloc a:"), "{refused}");
    // Another claim than the one it is mounted by.
    world.grant("a", 9, &BTreeMap::new());
    let other = ask_republish(&world, Some("a"), true).await.unwrap_err();
    assert_eq!(other.code, Code::GrantVoid, "{other}");
    assert_eq!(changes(&world), calls, "nothing was asked of the plugin");

    // A workload holds it.
    world.grant("a", 7, &BTreeMap::new());
    let held = File::create(Path::new(&path).join("file")).unwrap();
    let busy = ask_republish(&world, Some("a"), true).await.unwrap_err();
    assert!(busy.next.contains("fuser"), "{busy}");
    let status = world.status().await.unwrap();
    assert_eq!(status.mounts[0].state, MountState::Begun, "any of the calls may have been made");
    let failed = status.failures.first().expect("the failure is shown");
    // Of this claim it is the first failure: the one before was of another.
    assert_eq!((failed.step.as_str(), failed.tries), ("agent.republish", 1), "{failed:?}");
    assert!(failed.failure.message.contains("in use"), "{failed:?}");
    drop(held);
    republish(&world, Some("a")).await.unwrap();
    let status = world.status().await.unwrap();
    assert!(status.failures.is_empty() && status.mounts[0].state == MountState::Published);
    world.detach("a", 7, 11).await.unwrap();
    world.judge();
}

/// A FUSE server that does not answer, and then dies: its kernel side is the real one.
#[tokio::test]
async fn a_mount_that_hangs_and_then_dies_delays_nobody() {
    if !root::or_skip("mounts a volume") || !fuse_or_skip("a mount that hangs") {
        return;
    }
    // Without questions about its condition: one that is on its way when the mount begins to hang
    // would hang with it, and a plugin may do nothing else for the volume meanwhile.
    let driver = &["--no-attach", "--without", "condition"];
    let world = World::start_with(Differences { driver, agent: LOOKS }).await;
    for (alloc, epoch) in [("a", 7), ("b", 8)] {
        world.grant(alloc, epoch, &BTreeMap::new());
    }
    let path = world.mount("a").await.unwrap().path;
    seen(&world, "a", MountHealth::Well).await;
    // In the place of what the plugin mounted, so that nothing but the mount itself is another.
    umount2(Path::new(&path), MntFlags::empty()).unwrap();
    let server = mount_hanging(Path::new(&path));
    let hung = seen(&world, "a", MountHealth::Hung).await;
    assert!(hung.mounted && hung.health_since.is_some(), "{hung:?}");
    // Nobody is given what does not answer, and it is said what brings it back.
    let asked = Instant::now();
    let refused = world.mount_within("a", Duration::from_secs(2)).await.unwrap_err();
    assert!(refused.retryable && refused.next.contains("berth volume republish"), "{refused}");
    assert!(refused.message.contains("has not answered"), "{refused}");
    assert!(asked.elapsed() < Duration::from_secs(10), "the caller's time was not kept");
    // Whoever else is here goes on, and the agent answers at once.
    world.mount("b").await.unwrap();
    seen(&world, "b", MountHealth::Well).await;
    world.detach("b", 8, 11).await.unwrap();

    drop(server);
    let dead = seen(&world, "a", MountHealth::Dead).await;
    assert!(dead.trouble.unwrap().contains("not connected"), "ENOTCONN in words");
    wait::until("both are told", PATIENCE, async || {
        let told = told(&world, "volume.mount-dead").await;
        let says = |what: &str| told.iter().any(|(_, detail)| detail.contains(what));
        if says("not connected") { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    let before = changes(&world);
    let refused = world.mount("a").await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::MountFailed, false), "{refused}");
    assert!(refused.message.contains("not connected"), "{refused}");
    assert!(refused.next.contains("berth volume republish data --node n.1 --alloc a"), "{refused}");
    assert_eq!(changes(&world), before, "what may be held is not taken down unasked");
    // This plugin leaves the mounts of others alone, and the refusal says so.
    let refused = republish(&world, None).await.unwrap_err();
    assert!(refused.next.contains("fuser"), "{refused}");
    umount2(Path::new(&path), MntFlags::empty()).unwrap();
    republish(&world, None).await.unwrap();
    assert_eq!(world.mount("a").await.unwrap().path, path, "and it is given as good again");
    seen(&world, "a", MountHealth::Well).await;
    world.detach("a", 7, 12).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

/// What `agent.status` says of a call that hangs, and for how long.
#[tokio::test]
async fn a_hung_unmount_is_shown_as_hung_with_its_age_and_its_tries() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world().await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    world.plant(&serde_json::json!([{"rpc": "NodeUnpublishVolume", "hang": true}]));
    let mut call = crate::world::call(berth_domain::volume::CallKind::NodeDetach, "a", 7, 11);
    call.deadline = berth_service::clock::now().after(Duration::from_millis(300));
    let late = world.call(call).await.unwrap_err();
    assert_eq!((late.code, late.retryable), (Code::NoAnswer, true), "{late}");
    let mut call = crate::world::call(berth_domain::volume::CallKind::NodeDetach, "a", 7, 12);
    call.deadline = berth_service::clock::now().after(Duration::from_millis(300));
    let busy = world.call(call).await.unwrap_err();
    assert_eq!(busy.code, Code::StillBusy, "{busy}");

    let status = world.status().await.unwrap();
    let [work] = &status.work[..] else { panic!("{status:?}") };
    assert!(work.hung && work.step == "agent.detach", "{work:?}");
    assert_eq!(work.rpc.as_deref(), Some("NodeUnpublishVolume"));
    assert!(work.since <= work.rpc_since.unwrap());
    let [failed] = &status.failures[..] else { panic!("{status:?}") };
    assert_eq!(failed.tries, 2, "{failed:?}");
    let [mount] = &status.mounts[..] else { panic!("{status:?}") };
    assert_eq!((mount.state, mount.mounted), (MountState::Leaving, true), "{mount:?}");

    // A request past its deadline is dropped; a new request is served.
    world.plant(&serde_json::json!([]));
    world.detached("the next try is let in", "a", 7, 13).await;
    wait::until("it is done, and nothing hangs", PATIENCE, async || {
        let status = world.status().await.map_err(|problem| problem.to_string())?;
        let clean = status.work.is_empty() && status.failures.is_empty();
        if clean && status.mounts.is_empty() { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}
