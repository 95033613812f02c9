//! Images behind loop devices: as file systems and as block devices.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use berth_csi::{Code, Rpc, v1};
use berth_csi_dev::backing::FsType;
use berth_csi_dev::capability::AccessMode::{SingleNodeMultiWriter, SingleNodeWriter};
use berth_csi_proxy::log::LogEntry;
use berth_harness::dirs::loops_beneath;
use berth_harness::wait;
use nix::sys::statvfs::{FsFlags, statvfs};
use tokio::time::sleep;
use v1::volume_capability::MountVolume;
use v1::volume_content_source::{Type, VolumeSource};

use crate::made::{
    MIB, assert_nothing_left, attach, block, create, delete, down, made, mounted, publish, stage,
    up, with_fs,
};
use crate::request::{detach, unpublish, unstage};
use crate::world::{Node, TIMEOUT, World, binary};

#[tokio::test]
async fn what_is_written_to_a_file_system_is_there_on_the_next_node() {
    let Some(world) = World::start("image", &[]).await else { return };
    for (fs, bytes) in [(FsType::Ext4, 16 * MIB), (FsType::Xfs, 300 * MIB)] {
        let capability = with_fs(SingleNodeWriter, fs);
        let id = made(&world.n1, create(fs.name(), &capability, bytes)).await;
        let target = up(&world.n1, &id, &capability).await;
        fs::write(target.join("file"), "kept").unwrap();
        // A loop device is bound where the volume is staged, and nowhere else.
        assert_eq!(loops_beneath(world.path()).len(), 1);
        down(&world.n1, &id).await;
        assert!(loops_beneath(world.path()).is_empty());

        let target = up(&world.n2, &id, &capability).await;
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "kept");
        assert_ne!(fs::metadata(&target).unwrap().dev(), fs::metadata("/tmp").unwrap().dev());
        down(&world.n2, &id).await;
        delete(&world.n1, &id).await;
    }
    assert_nothing_left(&world);
    assert_eq!(world.findings(), []);
}

/// Both nodes are this kernel: what a real fence would keep from the disk must not reach it here.
#[tokio::test]
async fn a_fenced_node_writes_nothing_to_an_ext4_that_another_mounts() {
    let Some(world) = World::start("image", &[]).await else { return };
    let capability = with_fs(SingleNodeWriter, FsType::Ext4);
    let id = made(&world.n1, create("data", &capability, 16 * MIB)).await;
    let before = up(&world.n1, &id, &capability).await;
    let file = File::create(before.join("file")).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    file.sync_all().unwrap();
    let fence = |more: &[&str]| {
        let done = Command::new(binary())
            .args(["fence", "--node-id", "n1", "--backend"])
            .arg(world.path().join("backend"))
            .arg("--log")
            .arg(world.n1.log())
            .args(more)
            .output();
        assert!(done.as_ref().unwrap().status.success(), "{done:?}");
    };
    fence(&[]);
    let written = file.write_all_at(b"lost", 0).and_then(|()| file.sync_all());
    written.unwrap_err();
    world.n1.call(detach(&id, "n1")).await.unwrap();
    let target = up(&world.n2, &id, &capability).await;
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "kept");
    fs::write(target.join("new"), "kept").unwrap();
    drop(file);
    world.n1.call(unpublish(&id, &world.n1.target(&id))).await.unwrap();
    world.n1.call(unstage(&id, &world.n1.staging(&id))).await.unwrap();
    fence(&["--lift"]);
    assert_eq!(fs::read_to_string(target.join("new")).unwrap(), "kept");
    down(&world.n2, &id).await;
    delete(&world.n2, &id).await;
    assert_nothing_left(&world);
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn a_block_volume_is_a_device_that_keeps_its_bytes() {
    let Some(world) = World::start("block", &[]).await else { return };
    let (node, capability) = (&world.n1, block(SingleNodeMultiWriter));
    let id = made(node, create("raw", &capability, 8 * MIB)).await;
    let context = attach(node, &id, &capability).await;
    node.call(stage(node, &id, &capability, &context)).await.unwrap();
    node.call(publish(node, &id, "rw", &capability, &context)).await.unwrap();
    let target = node.target("rw");
    assert!(fs::metadata(&target).unwrap().file_type().is_block_device());
    let size = File::open(&target).unwrap().seek(SeekFrom::End(0)).unwrap();
    assert_eq!(size, 8 << 20);
    let device = OpenOptions::new().write(true).open(&target).unwrap();
    device.write_all_at(b"kept", 4096).unwrap();
    device.sync_all().unwrap();
    drop(device);

    // Read-only, the device itself refuses to be written to: the mount of its node would not.
    let mut readonly = publish(node, &id, "ro", &capability, &context);
    readonly.readonly = true;
    node.call(readonly.clone()).await.unwrap();
    node.call(readonly).await.unwrap();
    let mut bytes = [0; 4];
    File::open(node.target("ro")).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
    assert_eq!(&bytes, b"kept");
    let written = OpenOptions::new().write(true).open(node.target("ro"));
    written.and_then(|device| device.write_all_at(b"lost", 4096)).unwrap_err();
    assert_eq!(loops_beneath(world.path()).len(), 2);

    for name in ["ro", "rw"] {
        node.call(unpublish(&id, &node.target(name))).await.unwrap();
        assert!(!fs::exists(node.target(name)).unwrap());
    }
    assert_eq!(loops_beneath(world.path()).len(), 1, "it is staged");
    node.call(unstage(&id, &node.staging(&id))).await.unwrap();
    node.call(detach(&id, "n1")).await.unwrap();
    // As a file system it cannot be used: it has none.
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: id.clone(),
        node_id: "n1".into(),
        volume_capability: Some(mounted(SingleNodeMultiWriter, MountVolume::default())),
        ..Default::default()
    };
    node.refused(request, Code::InvalidArgument).await;
    delete(node, &id).await;
    assert_nothing_left(&world);
    assert_eq!(world.findings(), []);
}

fn expanded(id: &str, bytes: i64) -> v1::ControllerExpandVolumeRequest {
    v1::ControllerExpandVolumeRequest {
        volume_id: id.to_owned(),
        capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        ..Default::default()
    }
}

fn total_bytes(target: &Path) -> u64 {
    let fs = statvfs(target).unwrap();
    fs.blocks() * fs.fragment_size()
}

#[tokio::test]
async fn a_volume_grows_while_it_is_used() {
    let Some(world) = World::start("expand", &[]).await else { return };
    let node = &world.n1;
    let xfs = with_fs(SingleNodeWriter, FsType::Xfs);
    let id = made(node, create("xfs", &xfs, 300 * MIB)).await;
    let target = up(node, &id, &xfs).await;
    fs::write(target.join("file"), "kept").unwrap();
    let before = total_bytes(&target);
    let answer = node.call(expanded(&id, 600 * MIB)).await.unwrap();
    assert!(answer.node_expansion_required && answer.capacity_bytes == 600 * MIB, "{answer:?}");
    let request = v1::NodeExpandVolumeRequest {
        volume_id: id.clone(),
        volume_path: node.target(&id),
        ..Default::default()
    };
    for _ in 0..2 {
        node.call(request.clone()).await.unwrap();
    }
    assert!(total_bytes(&target) > before + (200 << 20), "grown while mounted");
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "kept");
    node.refused(
        v1::NodeExpandVolumeRequest {
            capacity_range: Some(v1::CapacityRange { required_bytes: 900 * MIB, limit_bytes: 0 }),
            ..request
        },
        Code::OutOfRange,
    )
    .await;
    down(node, &id).await;
    delete(node, &id).await;

    assert_nothing_left(&world);
    assert_eq!(world.findings(), []);
}

/// A mount alone lets no file system grow where the driver has a call for that.
#[tokio::test]
async fn a_file_system_grows_by_its_call_or_at_a_mount_if_there_is_no_such_call() {
    for (name, without, by_mount) in
        [("by-call", &[][..], false), ("by-mount", &["--without", "expand-node"][..], true)]
    {
        let Some(world) = World::start(name, without).await else { return };
        let node = &world.n1;
        let xfs = with_fs(SingleNodeWriter, FsType::Xfs);
        let id = made(node, create("xfs", &xfs, 300 * MIB)).await;
        let target = up(node, &id, &xfs).await;
        let before = total_bytes(&target);
        down(node, &id).await;
        node.call(expanded(&id, 600 * MIB)).await.unwrap();
        up(node, &id, &xfs).await;
        assert_eq!(total_bytes(&target) > before + (200 << 20), by_mount, "{name}");
        if !by_mount {
            let expand = v1::NodeExpandVolumeRequest {
                volume_id: id.clone(),
                volume_path: node.target(&id),
                ..Default::default()
            };
            node.call(expand).await.unwrap();
        }
        assert!(total_bytes(&target) > before + (200 << 20), "{name}");
        down(node, &id).await;
        delete(node, &id).await;
        assert_nothing_left(&world);
        assert_eq!(world.findings(), []);
    }
}

#[tokio::test]
async fn flags_and_the_group_are_honoured() {
    let Some(world) = World::start("flags", &[]).await else { return };
    let node = &world.n1;
    for fs_type in ["ext4", ""] {
        let mount = MountVolume {
            fs_type: fs_type.into(),
            mount_flags: vec!["noexec".into(), "noatime".into()],
            volume_mount_group: "4711".into(),
        };
        let capability = mounted(SingleNodeWriter, mount);
        let name = format!("flags{fs_type}");
        let id = made(node, create(&name, &capability, 300 * MIB)).await;
        let target = up(node, &id, &capability).await;
        let flags = statvfs(&target).unwrap().flags();
        assert!(flags.contains(FsFlags::ST_NOEXEC | FsFlags::ST_NOATIME), "{flags:?}");
        let meta = fs::metadata(&target).unwrap();
        assert_eq!((meta.gid(), meta.mode() & 0o2070), (4711, 0o2070));
        fs::write(target.join("file"), "x").unwrap();
        assert_eq!(fs::metadata(target.join("file")).unwrap().gid(), 4711, "inherited");
        down(node, &id).await;
        delete(node, &id).await;
    }
    assert_nothing_left(&world);
}

#[tokio::test]
async fn a_stage_that_was_killed_at_any_moment_is_completed_or_undone() {
    let Some(world) = World::start("killed-image", &[]).await else { return };
    let node = &world.n1;
    let capability = with_fs(SingleNodeWriter, FsType::Xfs);
    let id = made(node, create("v", &capability, 300 * MIB)).await;
    let context = attach(node, &id, &capability).await;
    let request = stage(node, &id, &capability, &context);
    // Moments all over the call, and after it: what counts is that none of them matters.
    for after_ms in [0, 2, 5, 9, 14, 20, 30, 60] {
        killed(node, Rpc::NodeStageVolume, after_ms, node.call(request.clone())).await;
        if after_ms % 2 == 0 {
            node.call(request.clone()).await.unwrap();
            assert_eq!((world.mounts().len(), loops_beneath(world.path()).len()), (1, 1));
        }
        node.call(unstage(&id, &node.staging(&id))).await.unwrap();
        assert_eq!(
            (world.mounts().len(), loops_beneath(world.path()).len()),
            (0, 0),
            "{after_ms} ms"
        );
    }
    node.call(detach(&id, "n1")).await.unwrap();
    delete(node, &id).await;
    assert_nothing_left(&world);
    assert_eq!(world.findings(), []);
}

/// A program outlives the instance that started it: found by the test above on a slow machine, as
/// a volume with two devices.
#[tokio::test]
async fn a_program_that_a_killed_instance_left_is_waited_for() {
    let Some(world) = World::start("orphan", &[]).await else { return };
    let node = &world.n1;
    let capability = with_fs(SingleNodeWriter, FsType::Xfs);
    let id = made(node, create("v", &capability, 300 * MIB)).await;
    let context = attach(node, &id, &capability).await;
    let request = stage(node, &id, &capability, &context);
    let (bound, binds) = (world.path().join("bound"), world.path().join("binds"));
    let slow = "#!/bin/sh\nPATH=${PATH#*:}\ncase \"$*\" in --find*) touch BINDS; sleep 1; losetup \
                \"$@\"; touch BOUND;; *) exec losetup \"$@\";; esac\n";
    let slow = slow.replace("BINDS", binds.to_str().unwrap());
    world.replace_program("losetup", &slow.replace("BOUND", bound.to_str().unwrap()));

    let kill = async {
        let begun = async || if binds.exists() { Ok(()) } else { Err("no device is bound") };
        wait::until("a device is being bound", TIMEOUT, begun).await;
        node.daemon.kill9();
    };
    let (broken, ()) = tokio::join!(node.call(request.clone()), kill);
    broken.unwrap_err();
    node.crash().await;
    node.call(request).await.unwrap();
    assert!(bound.exists(), "the killed instance's program is waited for");
    assert_eq!((world.mounts().len(), loops_beneath(world.path()).len()), (1, 1));
    down(node, &id).await;
    delete(node, &id).await;
    assert_nothing_left(&world);
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn a_creation_and_a_deletion_that_were_killed_are_completed_by_the_next() {
    let Some(world) = World::start("killed-create", &[]).await else { return };
    let node = &world.n1;
    let capability = with_fs(SingleNodeWriter, FsType::Xfs);
    let origin = made(node, create("origin", &capability, 300 * MIB)).await;
    fs::write(up(node, &origin, &capability).await.join("file"), "kept").unwrap();
    down(node, &origin).await;
    let mut request = create("copy", &capability, 300 * MIB);
    let from = Type::Volume(VolumeSource { volume_id: origin.clone() });
    request.volume_content_source = Some(v1::VolumeContentSource { r#type: Some(from) });
    for after_ms in [0, 1, 3, 6, 10, 20] {
        killed(node, Rpc::CreateVolume, after_ms, node.call(request.clone())).await;
        let id = made(node, request.clone()).await;
        let target = up(node, &id, &capability).await;
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "kept", "{after_ms} ms");
        down(node, &id).await;
        let delete_it = v1::DeleteVolumeRequest { volume_id: id.clone(), ..Default::default() };
        killed(node, Rpc::DeleteVolume, after_ms, node.call(delete_it)).await;
        delete(node, &id).await;
        let dirs = fs::read_dir(world.path().join("backend/volumes")).unwrap();
        assert_eq!(dirs.count(), 1, "the origin's, and nothing half removed");
    }
    delete(node, &origin).await;
    assert_nothing_left(&world);
    assert_eq!(world.findings(), []);
}

/// Makes the call, and kills the instance so long after it began; it may have ended by then.
async fn killed<T>(node: &Node, rpc: Rpc, after_ms: u64, call: impl Future<Output = T>) {
    let begins = || {
        let is_one =
            |entry: &LogEntry| matches!(entry, LogEntry::Begin(begin) if begin.call.rpc == rpc);
        node.entries().iter().filter(|entry| is_one(entry)).count()
    };
    let before = begins();
    let kill = async {
        let begun = async || if begins() > before { Ok(()) } else { Err("not yet") };
        wait::until(&format!("{rpc} has begun"), TIMEOUT, begun).await;
        sleep(Duration::from_millis(after_ms)).await;
        node.daemon.kill9();
    };
    let (_, ()) = tokio::join!(call, kill);
    node.crash().await;
}

#[tokio::test]
async fn a_device_that_no_note_names_is_released() {
    let Some(world) = World::start("orphan", &[]).await else { return };
    let node = &world.n1;
    let capability = with_fs(SingleNodeWriter, FsType::Xfs);
    let id = made(node, create("v", &capability, 300 * MIB)).await;
    let image = world.backend().volume(&id).unwrap().unwrap().data();
    // As left by a call that was killed after it bound the device and before it noted that.
    let bind = || {
        let bound = Command::new("losetup").arg("--find").arg(&image).status().unwrap();
        assert!(bound.success() && loops_beneath(world.path()).len() == 1);
    };
    bind();
    node.crash().await;
    assert!(loops_beneath(world.path()).is_empty(), "released at the start");
    bind();
    up(node, &id, &capability).await;
    assert_eq!(loops_beneath(world.path()).len(), 1, "taken over");
    down(node, &id).await;
    bind();
    delete(node, &id).await;
    assert_nothing_left(&world);
}
