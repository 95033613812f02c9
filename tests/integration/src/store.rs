//! Requests about volumes at their storage, and the storage's own list beside the records.

use std::collections::BTreeSet;

use berth_contract::code::Code;
use berth_contract::message::class::WrittenClass;
use berth_contract::message::snapshot::{SnapshotStub, Snapshots, SnapshotsChanged};
use berth_contract::message::storage::{StorageChanged, StorageStatus};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::Namespace;
use berth_domain::volume::VolumeSpec;
use berth_domain::volume::storage::{Snapshot, SnapshotState, Stage};
use berth_harness::{storage, wait};
use serde_json::{Value, json};

use crate::RECOVERY;
use crate::system::{PLUGIN, System};

impl System {
    /// Requests a volume with this document over the usual fields.
    pub async fn create(&self, id: &str, document: Value) -> Result<StorageChanged, Problem> {
        let mut whole = json!({"id": id});
        if document.get("class").is_none() {
            whole["plugin"] = json!(PLUGIN);
            whole["capability"] = json!([{"access": "single-node-writer"}]);
        }
        if let (Some(whole), Some(fields)) = (whole.as_object_mut(), document.as_object()) {
            whole.extend(fields.clone());
        }
        self.persist(&verb::VolumeCreate::subject(&Namespace::default()), &whole).await
    }

    /// Creates a volume, and waits until it can be claimed.
    pub async fn created(&self, id: &str, document: Value) -> StorageStatus {
        self.create(id, document).await.expect("the volume is requested");
        self.staged_as(id, Stage::Ready).await
    }

    /// Waits until the volume's life at the storage has come so far, and nothing is under way.
    pub async fn staged_as(&self, id: &str, stage: Stage) -> StorageStatus {
        wait::until(&format!("{id} is {stage}"), RECOVERY, || async {
            let status = self.volume_status(id).await.map_err(|problem| problem.to_string())?;
            match status.storage {
                Some(storage) if storage.stage == stage && storage.operation.is_none() => {
                    Ok(storage)
                }
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    /// Registers an alloc for the volume, and returns why it does not get it.
    pub async fn run_refused(&self, alloc: &str, node: usize, volume: &str) -> Problem {
        self.alloc(alloc, node, volume, false).await;
        wait::until("the mount is refused", RECOVERY, || async {
            match self.try_mount(alloc, node, volume).await {
                Err(problem) if problem.code == Code::NodeReturning => Err(problem.to_string()),
                Err(problem) => Ok(problem),
                Ok(mounted) => panic!("{volume} is mounted at {}", mounted.path),
            }
        })
        .await
    }

    /// Requests the deletion of a volume.
    pub async fn delete(&self, id: &str) -> Result<StorageChanged, Problem> {
        let subject = verb::VolumeDelete::subject(&Namespace::default());
        self.persist(&subject, &json!({"id": id})).await
    }

    /// Deletes a volume, and waits until it is gone from the records.
    pub async fn deleted(&self, id: &str) {
        match self.delete(id).await {
            Ok(_) => {}
            Err(problem) if problem.code == Code::NoSuchVolume => {}
            Err(problem) => panic!("{problem}"),
        }
        self.forgotten(id).await;
    }

    /// Ends the one alloc that uses the volume, and deletes the volume once it is free.
    pub async fn ended_and_deleted(&self, alloc: &str, volume: &str) {
        self.stop(alloc).await;
        self.freed(volume).await;
        self.deleted(volume).await;
    }

    /// Waits until no record of the volume is left.
    pub async fn forgotten(&self, id: &str) {
        wait::until(&format!("{id} is gone"), RECOVERY, || async {
            match self.volume_status(id).await {
                Err(problem) if problem.code == Code::NoSuchVolume => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// Requests a larger size.
    pub async fn expand(&self, id: &str, body: Value) -> Result<StorageChanged, Problem> {
        let mut whole = json!({"id": id});
        if let (Some(whole), Some(fields)) = (whole.as_object_mut(), body.as_object()) {
            whole.extend(fields.clone());
        }
        self.persist(&verb::VolumeExpand::subject(&Namespace::default()), &whole).await
    }

    /// Requests a snapshot of each volume.
    pub async fn snapshot(
        &self,
        volumes: &[&str],
        snapshot: &str,
        more: Value,
    ) -> Result<SnapshotsChanged, Problem> {
        let mut whole = json!({"volumes": volumes, "snapshot": snapshot});
        if let (Some(whole), Some(fields)) = (whole.as_object_mut(), more.as_object()) {
            whole.extend(fields.clone());
        }
        self.persist(&verb::SnapshotCreate::subject(&Namespace::default()), &whole).await
    }

    /// The snapshots of a volume.
    pub async fn snapshots(&self, volume: &str) -> Vec<SnapshotStub> {
        let subject = verb::SnapshotList::subject(&Namespace::default());
        let listed: Snapshots =
            self.persist(&subject, &json!({"volume": volume})).await.expect("snapshots are listed");
        listed.snapshots
    }

    /// Waits until a snapshot is in this state.
    pub async fn snapshot_is(&self, volume: &str, id: &str, state: SnapshotState) -> SnapshotStub {
        wait::until(&format!("{volume}@{id} is {state}"), RECOVERY, || async {
            let all = self.snapshots(volume).await;
            let found = all.iter().find(|one| one.snapshot.as_str() == id);
            match found.filter(|one| one.state == state) {
                Some(found) => Ok(found.clone()),
                None => Err(format!("{all:?}")),
            }
        })
        .await
    }

    /// Deletes a snapshot or its group, and waits until it is gone from the records.
    pub async fn snapshot_deleted(&self, volume: &str, id: &str, group: bool) {
        let subject = verb::SnapshotDelete::subject(&Namespace::default());
        let body = json!({"volume": volume, "snapshot": id, "group": group});
        match self.persist::<SnapshotsChanged>(&subject, &body).await {
            Ok(_) => {}
            Err(problem) if problem.code == Code::NoSuchSnapshot => {}
            Err(problem) => panic!("{problem}"),
        }
        wait::until(&format!("{volume}@{id} is gone"), RECOVERY, || async {
            let all = self.snapshots(volume).await;
            let is_left = all.iter().any(|one| one.snapshot.as_str() == id);
            if is_left { Err(format!("{all:?}")) } else { Ok(()) }
        })
        .await;
    }

    /// Defines a class.
    pub async fn class(&self, id: &str, document: Value) -> Result<WrittenClass, Problem> {
        let mut whole = json!({
            "id": id, "plugin": PLUGIN, "capability": [{"access": "single-node-writer"}],
        });
        if let (Some(whole), Some(fields)) = (whole.as_object_mut(), document.as_object()) {
            whole.extend(fields.clone());
        }
        self.persist(&verb::ClassPut::subject(&()), &whole).await
    }

    /// Asserts that the storage has exactly the volumes and snapshots that the records know.
    pub async fn assert_known(&self) {
        // Volumes that a test provisions by itself have other ids.
        let of_storage = |all: Vec<Value>, id: &str| -> BTreeSet<String> {
            let ids = all.iter().filter_map(|one| one[id].as_str());
            ids.filter(|id| is_created(id)).map(str::to_owned).collect()
        };
        let volumes = of_storage(storage::volumes(&self.backend()), "volume_id");
        let snapshots = of_storage(storage::snapshots(&self.backend()), "snapshot_id");
        let (known_volumes, known_snapshots) = self.known_ids().await;
        assert_eq!(volumes, known_volumes, "volumes of the storage, and of the records");
        assert_eq!(snapshots, known_snapshots, "snapshots of the storage, and of the records");
    }

    /// The plugin's ids of all volumes and snapshots on record, read from the bucket itself.
    async fn known_ids(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let replicas = if self.options.servers == 1 { 1 } else { 3 };
        let bucket = self.bus.bucket(&bucket::VOLUMES, replicas).await.expect("the bucket");
        let listed = bucket.list(">").await.expect("the records are listed");
        let (mut volumes, mut snapshots) = (BTreeSet::new(), BTreeSet::new());
        for entry in listed.entries {
            let Some(value) = &entry.value else { continue };
            match key::parse_volume(&entry.key) {
                Some(key::VolumeEntry::Spec(volume)) => {
                    let spec: VolumeSpec = serde_json::from_slice(value).expect("a spec");
                    let handle = spec.handle(&volume.volume);
                    let created = handle.map(|handle| handle.external_id);
                    volumes.extend(created.filter(|id| is_created(id)));
                }
                Some(key::VolumeEntry::Snapshot(..)) => {
                    let snapshot: Snapshot = serde_json::from_slice(value).expect("a snapshot");
                    snapshots.extend(snapshot.ids().cloned());
                }
                _ => {}
            }
        }
        (volumes, snapshots)
    }
}

/// Whether the driver made it for a call, and no test beforehand.
fn is_created(id: &str) -> bool {
    id.starts_with("vol-") || id.starts_with("snap-")
}
