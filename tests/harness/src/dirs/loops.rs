//! Loop devices, which outlive the process that made them and the directory of their image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The loop devices whose image lies below `root`.
///
/// Without those that go by themselves: a device that was detached while a process had it open goes
/// when the last process closes it.
pub fn loops_beneath(root: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = devices.filter_map(|entry| {
        let said = |what: &str| fs::read_to_string(entry.path().join("loop").join(what)).ok();
        let stays = said("autoclear")?.trim() == "0";
        let is_beneath = Path::new(&said("backing_file")?).starts_with(root);
        (stays && is_beneath).then(|| Path::new("/dev").join(entry.file_name()))
    });
    loops.collect()
}

/// Lets them go; one that is mounted goes with its mount.
pub(super) fn detach_beneath(root: &Path) {
    for device in loops_beneath(root) {
        // It fails where it has gone meanwhile.
        let _ = Command::new("losetup").arg("--detach").arg(device).output();
    }
}
