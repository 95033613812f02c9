//! Compares the storage's own lists with the records, at rest.

use berth_contract::{key, record};
use berth_domain::volume::VolumeSpec;
use berth_domain::volume::storage::{
    Expansion, Operation, OperationKind, Snapshot, SnapshotState, Work,
};
use berth_harness::storage;
use serde_json::Value;

use super::Run;
use crate::plan::PLUGINS;
use crate::verdict::{SnapshotOnRecord, Storage, VolumeOnRecord, compare};

/// The records of all volumes and snapshots.
struct OnRecord {
    volumes: Vec<VolumeOnRecord>,
    snapshots: Vec<SnapshotOnRecord>,
    /// The ids of volumes of ended allocs whose deletion the plugin refused.
    refused: Vec<String>,
}

impl Run {
    /// The records as the stream's leader has them. If `unstaged`, an expansion that waits for
    /// the next staging of its volume counts as at rest.
    async fn on_record(&self, unstaged: bool) -> Result<OnRecord, String> {
        let list = self.volumes.list(">").await.map_err(|error| error.to_string())?;
        let mut all = OnRecord { volumes: Vec::new(), snapshots: Vec::new(), refused: Vec::new() };
        for entry in list.entries {
            let Some(value) = &entry.value else { continue };
            let unread = |error: record::RecordError| format!("{}: {error}", entry.key);
            match key::parse_volume(&entry.key) {
                Some(key::VolumeEntry::Spec(volume)) => {
                    let spec = record::read::<VolumeSpec>(value).map_err(unread)?.body;
                    let id = volume.volume.to_string();
                    let failed = spec.failure().map(|failure| failure.operation);
                    let on_record = VolumeOnRecord {
                        external_id: spec.handle(&volume.volume).map(|names| names.external_id),
                        name: spec.provision().map(|provision| provision.name.clone()),
                        bytes: spec.capacity_bytes,
                        ready: spec.stage() == berth_domain::volume::storage::Stage::Ready,
                        operation: under_way(&spec, unstaged),
                        is_scratch: spec
                            .provision()
                            .is_some_and(|provision| provision.for_alloc.is_some()),
                        id: id.clone(),
                    };
                    let is_refused = failed == Some(OperationKind::Delete);
                    if on_record.is_scratch && is_refused && on_record.operation.is_none() {
                        all.refused.push(id);
                    }
                    all.volumes.push(on_record);
                }
                Some(key::VolumeEntry::Snapshot(volume, id)) => {
                    let snapshot = record::read::<Snapshot>(value).map_err(unread)?.body;
                    let at_rest =
                        matches!(snapshot.state, SnapshotState::Ready | SnapshotState::Failed);
                    all.snapshots.push(SnapshotOnRecord {
                        id: format!("{}@{id}", volume.volume),
                        operation: (!at_rest).then(|| format!("{snapshot:?}")),
                        external_id: snapshot.external_id,
                    });
                }
                _ => {}
            }
        }
        Ok(all)
    }

    /// Whether every operation at the storage has ended, and the volumes of ended allocs are
    /// deleted.
    pub(super) async fn storage_rests(&self, unstaged: bool) -> Result<(), String> {
        let on_record = self.on_record(unstaged).await?;
        // A deletion that the plugin refused waits for an operator.
        for id in &on_record.refused {
            let id = berth_domain::VolumeId::new(id.clone()).map_err(|error| error.to_string())?;
            let seen = self.volume_status(&id).await.map_err(|problem| problem.to_string())?;
            let deleted = self.request_deletion(&seen, std::time::Duration::ZERO).await;
            self.ledger.note(format!("{id} deleted by an operator: {deleted:?}"));
        }
        let volumes = on_record
            .volumes
            .iter()
            .filter(|volume| volume.operation.is_some() || volume.is_scratch);
        let mut unsettled: Vec<String> = volumes.map(|volume| format!("{volume:?}")).collect();
        let snapshots = on_record.snapshots.iter().filter(|snapshot| snapshot.operation.is_some());
        unsettled.extend(snapshots.map(|snapshot| format!("{snapshot:?}")));
        if unsettled.is_empty() { Ok(()) } else { Err(format!("{unsettled:#?}")) }
    }

    /// Compares the storage, the records and what the callers were told.
    pub(super) async fn storage_is_known(&self, unstaged: bool) {
        let on_record = match self.on_record(unstaged).await {
            Ok(on_record) => on_record,
            Err(unread) => return self.ledger.violated("stuck", unread),
        };
        let lists = |list: fn(&std::path::Path) -> Vec<Value>| -> Vec<Value> {
            (0..PLUGINS.len()).flat_map(|plugin| list(&self.site.backend(plugin))).collect()
        };
        let storage = Storage::read(&lists(storage::volumes), &lists(storage::snapshots));
        let book = self.ledger.read();
        let violations =
            compare(&storage, &on_record.volumes, &on_record.snapshots, &book.created, &book.cut);
        // A violation that was found before is not recorded again.
        for violation in violations.into_iter().filter(|one| !book.violations.contains(one)) {
            self.ledger.violated(violation.kind, violation.what);
        }
        let (volumes, snapshots) = (storage.volumes.len(), storage.snapshots.len());
        self.ledger.note(format!("the storage has {volumes} volumes, {snapshots} snapshots"));
    }
}

fn under_way(spec: &VolumeSpec, unstaged: bool) -> Option<String> {
    let operation: &Operation = spec.operation()?;
    let waits = matches!(operation.work, Work::Expand(Expansion { at_nodes: true, .. }));
    (!(waits && unstaged)).then(|| format!("{operation:?}"))
}
