//! Reports of the driver that the kernel's mount table contradicts.
//!
//! Owns: comparing the end of each node call with the kernel's mounts at the call's paths.
//! Promises: a line without those mounts is a finding, too. Never: uses the driver's own account of
//! mounts.

use std::collections::BTreeSet;

use berth_csi::Rpc;
use serde_json::Value;

use super::log_row::{CallArguments, CallEffect, KernelMount, LogRow, PathMounts};
use super::rule::Rule;

/// What the driver reports as done on this line although the kernel contradicts it.
pub(super) fn find_false_reports(row: &LogRow) -> Vec<(Rule, String)> {
    let args = &row.args;
    let (path, is_made) = match row.rpc {
        Some(Rpc::NodeStageVolume) => (&args.staging_target_path, true),
        Some(Rpc::NodePublishVolume) => (&args.target_path, true),
        Some(Rpc::NodeUnpublishVolume) => (&args.target_path, false),
        Some(Rpc::NodeUnstageVolume) => (&args.staging_target_path, false),
        _ => return Vec::new(),
    };
    if row.effect != Some(CallEffect::Done) {
        return Vec::new();
    }
    let kernel = row.kernel.as_deref().unwrap_or_default();
    let Some(observed) = find_path(kernel, path) else {
        let what = format!("the line does not say what the kernel has mounted at {path:?}");
        return vec![(Rule::NotObserved, what)];
    };
    if !is_made {
        let is_left = !observed.mounts.is_empty();
        let what = || format!("reported as gone, and still mounted at {path:?}");
        return is_left.then(|| (Rule::StillMounted, what())).into_iter().collect();
    }
    match row.rpc {
        // A staged block device has no mount. Many drivers stage without one.
        Some(Rpc::NodeStageVolume) if is_block(args) || row.foreign => Vec::new(),
        Some(Rpc::NodeStageVolume) => not_mounted(observed).into_iter().collect(),
        _ => published(observed, kernel, args, row.foreign),
    }
}

/// Shortest id that is recognised as a part of a name, in bytes. Shorter ids, like `1`, are parts
/// of other volumes' names, too.
const LONG_ID_BYTES: usize = 12;

/// Whether a directory is named after the volume with this id: its name is the id, possibly with
/// special characters as `%XX`, or contains a long id (`csi-<id>`).
fn is_named_after(name: &str, id: &str) -> bool {
    let plain = decode_percents(name);
    plain == id.as_bytes() || (id.len() >= LONG_ID_BYTES && name.contains(id))
}

/// The name with each `%XX` as its byte.
fn decode_percents(name: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten();
        let hex = hex.and_then(|hex| u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(hex.unwrap_or(*first));
        rest = if hex.is_some() { &after[2..] } else { after };
    }
    bytes
}

/// Paths at which the kernel has a deleted volume mounted: a workload there writes into nothing.
/// The directory of a volume is named after the volume's id. A fenced node's mounts, at the paths
/// in `cut_off`, could not write before either.
pub(super) fn find_destroyed(row: &LogRow, cut_off: &BTreeSet<String>) -> Option<(Rule, String)> {
    if row.rpc != Some(Rpc::DeleteVolume) || row.effect != Some(CallEffect::Done) {
        return None;
    }
    let id = &row.args.volume_id;
    let is_of_it = |mount: &KernelMount| mount.root.split('/').any(|name| is_named_after(name, id));
    let kernel = row.kernel.as_deref().unwrap_or_default();
    let mounted_at: Vec<&str> = kernel
        .iter()
        .filter(|observed| {
            observed.mounts.iter().any(is_of_it) && !cut_off.contains(&observed.path)
        })
        .map(|observed| &*observed.path)
        .collect();
    let what = || format!("its data is gone, and it is mounted at {}", mounted_at.join(", "));
    (!id.is_empty() && !mounted_at.is_empty()).then(|| (Rule::DestroyedWhileMounted, what()))
}

fn published(
    observed: &PathMounts,
    kernel: &[PathMounts],
    args: &CallArguments,
    is_foreign: bool,
) -> Vec<(Rule, String)> {
    let path = &observed.path;
    let Some(top) = observed.mounts.last() else {
        return not_mounted(observed).into_iter().collect();
    };
    let mut findings = Vec::new();
    let may_write = match &observed.block_device {
        Some(device) => device.read_only == Some(false),
        None => !top.read_only,
    };
    if args.is_for_readers() && may_write {
        let what = format!("reported as published read-only, and {path:?} can be written to");
        findings.push((Rule::MountedWritable, what));
    }
    if is_block(args) {
        if observed.block_device.is_none() {
            let what = format!("reported as a block device, and {path:?} is none");
            findings.push((Rule::NotMounted, what));
        }
        return findings;
    }
    let staging = &args.staging_target_path;
    // A foreign driver may stage without a mount, and publish a part of what it staged.
    if !staging.is_empty() && !is_foreign {
        match find_path(kernel, staging) {
            Some(staged) if staged.mounts.last().is_some_and(|staged| is_same(staged, top)) => {}
            Some(_) => {
                let what = format!("{path:?} has another content than the stage {staging:?}");
                findings.push((Rule::OtherContent, what));
            }
            None => {
                let what = format!("the line does not say what the kernel has at {staging:?}");
                findings.push((Rule::NotObserved, what));
            }
        }
    }
    findings
}

fn not_mounted(observed: &PathMounts) -> Option<(Rule, String)> {
    let what = || format!("reported as mounted, and nothing is mounted at {:?}", observed.path);
    observed.mounts.is_empty().then(|| (Rule::NotMounted, what()))
}

fn find_path<'a>(kernel: &'a [PathMounts], path: &str) -> Option<&'a PathMounts> {
    kernel.iter().find(|observed| observed.path == path)
}

/// Whether both show the same directory of the same file system.
fn is_same(first: &KernelMount, second: &KernelMount) -> bool {
    (&first.device, &first.root) == (&second.device, &second.root)
}

/// A block capability has no fields, and the log leaves out empty values.
fn is_block(args: &CallArguments) -> bool {
    let kind = args.volume_capability.as_ref().and_then(|all| all.get("access_type"));
    kind.and_then(Value::as_object).is_some_and(|kind| !kind.contains_key("mount"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_named_after_a_volume_by_its_whole_id_or_around_a_long_one() {
        let rows = [
            ("v", "v", true),
            ("a%2Fb%20c", "a/b c", true),
            ("%2Ehidden", ".hidden", true),
            ("csi-pvc-0123456789", "pvc-0123456789", true),
            ("v10", "v", false),
            ("pvc-v", "v", false),
            ("100%", "100", false),
            ("%C3%9C", "Ü", true),
            ("%Ü", "%Ü", true),
        ];
        for (name, id, expected) in rows {
            assert_eq!(is_named_after(name, id), expected, "{name} of {id}");
        }
    }
}
