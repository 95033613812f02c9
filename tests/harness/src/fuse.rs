//! A file system that hangs: a FUSE mount whose server never answers. The kernel's side is real.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use nix::mount::{MsFlags, mount};

use crate::root::has_or_skip;

const FUSE: &str = "/dev/fuse";

/// Whether the kernel has FUSE. If not, a line names the skipped test.
pub fn fuse_or_skip(why: &str) -> bool {
    has_or_skip(Path::new(FUSE).exists(), FUSE, why)
}

/// Mounts a file system that hangs while the returned file is open, and fails each access after.
pub fn mount_hanging(path: &Path) -> File {
    let device = OpenOptions::new().read(true).write(true).open(FUSE).expect("FUSE opens");
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("berth-test"), path, Some("fuse"), flags, Some(data.as_str()))
        .expect("FUSE is mounted");
    device
}
