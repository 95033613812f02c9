//! Loop devices, which outlive the process that made them and the directory of their image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The loop devices whose image lies below `root`.
///
/// Without devices that were detached while a process had them open: the kernel removes those when
/// the last process closes them.
pub fn loops_beneath(root: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = devices.filter_map(|entry| {
        let attribute = |name: &str| fs::read_to_string(entry.path().join("loop").join(name)).ok();
        let is_permanent = attribute("autoclear")?.trim() == "0";
        let is_beneath = Path::new(&attribute("backing_file")?).starts_with(root);
        (is_permanent && is_beneath).then(|| Path::new("/dev").join(entry.file_name()))
    });
    loops.collect()
}

/// Detaches these devices; a mounted device goes with its mount.
pub(super) fn detach_beneath(root: &Path) {
    for device in loops_beneath(root) {
        // Fails when the device has gone meanwhile.
        let _ = Command::new("losetup").arg("--detach").arg(device).output();
    }
}
