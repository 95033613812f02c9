//! A plugin's id of a snapshot is on record for one snapshot only.
//!
//! **Promises** that an answer with another snapshot's id is not accepted: deleting the one would
//! delete the other.
//!
//! **Never** changes a record.

use berth_domain::volume::storage::Snapshot;
use berth_domain::volume::{Outcome, StorageAnswer};
use berth_domain::{Namespace, SnapshotId, VolumeKey};

use crate::store::state::State;
use crate::store::transact::TransactError;

/// The name of a recorded snapshot for which `is_meant` holds, other than snapshot `id` of
/// `volumes`; only as far as this replica knows.
pub fn find_other(
    state: &State,
    volumes: &[VolumeKey],
    id: &SnapshotId,
    is_meant: impl Fn(&Snapshot) -> bool,
) -> Option<String> {
    let namespace = &volumes.first()?.namespace;
    state.volumes.mirror.read(|all| {
        let mut snapshots = all.iter().flat_map(|(key, subtree)| {
            subtree.volume.snapshots.iter().map(move |(id, snapshot)| (key, id, snapshot))
        });
        let is_own = |volume, snapshot| volumes.contains(volume) && snapshot == id;
        let other = snapshots
            .find(|(volume, snapshot, record)| !is_own(volume, *snapshot) && is_meant(record));
        other.map(|(key, id, _)| name_snapshot_in(namespace, key, id))
    })
}

/// How a snapshot is named to callers of a namespace: they may not know the snapshots of others.
fn name_snapshot_in(namespace: &Namespace, volume: &VolumeKey, id: &SnapshotId) -> String {
    if volume.namespace == *namespace {
        format!("snapshot {id} of volume {}", volume.volume)
    } else {
        "a snapshot of another namespace".to_owned()
    }
}

/// The outcome of a call for a snapshot. An answer with the id of another snapshot counts as a
/// refusal: the plugin would give the same id again, and what it did for this one is unknown.
pub async fn check_ids(
    state: &State,
    volumes: &[VolumeKey],
    id: &SnapshotId,
    outcome: Outcome,
) -> Result<Outcome, TransactError> {
    let answered: Vec<&str> = match &outcome {
        Outcome::Stored(StorageAnswer::Snapshot(made)) => vec![&made.external_id],
        Outcome::Stored(StorageAnswer::Group { snapshots, .. }) => {
            snapshots.iter().map(|snapshot| snapshot.external_id.as_str()).collect()
        }
        _ => return Ok(outcome),
    };
    state.catch_up_with_all().await?;
    let plugin = state.volumes.mirror.read(|all| {
        let mut own = volumes.iter().filter_map(|key| all.get(key)?.volume.snapshots.get(id));
        own.next().map(|own| own.plugin.clone())
    });
    let is_taken = |other: &Snapshot| {
        Some(&other.plugin) == plugin.as_ref()
            && other.ids().any(|id| answered.contains(&id.as_str()))
    };
    Ok(match find_other(state, volumes, id, is_taken) {
        Some(other) => {
            let fault = format!(
                "the plugin answered with an id of {answered:?}, which is the one of {other}; \
                 what it did is not known: look for it at the storage"
            );
            Outcome::Refused(fault.into())
        }
        None => outcome,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_snapshot_nor_volume_of_another_namespace_is_named() {
        let (ours, theirs) = (Namespace::new("ours").unwrap(), Namespace::new("theirs").unwrap());
        let volume = VolumeKey::new(ours.clone(), "data".parse().unwrap());
        let id = SnapshotId::new("friday").unwrap();
        assert_eq!(name_snapshot_in(&ours, &volume, &id), "snapshot friday of volume data");
        let hidden = name_snapshot_in(&theirs, &volume, &id);
        assert_eq!(hidden, "a snapshot of another namespace");
    }
}
