//! Compares the mounts that a node reports with the kernel's table and the driver's own log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use berth_harness::dirs::mounts_beneath;
use berth_harness::wait;
use berth_integration::System;
use serde_json::Value;

use crate::{PATIENCE, Site};

impl Site {
    /// The mounts on a node. `berth node status`, `/proc/self/mountinfo` and the driver's log must
    /// agree. Waits only until no operation is running.
    ///
    /// # Panics
    ///
    /// When they do not agree, or an operation does not end.
    pub async fn mounted(&self, node: usize) -> BTreeSet<PathBuf> {
        let (reported, kernel, logged) = wait::until("nothing is under way", PATIENCE, || async {
            let before = kernel(&self.system, node);
            let status = status(&self.system, node).await?;
            let logged = logged(&self.system, node);
            let work = status["agent"]["work"].as_array().map_or(0, Vec::len);
            if work > 0 || kernel(&self.system, node) != before {
                return Err(status.to_string());
            }
            Ok((reported(&status), before, logged))
        })
        .await;
        assert_eq!(reported, kernel, "the status is not what the kernel has");
        assert_eq!(logged, kernel, "the driver's log is not what the kernel has");
        kernel
    }
}

/// `berth node status NODE` as JSON; an error while the node's agent does not answer.
async fn status(system: &System, node: usize) -> Result<Value, String> {
    let mut command = system.berth();
    command.args(["--nats", &system.url(), "--json", "node", "status"]);
    let shown = command.arg(format!("n{}", node + 1)).output().await.expect("berth runs");
    let status = serde_json::from_slice::<Value>(&shown.stdout);
    let status = status.map_err(|_| format!("{shown:?}"))?;
    if status["agent"].is_null() { Err(status.to_string()) } else { Ok(status) }
}

/// Paths that the status reports as mounted, strays included.
fn reported(status: &Value) -> BTreeSet<PathBuf> {
    let path = |path: &Value| path.as_str().map(PathBuf::from);
    let listed = |field: &str| status["agent"][field].as_array().cloned().unwrap_or_default();
    let mounts = listed("mounts");
    let targets = mounts.iter().filter(|mount| mount["mounted"] == true);
    let stagings = mounts.iter().filter(|mount| mount["staged"] == true);
    let paths = targets.map(|mount| &mount["path"]);
    let paths = paths.chain(stagings.map(|mount| &mount["staging"])).filter_map(path);
    paths.chain(listed("strays").iter().filter_map(path)).collect()
}

fn kernel(system: &System, node: usize) -> BTreeSet<PathBuf> {
    mounts_beneath(&system.dir().join(format!("n{}/csi", node + 1))).into_iter().collect()
}

/// Paths that the driver staged or published successfully, and has not undone since.
fn logged(system: &System, node: usize) -> BTreeSet<PathBuf> {
    let mut mounted = BTreeMap::new();
    let external_node = (system.options.external_node)(node);
    for call in system.calls() {
        if call["entry"] != "end"
            || call["code"] != "OK"
            || call["node_id"] != external_node.as_str()
        {
            continue;
        }
        let (field, is_mounted) = match call["rpc"].as_str().unwrap_or_default() {
            "NodeStageVolume" => ("staging_target_path", true),
            "NodeUnstageVolume" => ("staging_target_path", false),
            "NodePublishVolume" => ("target_path", true),
            "NodeUnpublishVolume" => ("target_path", false),
            _ => continue,
        };
        let path = call["args"][field].as_str().expect("a path is logged");
        mounted.insert(PathBuf::from(path), is_mounted);
    }
    mounted.into_iter().filter_map(|(path, is_mounted)| is_mounted.then_some(path)).collect()
}
