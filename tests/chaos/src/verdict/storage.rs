//! Compares the storage, the records and what the callers were told, at rest.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::ledger::{CreatedVolume, CutSnapshot, Violation};

/// The lists of a plugin's storage.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    /// The size of each volume in bytes, by the plugin's id.
    pub volumes: BTreeMap<String, u64>,
    /// The names by which its volumes were created.
    pub names: BTreeSet<String>,
    /// The plugin's ids of its snapshots.
    pub snapshots: BTreeSet<String>,
}

impl Storage {
    /// Reads the lists of the development driver.
    pub fn read(volumes: &[Value], snapshots: &[Value]) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let size = |volume: &Value| volume["capacity_bytes"].as_u64().unwrap_or_default();
        Self {
            volumes: volumes
                .iter()
                .map(|volume| (text(&volume["volume_id"]), size(volume)))
                .collect(),
            names: volumes.iter().map(|volume| text(&volume["asked"]["name"])).collect(),
            snapshots: snapshots.iter().map(|snapshot| text(&snapshot["snapshot_id"])).collect(),
        }
    }
}

/// The record of a volume.
#[derive(Clone, Debug, Default)]
pub struct VolumeOnRecord {
    /// Its id.
    pub id: String,
    /// The plugin's id; `None` if the volume was not created.
    pub external_id: Option<String>,
    /// The name by which it was created; `None` if it was registered.
    pub name: Option<String>,
    /// Its size in bytes, where known.
    pub bytes: Option<u64>,
    /// Whether it can be claimed.
    pub ready: bool,
    /// The operation under way, as text for a violation.
    pub operation: Option<String>,
    /// Whether it was created for one alloc.
    pub is_scratch: bool,
}

/// The record of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct SnapshotOnRecord {
    /// Its volume and its id in one text.
    pub id: String,
    /// The plugin's id; `None` if the snapshot was not cut.
    pub external_id: Option<String>,
    /// The operation under way, as text for a violation.
    pub operation: Option<String>,
}

/// Every way in which the storage, the records and the acknowledgements differ. All allocs have
/// ended.
pub fn compare(
    storage: &Storage,
    volumes: &[VolumeOnRecord],
    snapshots: &[SnapshotOnRecord],
    created: &[CreatedVolume],
    cut: &[CutSnapshot],
) -> Vec<Violation> {
    let mut violations = listed(storage, volumes, snapshots);
    let mut violated = |kind, what: String| violations.push(Violation { kind, what });
    for volume in volumes {
        if let Some(operation) = &volume.operation {
            violated("operation without end", format!("{}: {operation}", volume.id));
        }
        if volume.is_scratch {
            violated("volume of an ended run left", format!("{volume:?}"));
        }
        let stored = volume.external_id.as_ref().and_then(|id| storage.volumes.get(id));
        let is_created = volume.name.is_some() && volume.operation.is_none();
        if is_created && stored.is_some() && volume.bytes != stored.copied() {
            violated("size differs", format!("{volume:?}, the storage has {stored:?} bytes"));
        }
    }
    for snapshot in snapshots {
        if let Some(operation) = &snapshot.operation {
            violated("operation without end", format!("{}: {operation}", snapshot.id));
        }
    }
    for acknowledged in created {
        let record = volumes.iter().find(|volume| volume.name.as_ref() == Some(&acknowledged.name));
        let serves =
            |volume: &VolumeOnRecord| volume.ready && volume.bytes >= Some(acknowledged.bytes);
        if acknowledged.is_surely_there() && !record.is_some_and(serves) {
            violated(
                "acknowledged creation lost",
                format!("{acknowledged:?}, on record is {record:?}"),
            );
        }
        if acknowledged.gone && (record.is_some() || storage.names.contains(&acknowledged.name)) {
            violated(
                "acknowledged deletion undone",
                format!("{acknowledged:?}, on record is {record:?}"),
            );
        }
    }
    for acknowledged in cut {
        let of_told = |snapshot: &&SnapshotOnRecord| {
            snapshot.external_id.as_ref() == Some(&acknowledged.external_id)
        };
        let record = snapshots.iter().find(of_told);
        if acknowledged.let_go.is_none() && record.is_none() {
            violated("acknowledged snapshot lost", format!("{acknowledged:?}"));
        }
        if acknowledged.gone
            && (record.is_some() || storage.snapshots.contains(&acknowledged.external_id))
        {
            violated(
                "acknowledged deletion undone",
                format!("{acknowledged:?}, on record is {record:?}"),
            );
        }
    }
    violations
}

/// Checks that the storage has what the records list, and nothing else.
fn listed(
    storage: &Storage,
    volumes: &[VolumeOnRecord],
    snapshots: &[SnapshotOnRecord],
) -> Vec<Violation> {
    let known_volumes = volumes.iter().filter_map(|volume| volume.external_id.clone());
    let known_snapshots = snapshots.iter().filter_map(|snapshot| snapshot.external_id.clone());
    let stored_volumes = storage.volumes.keys().cloned().collect();
    let mut violations = differ("volume", known_volumes.collect(), stored_volumes);
    violations.extend(differ("snapshot", known_snapshots.collect(), storage.snapshots.clone()));
    violations
}

fn differ(what: &str, recorded: BTreeSet<String>, stored: BTreeSet<String>) -> Vec<Violation> {
    let unknown = stored.difference(&recorded).map(|id| {
        let what = format!("{what} {id} is at the storage, and no record knows it");
        Violation { kind: "at the storage without a record", what }
    });
    let missing = recorded.difference(&stored).map(|id| {
        let what = format!("{what} {id} is on record, and the storage has none");
        Violation { kind: "on record without storage", what }
    });
    unknown.chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ledger::CreationRequest;

    fn storage() -> Storage {
        let created = json!({"volume_id": "vol-n", "capacity_bytes": 5, "asked": {"name": "n"}});
        let provisioned = json!({"volume_id": "writer", "capacity_bytes": 0});
        Storage::read(&[created, provisioned], &[json!({"snapshot_id": "snap-s"})])
    }

    fn on_record() -> (Vec<VolumeOnRecord>, Vec<SnapshotOnRecord>) {
        let created = VolumeOnRecord {
            id: "created".to_owned(),
            external_id: Some("vol-n".to_owned()),
            name: Some("n".to_owned()),
            bytes: Some(5),
            ready: true,
            ..VolumeOnRecord::default()
        };
        let registered = VolumeOnRecord {
            external_id: Some("writer".to_owned()),
            ready: true,
            ..VolumeOnRecord::default()
        };
        let external_id = Some("snap-s".to_owned());
        let snapshot = SnapshotOnRecord { external_id, ..SnapshotOnRecord::default() };
        (vec![created, registered], vec![snapshot])
    }

    fn acknowledged() -> (CreatedVolume, CutSnapshot) {
        let created = CreatedVolume {
            id: "created".to_owned(),
            name: "n".to_owned(),
            requested: 1,
            request: CreationRequest::Empty,
            ready: true,
            bytes: 5,
            let_go: None,
            gone: false,
        };
        let cut = CutSnapshot {
            volume: "created".to_owned(),
            snapshot: "s".to_owned(),
            external_id: "snap-s".to_owned(),
            in_group: false,
            let_go: None,
            gone: false,
        };
        (created, cut)
    }

    type All = (Storage, Vec<VolumeOnRecord>, Vec<SnapshotOnRecord>, CreatedVolume, CutSnapshot);

    fn kinds(change: impl FnOnce(&mut All)) -> Vec<&'static str> {
        let ((volumes, snapshots), (created, cut)) = (on_record(), acknowledged());
        let mut all = (storage(), volumes, snapshots, created, cut);
        change(&mut all);
        let (storage, volumes, snapshots, created, cut) = all;
        let kinds = compare(&storage, &volumes, &snapshots, &[created], &[cut]);
        kinds.into_iter().map(|violation| violation.kind).collect()
    }

    #[test]
    fn what_agrees_is_right() {
        assert_eq!(kinds(|_| {}), [""; 0]);
    }

    #[test]
    fn what_no_record_knows_is_found() {
        let kind = "at the storage without a record";
        assert_eq!(kinds(|all| _ = all.0.volumes.insert("vol-x".to_owned(), 1)), [kind]);
        assert_eq!(kinds(|all| _ = all.0.snapshots.insert("snap-x".to_owned())), [kind]);
        // This is a member of a group whose record was deleted first.
        let group_member = |all: &mut All| {
            all.2.clear();
            all.4.let_go = Some(9);
        };
        assert_eq!(kinds(group_member), [kind]);
    }

    #[test]
    fn what_the_storage_does_not_have_is_found() {
        let kind = "on record without storage";
        assert_eq!(kinds(|all| all.0.volumes.clear()), [kind, kind]);
        assert_eq!(kinds(|all| all.0.snapshots.clear()), [kind]);
    }

    #[test]
    fn an_operation_that_goes_on_and_a_volume_of_an_ended_run_are_found() {
        let operation = || Some("deleting".to_owned());
        let without_end = "operation without end";
        assert_eq!(kinds(|all| all.1[0].operation = operation()), [without_end]);
        assert_eq!(kinds(|all| all.2[0].operation = operation()), [without_end]);
        let kinds = kinds(|all| all.1[0].is_scratch = true);
        assert_eq!(kinds, ["volume of an ended run left"]);
    }

    #[test]
    fn an_acknowledged_volume_that_is_lost_is_found() {
        let kind = "acknowledged creation lost";
        assert_eq!(kinds(|all| all.1[0].ready = false), [kind]);
        assert_eq!(kinds(|all| all.3.name = "other".to_owned()), [kind]);
        assert_eq!(kinds(|all| all.3.bytes = 6), [kind]);
        assert_eq!(kinds(|all| all.1[0].bytes = Some(6)), ["size differs"]);
        // Somebody asked for its deletion, so it may be gone.
        let let_go = |all: &mut All| (all.3.let_go, all.1[0].ready) = (Some(9), false);
        assert_eq!(kinds(let_go), [""; 0]);
        assert_eq!(kinds(|all| all.4.external_id = "x".to_owned()), ["acknowledged snapshot lost"]);
    }

    #[test]
    fn an_acknowledged_deletion_that_is_undone_is_found() {
        let kind = "acknowledged deletion undone";
        let gone = |all: &mut All| (all.3.let_go, all.3.gone) = (Some(9), true);
        assert_eq!(kinds(gone), [kind]);
        let cut_gone = |all: &mut All| (all.4.let_go, all.4.gone) = (Some(9), true);
        assert_eq!(kinds(cut_gone), [kind]);
    }
}
