//! Volumes, their conditions and snapshots as CSI messages.

use std::time::{SystemTime, UNIX_EPOCH};

use berth_csi::v1;
use prost_types::Timestamp;
use v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::ability::Ability;
use crate::backend::{BackendError, ContentSource, SnapshotMeta, Volume, VolumeMeta};
use crate::driver::Driver;
use crate::topology;

pub(super) fn volume(driver: &Driver, meta: &VolumeMeta) -> v1::Volume {
    let source = meta.asked.as_ref().and_then(|asked| asked.source.as_ref());
    let mut topology =
        if driver.has(Ability::Topology) { topology::to_wire(&meta.topology) } else { Vec::new() };
    if !topology.is_empty() {
        topology.extend(topology::to_wire(&driver.profile.also_from()));
    }
    v1::Volume {
        capacity_bytes: meta.capacity_bytes,
        volume_id: meta.volume_id.clone(),
        volume_context: meta.volume_context.clone(),
        content_source: source.map(content_source),
        accessible_topology: topology,
    }
}

fn content_source(source: &ContentSource) -> v1::VolumeContentSource {
    let kind = match source.clone() {
        ContentSource::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id }),
        ContentSource::Volume(volume_id) => Type::Volume(VolumeSource { volume_id }),
    };
    v1::VolumeContentSource { r#type: Some(kind) }
}

/// The nodes that a volume is attached to, if the plugin reports them.
pub(super) fn published_nodes(
    driver: &Driver,
    volume: &Volume,
) -> Result<Vec<String>, BackendError> {
    if !driver.has(Ability::PublishedNodes) {
        return Ok(Vec::new());
    }
    Ok(volume.read_state()?.attachments.into_keys().collect())
}

/// Whether the volume is abnormal, if the plugin reports that.
pub(crate) fn condition(
    driver: &Driver,
    volume: &Volume,
) -> Result<Option<v1::VolumeCondition>, BackendError> {
    if !driver.has(Ability::Condition) {
        return Ok(None);
    }
    let reasons = volume.read_abnormal()?;
    let message = if reasons.is_empty() { "in order".to_owned() } else { reasons.join("; ") };
    Ok(Some(v1::VolumeCondition { abnormal: !reasons.is_empty(), message }))
}

pub(crate) fn snapshot(driver: &Driver, meta: &SnapshotMeta) -> v1::Snapshot {
    v1::Snapshot {
        size_bytes: meta.size_bytes,
        snapshot_id: meta.snapshot_id.clone(),
        source_volume_id: meta.source_volume_id.clone(),
        creation_time: Some(timestamp(meta.created_us)),
        ready_to_use: is_ready(meta),
        group_snapshot_id: meta.group_id.clone().unwrap_or_default(),
        accessible_topology: topology::to_wire(&driver.profile.snapshots_from()),
    }
}

pub(crate) fn is_ready(meta: &SnapshotMeta) -> bool {
    meta.ready_us <= now_us()
}

pub(crate) fn timestamp(time_us: u64) -> Timestamp {
    let nanos = i32::try_from(time_us % 1_000_000 * 1000).unwrap_or_default();
    Timestamp { seconds: i64::try_from(time_us / 1_000_000).unwrap_or_default(), nanos }
}

/// In microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
