//! What the agent did not mount, it does not unmount.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use berth_contract::code::Code;
use berth_contract::message::claim::{Grant, View};
use berth_domain::access::Mode;
use berth_domain::volume::MountOptions;
use berth_harness::{root, wait};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::reboot::Boot;
use crate::world::{Differences, PATIENCE, World, grant};

async fn world() -> World {
    let driver: &[&str] = &["--no-attach"];
    let world = World::start_with(Differences { driver, ..Default::default() }).await;
    fs::create_dir_all(world.dir.join("binds/data")).unwrap();
    world
}

/// Mounts a foreign file system, with a file in it.
fn mount_theirs(at: &Path) {
    let none = None::<&Path>;
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    fs::write(at.join("theirs"), "theirs").unwrap();
}

async fn is_released(world: &World, alloc: &str, revision: u64) {
    wait::until("it is taken down", PATIENCE, async || {
        world.detach(alloc, 7, revision).await.map(drop).map_err(|problem| problem.to_string())
    })
    .await;
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

/// The target is unmounted by hand as well, so that it cannot be compared with.
#[tokio::test]
async fn a_mount_of_somebody_else_is_left_alone_and_named() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world().await;
    let path = world.dir.join("binds/data");
    world.answer_take("a", Ok(grant("a", 7, &BTreeMap::new())));
    world.mount_as("a", None, Some(&path)).await.unwrap();
    let target = world.status().await.unwrap().mounts[0].path.clone();
    for at in [&path, Path::new(&target)] {
        umount2(at, MntFlags::empty()).unwrap();
    }
    mount_theirs(&path);

    let refused = world.detach("a", 7, 11).await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::ForeignMount, true), "{refused}");
    let look = format!("findmnt --mountpoint {}", path.display());
    assert!(refused.message.contains(&look) && refused.message.contains("tmpfs"), "{refused}");
    assert_eq!(fs::read_to_string(path.join("theirs")).unwrap(), "theirs");
    let failures = world.status().await.unwrap().failures;
    assert!(failures.iter().any(|failure| failure.failure.message.contains(&look)), "{failures:?}");
    assert_eq!(world.count("NodeUnstageVolume OK"), 0);

    umount2(&path, MntFlags::empty()).unwrap();
    is_released(&world, "a", 12).await;
}

/// Its flags may differ from ours, and its owner is unknown.
#[tokio::test]
async fn a_mount_of_somebody_else_that_shows_the_volume_is_not_taken_for_ours() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world().await;
    let path = world.dir.join("binds/data");
    world.answer_take("a", Ok(grant("a", 7, &BTreeMap::new())));
    world.mount_as("a", None, Some(&path)).await.unwrap();
    let target = world.status().await.unwrap().mounts[0].path.clone();
    umount2(&path, MntFlags::empty()).unwrap();
    mount(Some(Path::new(&target)), &path, None::<&Path>, MsFlags::MS_BIND, None::<&Path>).unwrap();
    let refused = world.mount_as("a", None, Some(&path)).await.unwrap_err();
    assert_eq!(refused.code, Code::PathRefused, "{refused}");
    umount2(&path, MntFlags::empty()).unwrap();
    world.mount_as("a", None, Some(&path)).await.unwrap();
    is_released(&world, "a", 12).await;
}

/// Also one that lies upon ours, and one that shows the volume itself.
#[tokio::test]
async fn a_mount_upon_ours_is_left_alone() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world().await;
    let path = world.dir.join("binds/data");
    world.answer_take("a", Ok(grant("a", 7, &BTreeMap::new())));
    world.mount_as("a", None, Some(&path)).await.unwrap();
    let target = world.status().await.unwrap().mounts[0].path.clone();
    mount(Some(Path::new(&target)), &path, None::<&Path>, MsFlags::MS_BIND, None::<&Path>).unwrap();
    let refused = world.detach("a", 7, 11).await.unwrap_err();
    assert_eq!(refused.code, Code::ForeignMount, "{refused}");
    umount2(&path, MntFlags::empty()).unwrap();
    is_released(&world, "a", 12).await;
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

/// The agent is killed before it wrote down which mount it made.
#[tokio::test]
async fn a_mount_that_was_only_intended_is_proven_by_what_it_shows_and_where() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world().await;
    let path = world.dir.join("binds/data");
    let view = View { place: 1, mode: Mode::Read, mount: MountOptions::default() };
    let granted = Grant { view: Some(view), ..grant("a", 7, &BTreeMap::new()) };
    world.answer_take("a", Ok(granted));
    world.mount_as("a", Some("look"), Some(&path)).await.unwrap();
    world.agent.kill9();
    let found = Command::new("find")
        .arg(world.dir.join("state/csi"))
        .args(["-name", "proof-*"])
        .output()
        .unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.lines().count(), 2, "of the view and of the path: {found}");
    for file in found.lines() {
        let text = fs::read_to_string(file).unwrap();
        let mut proof: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(proof["id"].is_u64(), "{proof}");
        proof["id"] = serde_json::Value::Null;
        proof["unique_id"] = serde_json::Value::Null;
        fs::write(file, proof.to_string()).unwrap();
    }
    world.agent.restart();
    world.healthy_now().await;
    is_released(&world, "a", 11).await;
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

/// A boot ends every mount: what is at the path now was not mounted by the agent.
#[tokio::test]
async fn after_a_boot_what_is_mounted_at_a_callers_path_is_left_alone() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let mut world = world().await;
    let path = world.dir.join("binds/data");
    let first = Boot::begin(&world, "boot-1").await;
    first.carry_with(&mut world, &["--no-attach"]).await;
    world.answer_take("a", Ok(grant("a", 7, &BTreeMap::new())));
    world.mount_as("a", None, Some(&path)).await.unwrap();
    assert!(first.mounts(world.dir.path()).contains(&path));

    world.agent.kill9();
    world.driver.kill9();
    first.end();
    let second = Boot::begin(&world, "boot-2").await;
    second.run("mount", &["-t", "tmpfs", "tmpfs", path.to_str().unwrap()]);
    second.carry_with(&mut world, &["--no-attach"]).await;
    world.detached("it is taken down", "a", 7, 21).await;
    assert!(second.mounts(world.dir.path()).contains(&path), "it is not the agent's");
    assert_eq!(world.leftovers(), [""; 0].map(std::path::PathBuf::from));
    world.judge();
}

/// Also in the agent's own directory: the plugin would unmount whatever is there.
#[tokio::test]
async fn what_is_mounted_where_the_volume_was_published_or_staged_is_left_alone() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world().await;
    for (alloc, epoch, is_staging) in [("a", 7, false), ("b", 8, true)] {
        world.answer_take(alloc, Ok(grant(alloc, epoch, &BTreeMap::new())));
        world.mount(alloc).await.unwrap();
        let mounts = world.status().await.unwrap().mounts;
        let (target, staging) = (mounts[0].path.clone(), mounts[0].staging.clone().unwrap());
        umount2(target.as_str(), MntFlags::empty()).unwrap();
        let at = if is_staging { staging } else { target };
        if is_staging {
            umount2(at.as_str(), MntFlags::empty()).unwrap();
        }
        mount_theirs(Path::new(&at));
        let refused = world.detach(alloc, epoch, epoch * 10).await.unwrap_err();
        assert_eq!((refused.code, refused.retryable), (Code::ForeignMount, true), "{refused}");
        assert!(refused.message.contains(&at) && refused.message.contains("tmpfs"), "{refused}");
        assert_eq!(fs::read_to_string(Path::new(&at).join("theirs")).unwrap(), "theirs");
        umount2(at.as_str(), MntFlags::empty()).unwrap();
        world.detach(alloc, epoch, epoch * 10 + 1).await.unwrap();
        assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    }
    world.judge();
}

/// And where the volume is to be seen under another name, before it is mounted there again.
#[tokio::test]
async fn after_a_boot_what_is_mounted_in_place_of_a_view_is_left_alone() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let mut world = world().await;
    let first = Boot::begin(&world, "boot-1").await;
    first.carry_with(&mut world, &["--no-attach"]).await;
    let view = View { place: 1, mode: Mode::Read, mount: MountOptions::default() };
    let granted = Grant { view: Some(view), ..grant("a", 7, &BTreeMap::new()) };
    world.answer_take("a", Ok(granted));
    let view = world.mount_as("a", Some("look"), None).await.unwrap().path;
    assert!(first.mounts(world.dir.path()).contains(Path::new(&view)));

    world.agent.kill9();
    world.driver.kill9();
    first.end();
    let second = Boot::begin(&world, "boot-2").await;
    second.run("mount", &["-t", "tmpfs", "theirs", &view]);
    second.carry_with(&mut world, &["--no-attach"]).await;
    // Also once the volume itself is back.
    for _ in 0..2 {
        let refused = world.mount_as("a", Some("look"), None).await.unwrap_err();
        assert_eq!((refused.code, refused.retryable), (Code::ForeignMount, true), "{refused}");
        second.run("grep", &["-q", &format!(" {view} .* tmpfs theirs "), "/proc/self/mountinfo"]);
    }
    second.run("umount", &[&view]);
    world.mount_as("a", Some("look"), None).await.unwrap();
    world.detach("a", 7, 21).await.unwrap();
    assert_eq!(world.leftovers(), [""; 0].map(std::path::PathBuf::from));
}
