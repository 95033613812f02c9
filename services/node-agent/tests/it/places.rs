//! A volume in further places: for a group, under several names, at a path of the caller's choice.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use berth_contract::code::Code;
use berth_contract::message::claim::{Grant, View};
use berth_domain::access::Mode;
use berth_domain::volume::MountOptions;
use berth_harness::{root, wait};

use crate::block::mounted_as;
use crate::world::{Differences, PATIENCE, World, grant};

async fn world(more: &'static [&'static str]) -> World {
    let driver: Vec<&str> = ["--no-attach"].iter().chain(more).copied().collect();
    let world = World::start_with(Differences { driver: &driver, ..Default::default() }).await;
    fs::create_dir(world.dir.join("binds")).unwrap();
    world
}

fn granted(alloc: &str) -> Grant {
    grant(alloc, 7, &BTreeMap::new())
}

fn of_group(alloc: &str) -> Grant {
    let mount = MountOptions { group: Some("4711".to_owned()), ..MountOptions::default() };
    Grant { mount, ..granted(alloc) }
}

#[tokio::test]
async fn the_group_may_write_where_the_plugin_can_do_that_and_is_refused_in_words_elsewhere() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world(&[]).await;
    world.answer_take("a", Ok(of_group("a")));
    let mounted = world.mount("a").await.unwrap();
    let meta = fs::metadata(&mounted.path).unwrap();
    assert_eq!((meta.gid(), meta.mode() & 0o070), (4711, 0o070));
    // Nobody but the agent goes by its own directories.
    for above in Path::new(&mounted.path).ancestors().skip(1).take(3) {
        let mode = fs::metadata(above).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{}", above.display());
    }
    world.detach("a", 7, 11).await.unwrap();
    world.judge();

    let world = self::world(&["--without", "mount-group"]).await;
    world.answer_take("a", Ok(of_group("a")));
    let refused = world.mount("a").await.unwrap_err();
    assert_eq!(refused.code, Code::MountOptionsRefused, "{refused}");
    assert!(refused.message.contains("VOLUME_MOUNT_GROUP"), "{refused}");
    assert_eq!(world.calls(), [""; 0], "nothing was called");
}

/// E6: published once, and seen twice.
#[tokio::test]
async fn a_volume_under_two_names_has_options_of_its_own_for_each() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world(&[]).await;
    let flags = |flags: &[&str]| MountOptions {
        flags: flags.iter().map(ToString::to_string).collect(),
        ..MountOptions::default()
    };
    let base = || Grant { mount: flags(&["nosuid", "nodev"]), ..granted("a") };
    let view = |mode, mount| View { place: 1, mode, mount };
    // It does not repeat what the volume is mounted with, and has it all the same.
    let look = || view(Mode::Read, flags(&["noexec"]));
    let as_view = |view| Ok(Grant { view: Some(view), ..base() });

    // What only the plugin could do differently is refused, and not repeated.
    world.answer_take("a", as_view(view(Mode::Write, flags(&["password=hunter2"]))));
    let refused = world.mount_as("a", Some("look"), None).await.unwrap_err();
    assert_eq!(refused.code, Code::MountOptionsRefused, "{refused}");
    assert!(!refused.to_string().contains("hunter2"), "{refused}");
    assert_eq!(world.calls(), [""; 0]);

    world.answer_take("a", as_view(look()));
    let seen = world.mount_as("a", Some("look"), None).await.unwrap();
    world.answer_take("a", Ok(base()));
    let work = world.mount("a").await.unwrap();
    assert!(seen.read_only && !work.read_only && seen.path != work.path && seen.path.len() <= 128);
    assert_eq!(world.count("NodePublishVolume OK"), 1);
    fs::write(Path::new(&work.path).join("file"), "kept").unwrap();
    assert_eq!(fs::read_to_string(Path::new(&seen.path).join("file")).unwrap(), "kept");
    let refused = fs::write(Path::new(&seen.path).join("file"), "lost").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let (_, at_look) = mounted_as(&seen.path);
    let (_, at_work) = mounted_as(&work.path);
    for (flag, look, work) in [
        ("ro", true, false),
        ("nosuid", true, true),
        ("nodev", true, true),
        ("noexec", true, false),
    ] {
        let has = |flags: &Vec<String>| flags.iter().any(|one| one == flag);
        assert_eq!((has(&at_look), has(&at_work)), (look, work), "{flag}");
    }

    // Asked again, also of an agent that knows nothing of it, it is the same.
    world.agent.kill9();
    world.agent.restart();
    world.healthy(true).await;
    world.answer_take("a", as_view(look()));
    // The first request may still have gone to the agent that was killed.
    wait::until("it is mounted again", 3 * PATIENCE, async || {
        let again = world.mount_as("a", Some("look"), None).await;
        again.map(|again| assert_eq!(again, seen)).map_err(|problem| problem.to_string())
    })
    .await;
    world.detach("a", 7, 11).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    world.judge();
}

#[tokio::test]
async fn a_volume_is_put_at_a_path_of_the_callers_and_taken_from_there() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world(&[]).await;
    let binds = world.dir.join("binds");
    let (plain, real, by_link) = (binds.join("plain"), binds.join("real"), binds.join("link"));
    for dir in [&plain, &real] {
        fs::create_dir(dir).unwrap();
    }
    symlink(&real, &by_link).unwrap();
    for alloc in ["a", "b", "c"] {
        world.answer_take(alloc, Ok(granted(alloc)));
    }
    let refused = async |alloc: &str, path: &Path, words: &str| {
        let refused = world.mount_as(alloc, None, Some(path)).await.unwrap_err();
        assert_eq!(refused.code, Code::PathRefused, "{refused}");
        assert!(refused.message.contains(words), "{words}: {refused}");
    };
    refused("a", Path::new("srv/data"), "absolute").await;
    refused("a", &binds.join("gone"), "must be there").await;
    refused("a", Path::new("/srv"), "bind_below").await;
    refused("a", &binds.join("../state"), "bind_below").await;
    symlink("/etc", binds.join("etc")).unwrap();
    refused("a", &binds.join("etc"), "really /etc").await;
    fs::write(real.join("file"), "there").unwrap();
    refused("a", &by_link, "not empty").await;
    fs::remove_file(real.join("file")).unwrap();
    assert_eq!(world.calls(), [""; 0], "nothing was done for any of these");

    // The link is followed once. A later change of its target changes nothing.
    let first = world.mount_as("a", None, Some(&by_link)).await.unwrap();
    assert_eq!(first.path, real.to_str().unwrap());
    assert_eq!(world.mount_as("a", None, Some(&by_link)).await.unwrap(), first);
    fs::write(real.join("file"), "kept").unwrap();
    fs::remove_file(&by_link).unwrap();
    symlink(&plain, &by_link).unwrap();
    refused("b", &real, "for another alloc").await;
    fs::create_dir(real.join("inside")).unwrap();
    refused("b", &real.join("inside"), "lies in a volume").await;
    fs::remove_dir(real.join("inside")).unwrap();
    let second = world.mount_as("b", None, Some(&by_link)).await.unwrap();
    assert_eq!(second.path, plain.to_str().unwrap());
    assert_eq!(fs::read_to_string(plain.join("file")).unwrap(), "kept");

    // What others have mounted is neither hidden nor taken away.
    let theirs = binds.join("theirs");
    fs::create_dir(&theirs).unwrap();
    let mount = |options: &[&str], at: &Path| {
        let made = std::process::Command::new("mount").args(options).arg(at).status().unwrap();
        assert!(made.success());
    };
    mount(&["-t", "tmpfs", "tmpfs"], &theirs);
    refused("c", &theirs, "mount point already").await;
    fs::create_dir(theirs.join("data")).unwrap();
    let inside = world.mount_as("c", None, Some(&theirs.join("data"))).await.unwrap();
    assert_eq!(fs::read_to_string(Path::new(&inside.path).join("file")).unwrap(), "kept");

    // A use that is under way keeps the volume, and says where.
    let busy = fs::File::open(real.join("file")).unwrap();
    let refused = world.detach("a", 7, 11).await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::VolumeHeldByProcess, true), "{refused}");
    assert!(refused.message.contains(real.to_str().unwrap()), "{refused}");
    let own = std::process::id();
    assert!(refused.processes.iter().any(|one| one.pid == own), "{refused}");
    assert_eq!(world.count("NodeUnpublishVolume OK"), 0);
    drop(busy);
    for (alloc, revision) in [("a", 12), ("b", 13), ("c", 14)] {
        world.detach(alloc, 7, revision).await.unwrap();
    }
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    for dir in [&real, &plain, &theirs.join("data")] {
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "{}", dir.display());
    }
    world.judge();
}

/// The paths follow from the ids, and what is at a caller's path from them.
#[tokio::test]
async fn an_agent_that_lost_its_journal_finds_every_place() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world(&[]).await;
    let path = world.dir.join("binds/data");
    fs::create_dir(&path).unwrap();
    let mount = MountOptions::default();
    let view = View { place: 1, mode: Mode::Read, mount };
    world.answer_take("a", Ok(Grant { view: Some(view), ..granted("a") }));
    world.mount_as("a", Some("look"), Some(&path)).await.unwrap();
    assert!(mounted_as(path.to_str().unwrap()).1.contains(&"ro".to_owned()));
    world.agent.kill9();
    fs::remove_dir_all(world.dir.join("state/journal")).unwrap();
    world.agent.restart();
    world.healthy(true).await;
    world.detached("it is taken down", "a", 7, 11).await;
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    world.judge();
}
