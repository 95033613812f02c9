//! Images behind loop devices: real file systems, and block devices.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_contract::code::Code;
use berth_contract::message::agent::{MountHealth, MountState};
use berth_contract::message::call::Call;
use berth_contract::message::claim::Grant;
use berth_domain::access::{AttachmentMode, Mode};
use berth_domain::volume::{CallKind, MountOptions};
use berth_harness::dirs::loops_beneath;
use berth_harness::process::binary;
use berth_harness::{root, wait};
use nix::mount::{MntFlags, umount2};
use serde_json::json;

use crate::dead::{LOOKS, republish, seen, told};
use crate::world::{Differences, PATIENCE, World, call, grant, hold};

const MIB: u64 = 1 << 20;
const IMAGE: &str = "image/1";

/// A world with an image of this size; its file system, where it has one.
async fn world(bytes: u64, fs_type: Option<&str>) -> World {
    world_of(bytes, fs_type, "").await
}

/// And this besides in the agent's configuration.
async fn world_of(bytes: u64, fs_type: Option<&str>, agent: &str) -> World {
    let world = World::start_with(Differences { driver: &["--no-attach"], agent }).await;
    let mut provision = Command::new(binary("berth-csi-dev"));
    provision
        .args(["provision", "--volume", IMAGE, "--backing", "image", "--capacity-bytes"])
        .args([bytes.to_string(), "--backend".to_owned()])
        .arg(world.dir.join("backend"));
    if let Some(fs_type) = fs_type {
        provision.args(["--fs-type", fs_type]);
    }
    let made = provision.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    world
}

fn of_image(alloc: &str, attachment: AttachmentMode, mode: Mode) -> Grant {
    Grant { external_id: IMAGE.to_owned(), attachment, mode, ..grant(alloc, 7, &BTreeMap::new()) }
}

async fn detach(world: &World, alloc: &str, revision: u64) {
    let leave =
        Call { external_id: IMAGE.to_owned(), ..call(CallKind::NodeDetach, alloc, 7, revision) };
    world.call(leave).await.unwrap();
}

fn nothing_is_left(world: &World) {
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
    assert!(loops_beneath(world.dir.path()).is_empty());
    world.judge();
}

#[tokio::test]
async fn a_file_system_of_its_own_is_made_mounted_and_kept() {
    if !root::or_skip("mounts images") {
        return;
    }
    for (fs_type, bytes) in [("ext4", 16 * MIB), ("xfs", 300 * MIB)] {
        let world = world(bytes, Some(fs_type)).await;
        for (alloc, revision) in [("a", 11), ("b", 12)] {
            let mount = MountOptions {
                fs_type: Some(fs_type.to_owned()),
                flags: vec!["noexec".to_owned()],
                group: None,
            };
            let granted = of_image(alloc, AttachmentMode::FileSystem, Mode::Write);
            world.answer_take(alloc, Ok(Grant { mount, ..granted }));
            let mounted = world.mount(alloc).await.unwrap();
            let (kind, flags) = mounted_as(&mounted.path);
            assert_eq!(kind, fs_type);
            assert!(flags.contains(&"noexec".to_owned()), "{flags:?}");
            let file = Path::new(&mounted.path).join("file");
            match alloc {
                "a" => fs::write(&file, fs_type).unwrap(),
                _ => assert_eq!(fs::read_to_string(&file).unwrap(), fs_type),
            }
            detach(&world, alloc, revision).await;
            nothing_is_left(&world);
        }
    }
}

/// What is mounted there, and with which flags (proc(5), mountinfo).
pub fn mounted_as(path: &str) -> (String, Vec<String>) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == Some(path)).unwrap();
    let flags = line.split(' ').nth(5).unwrap().split(',').map(str::to_owned).collect();
    let kind = line.split_once(" - ").unwrap().1.split(' ').next().unwrap();
    (kind.to_owned(), flags)
}

#[tokio::test]
async fn a_block_device_takes_what_is_written_and_a_read_only_one_does_not() {
    if !root::or_skip("binds loop devices") {
        return;
    }
    let world = world(8 * MIB, None).await;
    world.answer_take("a", Ok(of_image("a", AttachmentMode::BlockDevice, Mode::Write)));
    world.answer_take("b", Ok(of_image("b", AttachmentMode::BlockDevice, Mode::Read)));
    let (bare, taken) = (world.dir.join("binds/bare"), world.dir.join("binds/taken"));
    fs::create_dir_all(&taken).unwrap();
    File::create(&bare).unwrap();

    let mounted = world.mount("a").await.unwrap();
    assert!(!mounted.read_only && mounted.path.len() <= 128);
    assert!(fs::metadata(&mounted.path).unwrap().file_type().is_block_device());
    let mut device = OpenOptions::new().write(true).open(&mounted.path).unwrap();
    assert_eq!(device.seek(SeekFrom::End(0)).unwrap(), 8 * MIB);
    device.write_all_at(b"kept", MIB).unwrap();
    device.sync_all().unwrap();
    drop(device);

    // A device is put upon a file, and upon no directory.
    let refused = world.mount_as("b", None, Some(&taken)).await.unwrap_err();
    assert_eq!(refused.code, Code::PathRefused, "{refused}");
    assert!(refused.message.contains("is put upon a file"), "{refused}");
    let shown = world.mount_as("b", None, Some(&bare)).await.unwrap();
    assert!(shown.read_only && shown.path == bare.to_str().unwrap(), "{shown:?}");
    let mut bytes = [0; 4];
    File::open(&bare).unwrap().read_exact_at(&mut bytes, MIB).unwrap();
    assert_eq!(&bytes, b"kept");
    let written = OpenOptions::new().write(true).open(&bare);
    written.and_then(|device| device.write_all_at(b"lost", MIB)).unwrap_err();

    detach(&world, "b", 11).await;
    assert!(fs::metadata(&bare).unwrap().is_file(), "the caller's own file is there again");
    detach(&world, "a", 12).await;
    nothing_is_left(&world);
    let image = find(&world.dir.join("backend"), 8 * MIB).expect("the image is kept");
    File::open(image).unwrap().read_exact_at(&mut bytes, MIB).unwrap();
    assert_eq!(&bytes, b"kept", "it arrived");
}

/// The file behind a loop device vanishes. The device stays bound: a detached one could belong to
/// another test before the agent has looked.
#[tokio::test]
async fn a_device_that_lost_what_is_behind_it_is_seen_told_and_brought_back() {
    if !root::or_skip("binds loop devices") {
        return;
    }
    let world = world_of(8 * MIB, None, LOOKS).await;
    world.answer_take("a", Ok(of_image("a", AttachmentMode::BlockDevice, Mode::Write)));
    let path = world.mount("a").await.unwrap().path;
    seen(&world, "a", MountHealth::Well).await;
    let image = find(&world.dir.join("backend"), 8 * MIB).expect("the device has an image");
    let image = OpenOptions::new().write(true).open(image).unwrap();
    image.set_len(0).unwrap();
    let bound = loops_beneath(world.dir.path());
    assert_eq!(bound.len(), 1, "{bound:?}");
    let resized = Command::new("losetup").arg("--set-capacity").arg(&bound[0]).output().unwrap();
    assert!(resized.status.success(), "{resized:?}");

    let dead = seen(&world, "a", MountHealth::Dead).await;
    assert_eq!((dead.state, dead.mounted), (MountState::Published, true), "{dead:?}");
    let trouble = dead.trouble.as_deref().unwrap_or_default();
    assert!(trouble.contains("has nothing behind it any more"), "{dead:?}");
    wait::until("it is told once", PATIENCE, async || {
        let told = told(&world, "volume.mount-dead").await;
        let says = |detail: &str| detail.contains(&path) && detail.contains(trouble);
        match &told[..] {
            [(alloc, detail)] if alloc == "a" && says(detail) => Ok(()),
            _ => Err(format!("{told:?}")),
        }
    })
    .await;
    let refused = world.mount("a").await.unwrap_err();
    assert!(refused.message.contains(trouble), "{refused}");

    image.set_len(8 * MIB).unwrap();
    let again = republish(&world, Some("a")).await.unwrap();
    assert_eq!((again.mounts.len(), &again.mounts[0].path), (1, &path));
    seen(&world, "a", MountHealth::Well).await;
    let device = OpenOptions::new().write(true).open(&path).unwrap();
    device.write_all_at(b"kept", MIB).unwrap();
    device.sync_all().unwrap();
    drop(device);
    wait::until("it is told that it answers", PATIENCE, async || {
        let told = told(&world, "volume.mount-well").await;
        if told.len() == 1 { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    detach(&world, "a", 11).await;
    nothing_is_left(&world);
}

/// The number of a device that is let go of goes to another, and the workload's path would lead to
/// that one's data.
#[tokio::test]
async fn a_device_number_that_another_disk_was_given_is_seen_and_not_handed_out() {
    if !root::or_skip("binds loop devices") {
        return;
    }
    let world = world_of(8 * MIB, None, LOOKS).await;
    let counted = fs::read_dir("/sys/block").unwrap().flatten();
    if !counted.map(|disk| disk.path().join("diskseq")).any(|file| file.exists()) {
        println!("SKIPPED (needs Linux 5.15): this kernel does not count its disks");
        return;
    }
    world.answer_take("a", Ok(of_image("a", AttachmentMode::BlockDevice, Mode::Write)));
    let path = world.mount("a").await.unwrap().path;
    seen(&world, "a", MountHealth::Well).await;
    let bound = loops_beneath(world.dir.path());
    assert_eq!(bound.len(), 1, "{bound:?}");
    let other = world.dir.join("other-disk");
    File::create(&other).unwrap().set_len(8 * MIB).unwrap();
    let losetup = |args: &[&Path]| Command::new("losetup").args(args).output().unwrap();
    let detach_loop = |device: &Path| losetup(&[Path::new("--detach"), device]);
    let let_go = detach_loop(&bound[0]);
    assert!(let_go.status.success(), "{let_go:?}");
    // A test beside this one may be faster, and has the number for a while.
    wait::until("the number is another disk's", PATIENCE, async || {
        let given = losetup(&[&bound[0], &other]);
        if given.status.success() { Ok(()) } else { Err(format!("{given:?}")) }
    })
    .await;

    let trouble = wait::until("it is seen that it is another disk", PATIENCE, async || {
        let trouble = seen(&world, "a", MountHealth::Dead).await.trouble.unwrap_or_default();
        if trouble.contains("another disk is behind it") { Ok(trouble) } else { Err(trouble) }
    })
    .await;
    let refused = world.mount("a").await.unwrap_err();
    assert!(refused.message.contains(&trouble), "{refused}");
    // Also by an agent that was not there when it happened.
    world.agent.kill9();
    world.agent.restart();
    world.healthy_now().await;
    let refused = wait::until("it is refused", PATIENCE, async || match world.mount("a").await {
        Err(problem) if problem.code == Code::MountFailed => Ok(problem),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(refused.message.contains("another disk is behind it"), "{refused}");

    // The plugin leaves alone what is not its own, and says so; a person takes it away.
    let refused = republish(&world, Some("a")).await.unwrap_err();
    assert!(refused.message.contains("unmount it by hand"), "{refused}");
    umount2(Path::new(&path), MntFlags::empty()).unwrap();
    for device in loops_beneath(world.dir.path()) {
        detach_loop(&device);
    }
    let again = republish(&world, Some("a")).await.unwrap();
    assert_eq!((again.mounts.len(), &again.mounts[0].path), (1, &path));
    seen(&world, "a", MountHealth::Well).await;
    detach(&world, "a", 11).await;
    nothing_is_left(&world);
}

/// The file of this size below a directory.
fn find(dir: &Path, bytes: u64) -> Option<PathBuf> {
    fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
        let meta = entry.metadata().ok()?;
        if meta.is_dir() {
            find(&entry.path(), bytes)
        } else {
            (meta.len() == bytes).then(|| entry.path())
        }
    })
}

/// Driver and agent are killed while a device is bound, staged or published; the claim's release
/// finds all of it.
#[tokio::test]
async fn nothing_is_left_when_both_were_killed_half_way() {
    if !root::or_skip("mounts images") {
        return;
    }
    for (rpc, attachment) in [
        ("NodeStageVolume", AttachmentMode::FileSystem),
        ("NodePublishVolume", AttachmentMode::FileSystem),
        ("NodePublishVolume", AttachmentMode::BlockDevice),
    ] {
        let fs_type = (attachment == AttachmentMode::FileSystem).then_some("ext4");
        let mut world = world(16 * MIB, fs_type).await;
        world.answer_take("a", Ok(of_image("a", attachment, Mode::Write)));
        // The plugin does its work and does not answer.
        let mut held = hold(rpc);
        held[0]["when"] = json!("after");
        world.plant(&held);
        let half_way = async {
            wait::until("the device is bound", PATIENCE, async || {
                if loops_beneath(world.dir.path()).is_empty() { Err("none") } else { Ok(()) }
            })
            .await;
            if rpc == "NodePublishVolume" {
                wait::until("it is staged", PATIENCE, async || {
                    if world.count("NodeStageVolume OK") == 1 { Ok(()) } else { Err("not yet") }
                })
                .await;
            }
        };
        tokio::select! {
            answered = world.mount("a") => panic!("{answered:?}"),
            () = half_way => {}
        }
        world.agent.kill9();
        world.replace_driver(&[], &["--no-attach"]).await;
        world.plant(&json!([]));
        world.agent.restart();
        wait::until("the agent answers", PATIENCE, async || {
            world.status().await.map(drop).map_err(|problem| problem.to_string())
        })
        .await;
        world.healthy(true).await;
        detach(&world, "a", 11).await;
        nothing_is_left(&world);
    }
}
