//! The state of the storage behind the development driver.
//!
//! Owns: reading it, and making a volume abnormal. Promises: a read that fails also fails the test,
//! and is never taken for "nothing is in use". Never: changes a volume's content.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::process::binary;

/// Every volume of a backend that is attached to a node, or staged or published on one.
///
/// # Panics
/// When the storage cannot be read.
pub fn in_use(backend: &Path) -> Vec<Value> {
    let is_used = |uses: &Value| uses.as_object().is_some_and(|uses| !uses.is_empty());
    let volumes = volumes(backend).into_iter();
    volumes.filter(|volume| is_used(&volume["attachments"]) || is_used(&volume["nodes"])).collect()
}

/// Every volume of a backend.
///
/// # Panics
/// When the storage cannot be read.
pub fn volumes(backend: &Path) -> Vec<Value> {
    list(backend, "--list")
}

/// Every snapshot of a backend.
///
/// # Panics
/// When the storage cannot be read.
pub fn snapshots(backend: &Path) -> Vec<Value> {
    list(backend, "--list-snapshots")
}

/// Makes the storage report a volume as abnormal for this reason, or as normal if it is empty.
///
/// # Panics
/// When there is no such volume.
pub fn mark_abnormal(backend: &Path, volume: &str, reason: &str) {
    let marked = Command::new(binary("berth-csi-dev"))
        .args(["provision", "--volume", volume, "--abnormal", reason, "--backend"])
        .arg(backend)
        .output()
        .expect("the driver runs");
    assert!(marked.status.success(), "{marked:?}");
}

fn list(backend: &Path, flag: &str) -> Vec<Value> {
    let listed = Command::new(binary("berth-csi-dev"))
        .args(["provision", flag, "--backend"])
        .arg(backend)
        .output()
        .expect("the driver runs");
    assert!(listed.status.success(), "{listed:?}");
    let text = String::from_utf8(listed.stdout).expect("the driver prints UTF-8");
    let parse = |line: &str| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    text.lines().map(parse).collect()
}
