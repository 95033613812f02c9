//! What a plugin has, beside what is registered.

use berth_contract::hint::quoted;
use berth_contract::message::storage::{ExternalSnapshot, ExternalVolume, Externals, Registration};
use berth_domain::volume::storage::Topology;
use berth_domain::{Namespace, SnapshotId, Timestamp, VolumeId};

use super::list::{Column, Listed, list};
use super::{listed, yes};
use crate::size;

impl Listed for ExternalVolume {
    const COLUMNS: &'static [Column<Self>] = &[
        ("EXTERNAL ID", |volume, _| volume.listed.external_id.clone()),
        ("HERE", |volume, _| registration_text(volume.registration).to_owned()),
        ("VOLUME", |volume, _| {
            owner(volume.registration, volume.namespace.as_ref(), volume.volume.as_ref(), None)
        }),
        ("SIZE", |volume, _| volume.listed.capacity_bytes.map(size::short).unwrap_or_default()),
        ("PLACE", |volume, _| places(&volume.listed.topologies)),
        ("ATTACHED TO", |volume, _| {
            volume.listed.published_on.as_ref().map(|nodes| nodes.join(", ")).unwrap_or_default()
        }),
        ("CONDITION", |volume, _| volume.listed.abnormal.clone().unwrap_or_default()),
    ];
    const NONE: &'static str = "the plugin lists no volumes";
}

impl Listed for ExternalSnapshot {
    const COLUMNS: &'static [Column<Self>] = &[
        ("EXTERNAL ID", |snapshot, _| snapshot.listed.external_id.clone()),
        ("HERE", |snapshot, _| registration_text(snapshot.registration).to_owned()),
        ("SNAPSHOT", |snapshot, _| {
            owner(
                snapshot.registration,
                snapshot.namespace.as_ref(),
                snapshot.volume.as_ref(),
                snapshot.snapshot.as_ref(),
            )
        }),
        ("OF", |snapshot, _| snapshot.listed.source.clone()),
        ("SIZE", |snapshot, _| snapshot.listed.size_bytes.map(size::short).unwrap_or_default()),
        ("READY", |snapshot, _| match snapshot.registration {
            Registration::NotListed => String::new(),
            _ => yes(snapshot.listed.ready),
        }),
    ];
    const NONE: &'static str = "the plugin lists no snapshots";
}

/// A plugin's volumes, sorted by this column.
pub fn external_volumes(externals: &Externals, sort: Option<&str>, now: Timestamp) -> String {
    let Externals { plugin, volumes, .. } = externals;
    if volumes.is_empty() {
        return format!("plugin {plugin} lists no volumes\n");
    }
    let table = list(volumes, sort, now);
    let stray = volumes.iter().find(|volume| volume.registration == Registration::NotRegistered);
    let hint = stray.map(|one| {
        let (plugin, id) = (quoted(plugin.as_str()), quoted(&one.listed.external_id));
        format!("register one with: berth volume adopt {plugin} {id}\n")
    });
    format!("{table}{}", hint.unwrap_or_default())
}

/// A plugin's snapshots, sorted by this column.
pub fn external_snapshots(externals: &Externals, sort: Option<&str>, now: Timestamp) -> String {
    let Externals { plugin, snapshots, .. } = externals;
    if snapshots.is_empty() {
        return format!("plugin {plugin} lists no snapshots\n");
    }
    let table = list(snapshots, sort, now);
    let stray =
        snapshots.iter().find(|snapshot| snapshot.registration == Registration::NotRegistered);
    let hint = stray.map(|one| {
        let (plugin, id) = (quoted(plugin.as_str()), quoted(&one.listed.external_id));
        let volume = quoted(suggest_volume(one, snapshots));
        format!("register one with: berth snapshot adopt {plugin} {id} {volume}@{id}\n")
    });
    format!("{table}{}", hint.unwrap_or_default())
}

/// The volume to register a snapshot with: that of another snapshot of the same source, else the
/// plugin's own id of the source.
fn suggest_volume<'a>(stray: &'a ExternalSnapshot, all: &'a [ExternalSnapshot]) -> &'a str {
    let source = stray.listed.source.as_str();
    let mut same_source =
        all.iter().filter(|snapshot| !source.is_empty() && snapshot.listed.source == source);
    match same_source.find_map(|one| one.volume.as_ref()) {
        Some(volume) => volume.as_str(),
        None if source.is_empty() => &stray.listed.external_id,
        None => source,
    }
}

/// `zone=a; zone=b`
pub fn places(topologies: &[Topology]) -> String {
    topologies.iter().map(listed).collect::<Vec<_>>().join("; ")
}

fn registration_text(registration: Registration) -> &'static str {
    match registration {
        Registration::Known => "known",
        Registration::NotRegistered => "not registered",
        Registration::NotListed => "not listed",
    }
}

/// `default/data@monday`; other namespaces are not named.
fn owner(
    registration: Registration,
    namespace: Option<&Namespace>,
    volume: Option<&VolumeId>,
    snapshot: Option<&SnapshotId>,
) -> String {
    let snapshot_part = snapshot.map(|snapshot| format!("@{snapshot}")).unwrap_or_default();
    match (namespace, volume, registration) {
        (Some(namespace), Some(volume), _) => format!("{namespace}/{volume}{snapshot_part}"),
        (_, _, Registration::NotRegistered) => String::new(),
        _ => "of another namespace".to_owned(),
    }
}
