//! Snapshots, and groups of them.

use berth_contract::message::snapshot::SnapshotStub;
use berth_domain::{Timestamp, VolumeId};

use super::within;
use crate::size;
use crate::span::{ago, until};
use crate::table::{Table, plain};

/// The columns of a list of snapshots.
pub const SNAPSHOT_COLUMNS: [&str; 9] =
    ["SNAPSHOT", "STATE", "SINCE", "SIZE", "CUT", "PLUGIN", "GROUP", "TRIES", "NEXT TRY"];

/// Snapshots, one line each, sorted by this column; below the table, the errors.
pub fn snapshots(snapshots: &[SnapshotStub], sort: Option<&str>, now: Timestamp) -> String {
    if snapshots.is_empty() {
        return "no snapshots\n".to_owned();
    }
    let mut table = Table::new(SNAPSHOT_COLUMNS);
    let name = within(snapshots.iter().map(|one| &one.namespace));
    for one in snapshots {
        table.row([
            name(&one.namespace, &format_args!("{}@{}", one.volume, one.snapshot)),
            one.state.to_string(),
            ago(one.since, now),
            one.size_bytes.map(size::short).unwrap_or_default(),
            one.cut_at.map(|at| format!("{} ago", ago(at, now))).unwrap_or_default(),
            one.plugin.to_string(),
            volumes(&one.group),
            one.tries.to_string(),
            one.next_try.map(|at| until(at, now)).unwrap_or_default(),
        ]);
    }
    table.sort(sort);
    let errors = snapshots.iter().filter_map(|one| {
        let error = plain(one.error()?);
        Some(format!("\n  {}@{}\n    last error: {error}\n", one.volume, one.snapshot))
    });
    format!("{table}{}", errors.collect::<String>())
}

/// Groups, one line each: the snapshots of a group have one state.
pub fn snapshot_groups(snapshots: &[SnapshotStub], now: Timestamp) -> String {
    let mut table = Table::new(["GROUP", "STATE", "SINCE", "SIZE", "PLUGIN", "VOLUMES"]);
    let name = within(snapshots.iter().map(|one| &one.namespace));
    for first in snapshots.iter().filter(|one| one.group.first() == Some(&one.volume)) {
        let members = snapshots.iter().filter(|one| {
            (&one.namespace, &one.snapshot) == (&first.namespace, &first.snapshot)
                && first.group.contains(&one.volume)
        });
        let bytes = size::sum(members.filter_map(|one| one.size_bytes));
        table.row([
            name(&first.namespace, &first.snapshot),
            first.state.to_string(),
            ago(first.since, now),
            if bytes > 0 { size::short(bytes) } else { String::new() },
            first.plugin.to_string(),
            volumes(&first.group),
        ]);
    }
    if table.is_empty() { "no groups of snapshots\n".to_owned() } else { table.to_string() }
}

fn volumes(group: &[VolumeId]) -> String {
    group.iter().map(VolumeId::as_str).collect::<Vec<_>>().join(", ")
}
