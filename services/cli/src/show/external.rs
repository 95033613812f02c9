//! What a plugin has, beside what is registered.

use berth_contract::hint::quoted;
use berth_contract::message::storage::{ExternalSnapshot, Externals, Registration};
use berth_domain::{Namespace, SnapshotId, VolumeId};

use super::listed;
use crate::size;
use crate::table::Table;

/// The columns of a plugin's volumes.
pub const EXTERNAL_COLUMNS: [&str; 7] =
    ["EXTERNAL ID", "HERE", "VOLUME", "SIZE", "PLACE", "ATTACHED TO", "CONDITION"];
/// The columns of a plugin's snapshots.
pub const EXTERNAL_SNAPSHOT_COLUMNS: [&str; 6] =
    ["EXTERNAL ID", "HERE", "SNAPSHOT", "OF", "SIZE", "READY"];

/// A plugin's volumes, one line each, sorted by this column.
pub fn external_volumes(listed_volumes: &Externals, sort: Option<&str>) -> String {
    let Externals { plugin, volumes, .. } = listed_volumes;
    if volumes.is_empty() {
        return format!("plugin {plugin} lists no volumes\n");
    }
    let mut table = Table::new(EXTERNAL_COLUMNS);
    for one in volumes {
        let places: Vec<String> = one.listed.topologies.iter().map(listed).collect();
        table.row([
            one.listed.external_id.clone(),
            word(one.registration).to_owned(),
            owner(one.registration, one.namespace.as_ref(), one.volume.as_ref(), None),
            one.listed.capacity_bytes.map(size::short).unwrap_or_default(),
            places.join("; "),
            one.listed.published_on.as_ref().map(|nodes| nodes.join(", ")).unwrap_or_default(),
            one.listed.abnormal.clone().unwrap_or_default(),
        ]);
    }
    table.sort(sort);
    let stray = volumes.iter().find(|one| one.registration == Registration::NotRegistered);
    let hint = stray.map(|one| {
        let (plugin, id) = (quoted(plugin.as_str()), quoted(&one.listed.external_id));
        format!("register one with: berth volume adopt {plugin} {id}\n")
    });
    format!("{table}{}", hint.unwrap_or_default())
}

/// A plugin's snapshots, one line each, sorted by this column.
pub fn external_snapshots(listed: &Externals, sort: Option<&str>) -> String {
    let Externals { plugin, snapshots, .. } = listed;
    if snapshots.is_empty() {
        return format!("plugin {plugin} lists no snapshots\n");
    }
    let mut table = Table::new(EXTERNAL_SNAPSHOT_COLUMNS);
    for one in snapshots {
        let (namespace, volume) = (one.namespace.as_ref(), one.volume.as_ref());
        let ready = if one.listed.ready { "yes" } else { "no" };
        table.row([
            one.listed.external_id.clone(),
            word(one.registration).to_owned(),
            owner(one.registration, namespace, volume, one.snapshot.as_ref()),
            one.listed.source.clone(),
            one.listed.size_bytes.map(size::short).unwrap_or_default(),
            if one.registration == Registration::NotListed { "" } else { ready }.to_owned(),
        ]);
    }
    table.sort(sort);
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
