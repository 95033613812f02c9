//! The usage of a volume and its condition on a node.
//!
//! Owns: `NodeGetVolumeStats`. Promises: the kernel's figures. If the plugin reports conditions, a
//! volume that was staged or published at the path and is no longer there is abnormal. Never:
//! changes anything.

use std::path::Path;

use berth_csi::Code;
use berth_csi::v1::volume_usage::Unit;
use berth_csi::v1::{
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage,
};
use nix::sys::statvfs::statvfs;

use super::expand::find;
use crate::ability::Ability;
use crate::backend::{Volume, VolumeState};
use crate::driver::Driver;
use crate::driver::controller::answer;
use crate::driver::refusal::Refusal;

pub(in crate::driver) fn get(
    driver: &Driver,
    request: &NodeGetVolumeStatsRequest,
) -> Result<NodeGetVolumeStatsResponse, Refusal> {
    let NodeGetVolumeStatsRequest { volume_id, volume_path: path, .. } = request;
    let volume = driver.volume(volume_id)?;
    let state = volume.read_state()?;
    let node = driver.node_id();
    let volume_condition = answer::condition(driver, &volume)?;
    let mount_point = match find(&volume, &state, node, path) {
        Ok(mount_point) => mount_point,
        Err(refusal) => {
            let gone = absence(driver, &volume, path)?;
            let condition = volume_condition.zip(gone).map(add_absence);
            let usage = Vec::new();
            return condition.map_or(Err(refusal), |condition| {
                Ok(NodeGetVolumeStatsResponse { usage, volume_condition: Some(condition) })
            });
        }
    };
    let usage =
        if driver.has(Ability::Stats) { measure(&volume, &mount_point)? } else { Vec::new() };
    Ok(NodeGetVolumeStatsResponse { usage, volume_condition })
}

/// That the volume was staged or published at `path`, and is no longer there.
pub(in crate::driver) fn absence(
    driver: &Driver,
    volume: &Volume,
    path: &str,
) -> Result<Option<String>, Refusal> {
    let (state, node) = (volume.read_state()?, driver.node_id());
    let is_gone = is_recorded(&state, node, path) && find(volume, &state, node, path).is_err();
    Ok(is_gone.then(|| format!("it is no longer at {path} on {node}")))
}

fn add_absence((condition, gone): (VolumeCondition, String)) -> VolumeCondition {
    let message = if condition.abnormal { format!("{}; {gone}", condition.message) } else { gone };
    VolumeCondition { abnormal: true, message }
}

/// Whether the volume was staged or published at `path`, and neither was undone.
fn is_recorded(state: &VolumeState, node: &str, path: &str) -> bool {
    let staged = state.staged_on(node).is_some_and(|staged| staged.settled && staged.path == path);
    let published = state.on(node).and_then(|on| on.published.get(path));
    staged || published.is_some_and(|published| published.settled)
}

/// The usage of the file system at `mount_point`, or the size of the block device.
fn measure(volume: &Volume, mount_point: &Path) -> Result<Vec<VolumeUsage>, Refusal> {
    if !mount_point.is_dir() {
        let total = volume.meta().capacity_bytes;
        let unit = Unit::Bytes.into();
        return Ok(vec![VolumeUsage { total, unit, ..VolumeUsage::default() }]);
    }
    let stat = statvfs(mount_point).map_err(|errno| {
        let message = format!("volume {:?}: cannot measure it: {errno}", volume.meta().volume_id);
        Refusal::new(Code::Internal, message)
    })?;
    let block = stat.fragment_size();
    Ok(vec![
        describe_usage(
            Unit::Bytes,
            stat.blocks(),
            stat.blocks_free(),
            stat.blocks_available(),
            block,
        ),
        describe_usage(Unit::Inodes, stat.files(), stat.files_free(), stat.files_available(), 1),
    ])
}

/// `free` includes the blocks that only root may use; `available` does not.
fn describe_usage(unit: Unit, total: u64, free: u64, available: u64, each: u64) -> VolumeUsage {
    let signed = |count: u64| i64::try_from(count.saturating_mul(each)).unwrap_or(i64::MAX);
    VolumeUsage {
        available: signed(available),
        total: signed(total),
        used: signed(total.saturating_sub(free)),
        unit: unit.into(),
    }
}
