//! A volume is not released while a process has it in a mount namespace of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_harness::process::Daemon;
use berth_harness::{namespace, root, wait};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::world::{Differences, PATIENCE, World, hold};

const NONE: Option<&str> = None;

async fn without_attach() -> World {
    World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await
}

/// Runs `script` in a mount namespace of its own, and waits until it has made the file `there`.
async fn in_namespace(world: &World, propagation: &str, script: &str) -> Daemon {
    let there = world.dir.join("there");
    let _ = fs::remove_file(&there);
    let script = format!("{script}; echo > {}; exec sleep 1000", there.display());
    let log = world.dir.join("holder.log");
    let holder =
        namespace::shell("holder", &log, propagation, &world.dir.join(""), &script).start();
    wait::until("the holder is there", PATIENCE, async || {
        if there.exists() { Ok(()) } else { Err(holder.log()) }
    })
    .await;
    holder
}

fn assert_names(refused: &Problem, holder: &Daemon) {
    assert_eq!(refused.code, Code::VolumeHeldByProcess, "{refused}");
    assert!(refused.retryable, "{refused}");
    let pid = format!("process {} (sleep)", holder.pid());
    assert!(refused.message.contains(&pid), "{refused} {pid}");
    assert!(refused.message.contains("mount namespace mnt:["), "{refused}");
}

#[tokio::test]
async fn a_release_waits_for_a_process_that_has_the_volume_in_its_own_namespace() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    let holder = in_namespace(&world, "private", &format!("cd {path}")).await;
    let refused = world.detach("a", 7, 11).await.unwrap_err();
    assert_names(&refused, &holder);
    assert!(refused.message.contains(&path), "{refused}");
    assert!(refused.message.contains("uses it there"), "{refused}");
    assert_eq!(world.count("NodeUnpublishVolume OK"), 0, "nothing is unmounted under it");
    // The node's status names it as well.
    let status = world.status().await.unwrap();
    assert!(status.failures[0].failure.message.contains("(sleep)"), "{status:?}");
    let refused = world.detach("a", 7, 12).await.unwrap_err();
    assert_names(&refused, &holder);
    drop(holder);
    world.detach("a", 7, 13).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

/// A build, a shell or another program of the host: it got a copy of each mount, and uses none.
#[tokio::test]
async fn the_copies_that_an_idle_namespace_inherited_are_unmounted_there() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    let holder = in_namespace(&world, "private", ":").await;
    let csi = format!(" {}/", world.dir.join("state/csi").display());
    let has = || {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", holder.pid())).unwrap();
        table.contains(&csi)
    };
    assert!(has(), "it has inherited the mounts");
    world.detach("a", 7, 11).await.unwrap();
    assert!(holder.is_running() && !has());
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

/// As a container has it: a part of the volume, at another path, and our own path is gone.
#[tokio::test]
async fn a_part_of_the_volume_at_another_path_is_the_volume() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    let (part, data) = (Path::new(&path).join("part"), world.dir.join("data"));
    fs::create_dir_all(&part).unwrap();
    fs::create_dir_all(&data).unwrap();
    let csi = world.dir.join("state/csi");
    let script = format!(
        "mount --bind {} {}; for at in $(grep -o '{}[^ ]*' /proc/self/mountinfo | sort -r); do \
         umount $at; done; cd {}",
        part.display(),
        data.display(),
        csi.display(),
        data.display(),
    );
    let holder = in_namespace(&world, "private", &script).await;
    let refused = world.detach("a", 7, 11).await.unwrap_err();
    assert_names(&refused, &holder);
    assert!(refused.message.contains(&format!("mounted at {}", data.display())), "{refused}");
    // Also once the agent's own mounts are gone, and after it was restarted.
    for mount in world.mounts().iter().rev() {
        umount2(mount, MntFlags::empty()).unwrap();
    }
    assert_names(&world.detach("a", 7, 12).await.unwrap_err(), &holder);
    world.agent.restart();
    world.healthy_now().await;
    assert_names(&world.detach("a", 7, 13).await.unwrap_err(), &holder);
    drop(holder);
    world.detach("a", 7, 14).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

/// The kernel unmounts the copies in a slave namespace together with ours.
#[tokio::test]
async fn a_mount_that_goes_with_ours_delays_nothing() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    let dir = world.dir.join("state/csi");
    fs::create_dir_all(&dir).unwrap();
    mount(Some(&dir), &dir, NONE, MsFlags::MS_BIND, NONE).unwrap();
    mount(NONE, &dir, NONE, MsFlags::MS_SHARED, NONE).unwrap();
    world.grant("a", 7, &BTreeMap::new());
    world.mount("a").await.unwrap();
    let holder = in_namespace(&world, "slave", ":").await;
    let has = |path: &Path| {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", holder.pid())).unwrap();
        table.contains(&format!(" {}/", path.display()))
    };
    assert!(has(&dir), "it has inherited the mounts");
    world.detach("a", 7, 11).await.unwrap();
    assert!(!has(&dir), "they went with ours");
    drop(holder);
    umount2(&dir, MntFlags::empty()).unwrap();
    world.judge();
}

/// The bind is in the agent's own namespace. The release of an alloc that shares the node's staging
/// with another does not wait for it.
#[tokio::test]
async fn a_bind_by_hand_holds_the_last_release_and_no_other() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    for alloc in ["a", "b"] {
        world.grant(alloc, 7, &BTreeMap::new());
    }
    world.mount("a").await.unwrap();
    let path = world.mount("b").await.unwrap().path;
    let data = world.dir.join("data");
    fs::create_dir_all(&data).unwrap();
    mount(Some(Path::new(&path)), &data, NONE, MsFlags::MS_BIND, NONE).unwrap();
    world.detach("a", 7, 11).await.unwrap();
    let refused = world.detach("b", 7, 12).await.unwrap_err();
    assert_eq!(refused.code, Code::VolumeHeldByProcess, "{refused}");
    assert!(refused.message.contains(&data.display().to_string()), "{refused}");
    umount2(&data, MntFlags::empty()).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.detach("b", 7, 13).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

/// The first check found no holder: the process takes the volume after it.
#[tokio::test]
async fn a_process_that_takes_the_volume_during_the_release_keeps_it() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    let dir = world.dir.join("state/csi");
    fs::create_dir_all(&dir).unwrap();
    mount(Some(&dir), &dir, NONE, MsFlags::MS_BIND, NONE).unwrap();
    mount(NONE, &dir, NONE, MsFlags::MS_SHARED, NONE).unwrap();
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    let (go, data, done) =
        (world.dir.join("go"), world.dir.join("data"), world.dir.join("data/done"));
    fs::create_dir(&data).unwrap();
    let script = format!(
        "(until [ -e {} ]; do sleep 0.02; done; mount --bind {path} {}; echo > {}) &",
        go.display(),
        data.display(),
        done.display()
    );
    let holder = in_namespace(&world, "slave", &format!("{script} :")).await;
    world.plant(&hold("NodeUnpublishVolume"));
    let taken = async {
        wait::until("the release is under way", PATIENCE, async || {
            let log = world.log();
            let is_begun = log.iter().any(|entry| entry["rpc"] == "NodeUnpublishVolume");
            if is_begun { Ok(()) } else { Err(format!("{log:?}")) }
        })
        .await;
        fs::write(&go, "").unwrap();
        let through = Path::new(&path).join("done");
        wait::until("it is taken", PATIENCE, async || {
            if through.exists() { Ok(()) } else { Err(holder.log()) }
        })
        .await;
        world.let_go().await;
    };
    let (refused, ()) = tokio::join!(world.detach("a", 7, 11), taken);
    let refused = refused.unwrap_err();
    assert_names(&refused, &holder);
    assert!(refused.message.contains(&data.display().to_string()), "{refused}");
    assert_eq!(world.count("NodeUnpublishVolume OK"), 1, "ours is gone");
    assert_eq!(world.status().await.unwrap().mounts.len(), 1, "its use is not over");
    assert_names(&world.detach("a", 7, 12).await.unwrap_err(), &holder);
    drop(holder);
    world.detach("a", 7, 13).await.unwrap();
    umount2(&dir, MntFlags::empty()).unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

/// When the agent's mount goes, the kernel keeps a copy that has something mounted in it. Once the
/// directory of the copy is removed, no mount table shows it.
#[tokio::test]
async fn a_mount_in_use_that_would_not_go_with_ours_keeps_the_volume() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    let dir = world.dir.join("state/csi");
    fs::create_dir_all(&dir).unwrap();
    mount(Some(&dir), &dir, NONE, MsFlags::MS_BIND, NONE).unwrap();
    mount(NONE, &dir, NONE, MsFlags::MS_SHARED, NONE).unwrap();
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    let (part, file) = (Path::new(&path).join("part"), Path::new(&path).join("file"));
    fs::create_dir(&part).unwrap();
    let script = format!("mount -t tmpfs theirs {} && exec 3>{}", part.display(), file.display());
    let holder = in_namespace(&world, "slave", &script).await;
    assert_names(&world.detach("a", 7, 11).await.unwrap_err(), &holder);
    assert_eq!(world.count("NodeUnpublishVolume OK"), 0, "nothing is unmounted under it");
    drop(holder);
    world.detach("a", 7, 13).await.unwrap();
    umount2(&dir, MntFlags::empty()).unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

/// A shell whose working directory is in the mount, and a program with a file of it open: the
/// kernel refuses the unmount, and the plugin says so in its own words.
#[tokio::test]
async fn a_plain_process_in_the_mount_is_named_with_its_pid() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    world.grant("a", 7, &BTreeMap::new());
    let path = world.mount("a").await.unwrap().path;
    let held_by = |refused: &Problem, pid: u32| {
        assert_eq!(refused.code, Code::VolumeHeldByProcess, "{refused}");
        assert!(refused.retryable && refused.message.contains("still mounted at"), "{refused}");
        // A child that another test is just starting may be named as well.
        assert!(refused.processes.iter().any(|one| one.pid == pid), "{refused}");
        assert!(refused.next.contains("end these processes"), "{}", refused.next);
    };
    let mut shell = Command::new("sleep").arg("1000").current_dir(&path).spawn().unwrap();
    let refused = world.detach("a", 7, 11).await.unwrap_err();
    held_by(&refused, shell.id());
    assert!(refused.message.contains("(sleep)"), "{refused}");
    let status = world.status().await.unwrap();
    assert_eq!(status.failures[0].failure.facts.processes, refused.processes, "{status:?}");
    shell.kill().unwrap();
    shell.wait().unwrap();
    let file = fs::File::create(Path::new(&path).join("open")).unwrap();
    held_by(&world.detach("a", 7, 12).await.unwrap_err(), std::process::id());
    drop(file);
    world.detach("a", 7, 13).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}
