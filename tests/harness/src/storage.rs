//! What the storage behind the development driver has in use.
//!
//! Owns: asking it, and making a volume abnormal. Promises: whatever it cannot say fails the test:
//! silence is never taken for "nothing is in use". Never: changes what a volume holds.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::process::binary;

/// Every volume of a backend that is attached to a node, or staged or published on one.
///
/// # Panics
/// When the storage cannot be asked.
pub fn in_use(backend: &Path) -> Vec<Value> {
    let some = |uses: &Value| uses.as_object().is_some_and(|uses| !uses.is_empty());
    let volumes = volumes(backend).into_iter();
    volumes.filter(|one| some(&one["attachments"]) || some(&one["nodes"])).collect()
}

/// Every volume of a backend.
///
/// # Panics
/// When the storage cannot be asked.
pub fn volumes(backend: &Path) -> Vec<Value> {
    list(backend, "--list")
}

/// Every snapshot of a backend.
///
/// # Panics
/// When the storage cannot be asked.
pub fn snapshots(backend: &Path) -> Vec<Value> {
    list(backend, "--list-snapshots")
}

/// Has the storage report a volume as abnormal for this reason; an empty one ends that.
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

fn list(backend: &Path, what: &str) -> Vec<Value> {
    let listed = Command::new(binary("berth-csi-dev"))
        .args(["provision", what, "--backend"])
        .arg(backend)
        .output()
        .expect("the driver runs");
    assert!(listed.status.success(), "{listed:?}");
    let text = String::from_utf8(listed.stdout).expect("the driver prints UTF-8");
    let read = |line: &str| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    text.lines().map(read).collect()
}
