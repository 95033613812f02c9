//! Snapshots, and groups of them.

use berth_contract::message::snapshot::SnapshotStub;
use berth_domain::{Namespace, Timestamp, VolumeId};

use super::list::{Column, Listed};
use super::within;
use crate::size;
use crate::span::{ago, until};
use crate::table::{Table, plain};

impl Listed for SnapshotStub {
    const COLUMNS: &'static [Column<Self>] = &[
        ("SNAPSHOT", |it, _| format!("{}@{}", it.volume, it.snapshot)),
        ("STATE", |it, _| it.state.to_string()),
        ("SINCE", |it, now| ago(it.since, now)),
        ("SIZE", |it, _| it.size_bytes.map(size::short).unwrap_or_default()),
        ("CUT", |it, now| it.cut_at.map(|at| format!("{} ago", ago(at, now))).unwrap_or_default()),
        ("PLUGIN", |it, _| it.plugin.to_string()),
        ("GROUP", |it, _| volumes(&it.group)),
        ("TRIES", |it, _| it.tries.to_string()),
        ("NEXT TRY", |it, now| it.next_try.map(|at| until(at, now)).unwrap_or_default()),
    ];
    const NONE: &'static str = "no snapshots";

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }

    fn details(&self) -> Option<String> {
        let error = plain(self.error()?);
        Some(format!("\n  {}@{}\n    last error: {error}\n", self.volume, self.snapshot))
    }
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
