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
        ("SNAPSHOT", |snapshot, _| format!("{}@{}", snapshot.volume, snapshot.snapshot)),
        ("STATE", |snapshot, _| snapshot.state.to_string()),
        ("SINCE", |snapshot, now| ago(snapshot.since, now)),
        ("SIZE", |snapshot, _| snapshot.size_bytes.map(size::short).unwrap_or_default()),
        ("CUT", |snapshot, now| {
            snapshot.cut_at.map(|at| format!("{} ago", ago(at, now))).unwrap_or_default()
        }),
        ("PLUGIN", |snapshot, _| snapshot.plugin.to_string()),
        ("GROUP", |snapshot, _| volumes(&snapshot.group)),
        ("TRIES", |snapshot, _| snapshot.tries.to_string()),
        ("NEXT TRY", |snapshot, now| {
            snapshot.next_try.map(|at| until(at, now)).unwrap_or_default()
        }),
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
    let name = within(snapshots.iter().map(|snapshot| &snapshot.namespace));
    for first in
        snapshots.iter().filter(|snapshot| snapshot.group.first() == Some(&snapshot.volume))
    {
        let members = snapshots.iter().filter(|snapshot| {
            (&snapshot.namespace, &snapshot.snapshot) == (&first.namespace, &first.snapshot)
                && first.group.contains(&snapshot.volume)
        });
        let bytes = size::sum(members.filter_map(|snapshot| snapshot.size_bytes));
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
