//! What a plugin has, beside what is registered.

use berth_contract::hint::quoted;
use berth_contract::message::storage::{ExternalSnapshot, ExternalVolume, Externals, Registration};
use berth_domain::{Namespace, SnapshotId, Timestamp, VolumeId};

use super::list::{Column, Listed, list};
use super::{listed, yes};
use crate::size;

impl Listed for ExternalVolume {
    const COLUMNS: &'static [Column<Self>] = &[
        ("EXTERNAL ID", |it, _| it.listed.external_id.clone()),
        ("HERE", |it, _| word(it.registration).to_owned()),
        ("VOLUME", |it, _| owner(it.registration, it.namespace.as_ref(), it.volume.as_ref(), None)),
        ("SIZE", |it, _| it.listed.capacity_bytes.map(size::short).unwrap_or_default()),
        ("PLACE", |it, _| it.listed.topologies.iter().map(listed).collect::<Vec<_>>().join("; ")),
        ("ATTACHED TO", |it, _| {
            it.listed.published_on.as_ref().map(|nodes| nodes.join(", ")).unwrap_or_default()
        }),
        ("CONDITION", |it, _| it.listed.abnormal.clone().unwrap_or_default()),
    ];
    const NONE: &'static str = "the plugin lists no volumes";
}

impl Listed for ExternalSnapshot {
    const COLUMNS: &'static [Column<Self>] = &[
        ("EXTERNAL ID", |it, _| it.listed.external_id.clone()),
        ("HERE", |it, _| word(it.registration).to_owned()),
        ("SNAPSHOT", |it, _| {
            owner(it.registration, it.namespace.as_ref(), it.volume.as_ref(), it.snapshot.as_ref())
        }),
        ("OF", |it, _| it.listed.source.clone()),
        ("SIZE", |it, _| it.listed.size_bytes.map(size::short).unwrap_or_default()),
        ("READY", |it, _| match it.registration {
            Registration::NotListed => String::new(),
            _ => yes(it.listed.ready),
        }),
    ];
    const NONE: &'static str = "the plugin lists no snapshots";
}

/// A plugin's volumes, sorted by this column.
pub fn external_volumes(all: &Externals, sort: Option<&str>, now: Timestamp) -> String {
    let Externals { plugin, volumes, .. } = all;
    if volumes.is_empty() {
        return format!("plugin {plugin} lists no volumes\n");
    }
    let table = list(volumes, sort, now);
    let stray = volumes.iter().find(|one| one.registration == Registration::NotRegistered);
    let hint = stray.map(|one| {
        let (plugin, id) = (quoted(plugin.as_str()), quoted(&one.listed.external_id));
        format!("register one with: berth volume adopt {plugin} {id}\n")
    });
    format!("{table}{}", hint.unwrap_or_default())
}

/// A plugin's snapshots, sorted by this column.
pub fn external_snapshots(all: &Externals, sort: Option<&str>, now: Timestamp) -> String {
    let Externals { plugin, snapshots, .. } = all;
    if snapshots.is_empty() {
        return format!("plugin {plugin} lists no snapshots\n");
    }
    let table = list(snapshots, sort, now);
    let stray = snapshots.iter().find(|one| one.registration == Registration::NotRegistered);
    let hint = stray.map(|one| {
        let (plugin, id) = (quoted(plugin.as_str()), quoted(&one.listed.external_id));
        let volume = quoted(suggest_volume(one, snapshots));
        format!("register one with: berth snapshot adopt {plugin} {id} {volume}@{id}\n")
    });
    format!("{table}{}", hint.unwrap_or_default())
}

/// A volume that a snapshot is to be registered with: that of another snapshot of the same source,
/// else the plugin's own id of the source.
fn suggest_volume<'a>(stray: &'a ExternalSnapshot, all: &'a [ExternalSnapshot]) -> &'a str {
    let source = stray.listed.source.as_str();
    let mut known = all.iter().filter(|one| !source.is_empty() && one.listed.source == source);
    match known.find_map(|one| one.volume.as_ref()) {
        Some(volume) => volume.as_str(),
        None if source.is_empty() => &stray.listed.external_id,
        None => source,
    }
}

fn word(registration: Registration) -> &'static str {
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
    let of = snapshot.map(|snapshot| format!("@{snapshot}")).unwrap_or_default();
    match (namespace, volume, registration) {
        (Some(namespace), Some(volume), _) => format!("{namespace}/{volume}{of}"),
        (_, _, Registration::NotRegistered) => String::new(),
        _ => "of another namespace".to_owned(),
    }
}
