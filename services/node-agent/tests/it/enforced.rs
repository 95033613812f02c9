//! A plugin that ignores what it was asked for is seen.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use berth_contract::code::Code;
use berth_contract::message::claim::Grant;
use berth_domain::access::{AttachmentMode, Mode};
use berth_domain::volume::MountOptions;
use berth_harness::process::binary;
use berth_harness::root;
use nix::mount::MsFlags;

use crate::block::mounted_as;
use crate::world::{Differences, World, grant};

const CARELESS: &str = "--ignore=readonly,mount-flags,fs-type";

async fn world(driver: &[&str]) -> World {
    World::start_with(Differences { driver, ..Default::default() }).await
}

fn read_only(alloc: &str) -> Grant {
    Grant { mode: Mode::Read, ..grant(alloc, 7, &BTreeMap::new()) }
}

fn image(world: &World, args: &[&str]) {
    let made = Command::new(binary("berth-csi-dev"))
        .args(["provision", "--volume", "image/1", "--backing", "image", "--capacity-bytes"])
        .arg((16 << 20).to_string())
        .args(args)
        .arg("--backend")
        .arg(world.dir.join("backend"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[tokio::test]
async fn a_read_only_mount_takes_no_write_though_the_plugin_ignores_it() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world(&["--no-attach", CARELESS]).await;
    let flags = ["nosuid", "nodev", "noexec"].map(str::to_owned).to_vec();
    let mount = MountOptions { flags, ..MountOptions::default() };
    world.answer_take("a", Ok(Grant { mount: mount.clone(), ..read_only("a") }));
    world.answer_take("b", Ok(Grant { mount, ..grant("b", 7, &BTreeMap::new()) }));
    let written = world.mount("b").await.unwrap();
    fs::write(Path::new(&written.path).join("file"), "kept").unwrap();
    let read = world.mount("a").await.unwrap();
    assert!(read.read_only);
    let refused = fs::write(Path::new(&read.path).join("file"), "lost").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    for (path, is_read_only) in [(&read.path, true), (&written.path, false)] {
        let (_, flags) = mounted_as(path);
        for (flag, set) in
            [("ro", is_read_only), ("nosuid", true), ("nodev", true), ("noexec", true)]
        {
            assert_eq!(flags.iter().any(|one| one == flag), set, "{flag} of {path}: {flags:?}");
        }
    }
    fs::write(Path::new(&written.path).join("file"), "still kept").unwrap();
    let status = world.status().await.unwrap();
    for mount in &status.mounts {
        let said = mount.left_out.join("; ");
        assert!(said.contains("the plugin left out") && said.contains("nodev"), "{mount:?}");
        assert_eq!(said.contains("ro, "), mount.path == read.path, "{mount:?}");
    }
    for (alloc, revision) in [("a", 11), ("b", 12)] {
        world.detach(alloc, 7, revision).await.unwrap();
    }
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}

#[tokio::test]
async fn a_file_system_of_another_type_than_was_asked_for_is_shown() {
    if !root::or_skip("mounts an image") {
        return;
    }
    let world = world(&["--no-attach", CARELESS]).await;
    image(&world, &["--fs-type", "ext4"]);
    let mount = MountOptions { fs_type: Some("xfs".to_owned()), ..MountOptions::default() };
    let granted = grant("a", 7, &BTreeMap::new());
    world.answer_take("a", Ok(Grant { external_id: "image/1".to_owned(), mount, ..granted }));
    world.mount("a").await.unwrap();
    let status = world.status().await.unwrap();
    let said = status.mounts[0].left_out.join("; ");
    assert!(said.contains("xfs was asked for, and ext4 is mounted"), "{said}");
}

/// A device cannot be made read-only for one of those who share it.
#[tokio::test]
async fn a_block_device_that_can_be_written_is_not_handed_out_for_reading() {
    if !root::or_skip("binds loop devices") {
        return;
    }
    let world = world(&["--no-attach", CARELESS]).await;
    image(&world, &[]);
    let granted = Grant {
        external_id: "image/1".to_owned(),
        attachment: AttachmentMode::BlockDevice,
        ..read_only("a")
    };
    world.answer_take("a", Ok(granted));
    let refused = world.mount("a").await.unwrap_err();
    assert_eq!(refused.code, Code::NotReadOnly, "{refused}");
    assert!(refused.message.contains("can be written"), "{refused}");
    assert_eq!(world.count("NodeUnpublishVolume OK"), 1, "it is taken back");
    let targets: Vec<_> =
        world.mounts().into_iter().filter(|mount| mount.ends_with("target")).collect();
    assert!(targets.is_empty(), "{targets:?}");
}

/// As an earlier version of the agent left it. While a file is open for writing, the kernel makes
/// no mount read-only.
#[tokio::test]
async fn a_mount_of_before_that_cannot_be_made_read_only_is_not_handed_out_for_reading() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = world(&["--no-attach", CARELESS]).await;
    world.answer_take("a", Ok(read_only("a")));
    let path = world.mount("a").await.unwrap().path;
    let none = None::<&str>;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
    nix::mount::mount(none, path.as_str(), none, flags, none).unwrap();
    let file = Path::new(&path).join("file");
    let writer = fs::File::create(&file).unwrap();
    let refused = world.mount("a").await.unwrap_err();
    assert_eq!(refused.code, Code::NotReadOnly, "{refused}");
    assert!(refused.message.contains("ro is missing, and cannot be set"), "{refused}");
    drop(writer);
    assert!(world.mount("a").await.unwrap().read_only);
    let refused = fs::write(&file, "lost").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    world.detach("a", 7, 11).await.unwrap();
    assert_eq!((world.mounts(), world.leftovers()), (vec![], vec![]));
}
