//! What the storage behind the development driver has in use.
//!
//! Owns: asking it. Promises: whatever it cannot say fails the test: silence is never taken for
//! "nothing is in use". Never: changes anything.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::process::binary;

/// Every volume of a backend that is attached to a node, or staged or published on one.
///
/// # Panics
/// When the storage cannot be asked.
pub fn in_use(backend: &Path) -> Vec<Value> {
    let listed = Command::new(binary("berth-csi-dev"))
        .args(["provision", "--list", "--backend"])
        .arg(backend)
        .output()
        .expect("the driver runs");
    assert!(listed.status.success(), "{listed:?}");
    let text = String::from_utf8(listed.stdout).expect("the driver prints UTF-8");
    let volumes = text.lines().map(|line| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let some = |uses: &Value| uses.as_object().is_some_and(|uses| !uses.is_empty());
    volumes.filter(|one| some(&one["attachments"]) || some(&one["nodes"])).collect()
}
