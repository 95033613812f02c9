//! Directories go with everything mounted in them, and nothing behind a mount is touched.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use berth_harness::dirs::{Dir, Disk, loops_beneath, mounts_beneath};
use berth_harness::process::Program;
use berth_harness::{root, wait};
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

/// The prefix of the line with which [`is_killed`] prints its directory.
const DIR_LINE: &str = "directory: ";

#[tokio::test]
async fn what_a_killed_test_had_made_is_taken_away() {
    if !root::or_skip("mounts a tmpfs and binds a loop device") {
        return;
    }
    let mut killed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "dirs::is_killed", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(killed.stdout.take().unwrap()).lines();
    let mut output = lines.map_while(Result::ok);
    let dir = output.find_map(|line| line.strip_prefix(DIR_LINE).map(PathBuf::from)).unwrap();
    assert_eq!(remains(&dir), (true, 1, 1));
    killed.kill().unwrap();
    killed.wait().unwrap();

    wait::until("nothing is left", Duration::from_secs(30), async || match remains(&dir) {
        (false, 0, 0) => Ok(()),
        remains => Err(format!("{remains:?}")),
    })
    .await;
    assert!(!is_run_below(&dir));
}

/// Whether the directory exists, and how many mounts and loop devices are beneath it.
fn remains(dir: &Path) -> (bool, usize, usize) {
    (dir.exists(), mounts_beneath(dir).len(), loops_beneath(dir).len())
}

/// Whether a process names the directory in its command line.
fn is_run_below(dir: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines =
        processes.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.any(|line| line.contains(dir.to_str().unwrap()))
}

/// Not a test itself: `what_a_killed_test_had_made_is_taken_away` runs and kills it.
#[test]
#[ignore = "is run, and killed, by another"]
fn is_killed() {
    let dir = Dir::new("killed");
    let inner = dir.join("mount");
    fs::create_dir(&inner).unwrap();
    mount(Some("tmpfs"), &inner, Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
    let image = dir.join("image");
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let bound = Command::new("losetup").arg("--find").arg(&image).status().unwrap();
    assert!(bound.success());
    // The shell's child outlives the shell, and holds the mount busy.
    let open_file = inner.join("held");
    fs::write(&open_file, "").unwrap();
    let orphan = format!("tail -f {0} & tail -f {0}", open_file.display());
    let shell = Program::new("orphans", "/bin/sh", dir.join("log")).args(["-c", &orphan]).start();
    println!("\n{DIR_LINE}{}", dir.path().display());
    // Waits to be killed; if it is run by hand, waits for the end of its input.
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(shell);
}

#[test]
fn a_full_disk_refuses_writes_until_it_is_freed() {
    if !root::or_skip("a disk of its own") {
        return;
    }
    let dir = Dir::new("disk");
    let disk = Disk::mount(dir.join("small"), 1 << 20);
    let write = |file| fs::write(disk.path().join(file), [1; 5000]);
    write("before").unwrap();
    disk.fill();
    assert_eq!(write("full").unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    disk.free();
    write("after").unwrap();
}
