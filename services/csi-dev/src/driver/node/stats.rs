//! How full a volume is, and how it is.
//!
//! Owns: `NodeGetVolumeStats`. Promises: numbers of the volume itself, not of the disk that all of
//! them lie on, where they can be told apart. Never: changes anything.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use berth_csi::Code;
use berth_csi::v1::volume_usage::Unit;
use berth_csi::v1::{
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage,
};
use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};

use super::{device, stage};
use crate::ability::Ability;
use crate::backend::{Backing, Meta, State, Volume};
use crate::capability::{Capability, MountFlag};
use crate::driver::Driver;
use crate::driver::refusal::Refusal;
use crate::driver::request::Fields;
use crate::mounts::{self, Presence};

/// How many entries of a directory are counted; beyond, only the disk's own numbers are told.
const MOST_ENTRIES: usize = 100_000;

pub(super) fn stats(
    driver: &Driver,
    request: &NodeGetVolumeStatsRequest,
) -> Result<NodeGetVolumeStatsResponse, Refusal> {
    let NodeGetVolumeStatsRequest { volume_id, volume_path: path, .. } = request;
    let mut fields = Fields::default();
    fields.id("volume_id", volume_id);
    fields.required("volume_path", path);
    fields.check(Some(()))?;

    let volume = driver.volume(volume_id)?;
    let state = volume.glance()?;
    let place = find(&volume, &state, driver.node_id(), path)?;
    let meta = volume.meta();
    let usage = if driver.has(Ability::Stats) {
        usage(meta, &place, is_block(&state, driver.node_id(), &place))
            .map_err(|error| unread(volume_id, &place, &error))?
    } else {
        Vec::new()
    };
    let condition = driver
        .has(Ability::Condition)
        .then(|| condition(&volume, &state, driver.node_id(), &place));
    Ok(NodeGetVolumeStatsResponse { usage, volume_condition: condition })
}

/// The place of that path, if the volume is there; else `NOT_FOUND`.
pub(super) fn find(
    volume: &Volume,
    state: &State,
    node: &str,
    path: &str,
) -> Result<PathBuf, Refusal> {
    let volume_id = &volume.meta().volume_id;
    let nowhere = || {
        let message = format!("volume {volume_id:?} is not at {path:?} on {node}; check the path");
        Refusal::new(Code::NotFound, message)
    };
    let place = mounts::place(path).ok().flatten().ok_or_else(nowhere)?;
    let content = device::content(volume)?;
    let presence = mounts::presence(&place, &content);
    if presence.map_err(|error| Refusal::mount(volume_id, &error))? == Presence::Volume {
        return Ok(place);
    }
    // A block device that is only staged is mounted nowhere.
    let is_stage = state.staged_on(node).is_some_and(|on| on.path == path && on.capability.block);
    if is_stage && stage::is_staged(volume, state, node, &place)? {
        return Ok(place);
    }
    Err(nowhere())
}

/// Whether the volume is a block device there; staged as one, it is mounted nowhere.
pub(super) fn is_block(state: &State, node: &str, place: &Path) -> bool {
    !place.is_dir() || state.staged_on(node).is_some_and(|staged| staged.capability.block)
}

fn usage(meta: &Meta, place: &Path, is_block: bool) -> io::Result<Vec<VolumeUsage>> {
    if is_block {
        let (total, unit) = (meta.capacity_bytes, Unit::Bytes.into());
        return Ok(vec![VolumeUsage { available: 0, total, used: total, unit }]);
    }
    let disk = statvfs(place)?;
    let mut usage = of_disk(&disk);
    if meta.backing == Backing::Directory
        && let Some((bytes, entries)) = count(place)?
    {
        let total = if meta.capacity_bytes > 0 { meta.capacity_bytes } else { usage[0].total };
        let available = (total - bytes).clamp(0, usage[0].available);
        usage[0] = VolumeUsage { total, used: bytes, available, ..usage[0] };
        usage[1].used = entries;
    }
    Ok(usage)
}

/// The bytes and inodes of the file system.
fn of_disk(disk: &Statvfs) -> Vec<VolumeUsage> {
    let size = |blocks: u64| whole(blocks.saturating_mul(disk.fragment_size()));
    let used = |total: u64, free: u64| total.saturating_sub(free);
    let bytes = VolumeUsage {
        available: size(disk.blocks_available()),
        total: size(disk.blocks()),
        used: size(used(disk.blocks(), disk.blocks_free())),
        unit: Unit::Bytes.into(),
    };
    let inodes = VolumeUsage {
        available: whole(disk.files_available()),
        total: whole(disk.files()),
        used: whole(used(disk.files(), disk.files_free())),
        unit: Unit::Inodes.into(),
    };
    vec![bytes, inodes]
}

/// The bytes and entries beneath a directory; `None` where there are too many to count.
fn count(root: &Path) -> io::Result<Option<(i64, i64)>> {
    let (mut bytes, mut entries) = (0_u64, 0);
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let listed = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            listed => listed?,
        };
        for entry in listed {
            let entry = entry?;
            entries += 1;
            if entries > MOST_ENTRIES {
                return Ok(None);
            }
            // Removed in between, it has no size.
            let Ok(meta) = entry.metadata() else { continue };
            bytes += meta.blocks() * 512;
            if meta.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    Ok(Some((whole(bytes), i64::try_from(entries).unwrap_or(i64::MAX))))
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn condition(volume: &Volume, state: &State, node: &str, place: &Path) -> VolumeCondition {
    let is_readonly = || statvfs(place).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_RDONLY));
    let message = match volume.damage() {
        Some(damage) => damage,
        None if volume.meta().fs.is_some()
            && !may_only_read(state, node, place)
            && is_readonly() =>
        {
            "its file system became read-only after an error".to_owned()
        }
        None => String::new(),
    };
    VolumeCondition { abnormal: !message.is_empty(), message }
}

/// Whether somebody asked for it to be read-only at this place.
fn may_only_read(state: &State, node: &str, place: &Path) -> bool {
    let attached = state.attachments.get(node).is_some_and(|attached| attached.readonly);
    let reads = |capability: &Capability| {
        capability.mode.is_reader_only() || capability.flags.contains(&MountFlag::Ro)
    };
    let on = state.on(node);
    let staged = on.and_then(|on| on.staged.as_ref());
    let mut published = on.iter().flat_map(|on| &on.published);
    attached
        || staged.is_some_and(|staged| staged.capability.mode.is_reader_only())
        || published.any(|(target, one)| {
            Path::new(target) == place && (one.readonly || reads(&one.capability))
        })
}

fn unread(volume_id: &str, place: &Path, error: &io::Error) -> Refusal {
    let message = format!("volume {volume_id:?}: cannot measure {}: {error}", place.display());
    Refusal::new(Code::Internal, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beneath_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), vec![7; 10_000]).unwrap();
        let (bytes, entries) = count(dir.path()).unwrap().unwrap();
        assert!(bytes >= 10_000 && entries == 2, "{bytes} bytes in {entries} entries");
    }
}
