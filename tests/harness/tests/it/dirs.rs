//! Directories go with everything mounted in them, and nothing behind a mount is touched.

use std::fs;

use berth_harness::dirs::{Dir, mounts_beneath};
use berth_harness::root;
use nix::mount::{MsFlags, mount};

const NONE: Option<&str> = None;

#[test]
fn a_dropped_directory_is_gone() {
    let dir = Dir::new("gone");
    let path = dir.path().to_owned();
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/b/file"), "x").unwrap();
    drop(dir);
    assert!(!path.exists());
}

#[test]
fn a_socket_path_fits() {
    const LONGEST_SOCKET_PATH: usize = 107;
    let dir = Dir::new("a-test-with-a-long-name-indeed");
    let socket = dir.join("nodes/node-1/plugins/ebs.csi.example.com/csi.sock");
    assert!(socket.as_os_str().len() <= LONGEST_SOCKET_PATH, "{}", socket.display());
}

#[test]
fn mounts_are_undone_before_anything_is_deleted() {
    if !root::or_skip("binds a directory and mounts a tmpfs upon it") {
        return;
    }
    let precious = Dir::new("precious");
    fs::write(precious.join("data"), "kept").unwrap();

    let dir = Dir::new("mounts");
    let bound = dir.join("with space");
    fs::create_dir(&bound).unwrap();
    mount(Some(precious.path()), &bound, NONE, MsFlags::MS_BIND, NONE).unwrap();
    let inner = bound.join("inner");
    fs::create_dir(&inner).unwrap();
    mount(Some("tmpfs"), &inner, Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
    // Open through the mount: busy, so that a plain unmount is refused.
    let busy = fs::File::create(inner.join("open")).unwrap();

    let path = dir.path().to_owned();
    assert_eq!(mounts_beneath(&path), [bound, inner]);
    drop(dir);
    drop(busy);

    assert!(mounts_beneath(&path).is_empty());
    assert!(!path.exists());
    assert_eq!(fs::read_to_string(precious.join("data")).unwrap(), "kept");
}
