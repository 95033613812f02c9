//! Volumes at their storage: created, deleted, and cut as a snapshot, with a real agent and driver.
//!
//! An operation lasts from its request until a reader that waits with `newer_than` learns that it
//! is done. The limit is the plugin's own call times, from the driver's log, as if the calls of
//! parallel callers never waited for each other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bus, Call, RequestError};
use berth_contract::code::Code;
use berth_contract::message::snapshot::{SnapshotStub, Snapshots, SnapshotsChanged};
use berth_contract::message::storage::StorageChanged;
use berth_contract::message::volume::VolumeStatus;
use berth_contract::verb::{self, Verb};
use berth_domain::Namespace;
use berth_domain::volume::storage::{SnapshotState, Stage};
use berth_harness::wait;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Effort;
use super::mounts::{self, PLUGIN};
use crate::load::{self, Supply};
use crate::row::{Part, Row};
use crate::site::PATIENCE;
use crate::stats::{Sample, count, median};
use crate::{Fatal, ask};

/// Parallel callers.
const TOGETHER: u32 = 16;
/// The snapshot of each volume.
const SNAPSHOT: &str = "cut";

const CREATE: MeasuredCall = MeasuredCall { name: "create to ready", rpc: "CreateVolume" };
const DELETE: MeasuredCall = MeasuredCall { name: "delete to gone", rpc: "DeleteVolume" };
const CUT: MeasuredCall = MeasuredCall { name: "snapshot to ready", rpc: "CreateSnapshot" };

/// An operation that is measured, and the plugin's call in it.
#[derive(Clone, Copy)]
struct MeasuredCall {
    name: &'static str,
    rpc: &'static str,
}

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let Some(site) = mounts::start_with_driver("the rows of storage operations").await? else {
        return Ok(Vec::new());
    };
    let storage = StorageRequests { bus: site.bus.clone(), namespace: Namespace::default() };
    let log = site.path("calls");
    // Healthy at the registry is not yet healthy at the claim service.
    wait::until("a volume is created", PATIENCE, || storage.create("first")).await;
    // A deletion is refused until the node has reported its mounts.
    wait::until("a volume is deleted", PATIENCE, || storage.delete("first")).await;
    // The first operations find everything cold.
    alone(&storage, "warm", 3).await?;
    let before = std::fs::metadata(&log)?.len();
    let [created, cut, deleted] = alone(&storage, "alone", effort.mounts).await?;
    let mut rows = Vec::new();
    for (operation, times) in [(CREATE, created), (CUT, cut), (DELETE, deleted)] {
        // One after another: the rate is that of the median time, as the limit's is.
        let sample = Sample::of_median(times).ok_or("nothing was created")?;
        let calls = operation.seconds_since(&log, before)?;
        let call = median(calls).ok_or("the driver's log shows no call")?;
        rows.push(operation.row(1, &sample, call));
    }
    let (many, volumes) = (effort.created, site.volumes().await?);
    let ids: Vec<String> = (0..many).map(|at| format!("many-{at:04}")).collect();
    for operation in [CREATE, DELETE] {
        let before = std::fs::metadata(&log)?.len();
        let (head, worked) = (volumes.head(">").await?, site.worked()?);
        let sample = crowd(&storage, &ids, operation.rpc == CREATE.rpc).await?;
        let cpu_us = site.worked_each(&worked, many)?;
        let written = volumes.head(">").await?.saturating_sub(head);
        let calls = operation.seconds_since(&log, before)?;
        let call = calls.iter().sum::<f64>() / count(calls.len());
        let row = operation.row(TOGETHER, &sample, call);
        rows.push(Row {
            name: format!("{}, {many} volumes", row.name),
            writes: Some(count(usize::try_from(written)?) / count(many)),
            ..row.work(cpu_us)
        });
    }
    Ok(rows)
}

impl MeasuredCall {
    /// How long each of the plugin's calls worked, after this offset of the driver's log.
    fn seconds_since(self, log: &Path, offset: u64) -> Result<Vec<f64>, Fatal> {
        mounts::seconds_of_each_since(log, offset, self.rpc)
    }

    /// The row of this many callers, beside the seconds of one call of the plugin.
    fn row(self, at_once: u32, sample: &Sample, call_seconds: f64) -> Row {
        let row = Row::new(Part::Storage, self.name, at_once, 1).sample(sample);
        row.limit("the plugin's own calls", f64::from(at_once) / call_seconds)
    }
}

/// Creates volumes one after another, cuts a snapshot of each and deletes it. Returns the times of
/// the creations, of the snapshots, and of the deletions.
async fn alone(
    storage: &StorageRequests,
    name: &str,
    many: usize,
) -> Result<[Vec<Duration>; 3], Fatal> {
    let mut times: [Vec<Duration>; 3] = Default::default();
    for at in 0..many {
        let id = format!("{name}-{at:04}");
        times[0].push(storage.create(&id).await?);
        times[1].push(storage.cut(&id).await?);
        storage.delete_cut(&id).await?;
        times[2].push(storage.delete(&id).await?);
    }
    Ok(times)
}

/// [`TOGETHER`] callers create all volumes, or delete them. The rate is that of all callers.
async fn crowd(storage: &StorageRequests, ids: &[String], creates: bool) -> Result<Sample, Fatal> {
    let ids = Supply::new(ids.to_vec());
    let began = Instant::now();
    let times = load::callers(TOGETHER as usize, |_| {
        let (storage, ids) = (storage.clone(), Arc::clone(&ids));
        async move {
            let mut times = Vec::new();
            while let Some(id) = ids.take() {
                let took =
                    if creates { storage.create(id).await } else { storage.delete(id).await };
                times.push(took?);
            }
            Ok(times)
        }
    });
    let times = times.await?.concat();
    Ok(Sample::new(times, began.elapsed()).ok_or("nothing was created")?)
}

/// Requests about volumes at their storage. Each returns how long it took.
#[derive(Clone)]
struct StorageRequests {
    bus: Bus,
    namespace: Namespace,
}

impl StorageRequests {
    async fn create(&self, id: &str) -> Result<Duration, Fatal> {
        let capability = [json!({"access": "single-node-writer"})];
        let document = json!({"id": id, "plugin": PLUGIN, "capability": capability});
        let began = Instant::now();
        let changed: StorageChanged = self.ask::<verb::VolumeCreate>(&document).await?;
        let mut index = changed.index;
        while began.elapsed() < PATIENCE {
            let status = self.newer_status(id, index).await?;
            let status = status.ok_or_else(|| format!("volume {id} is gone"))?;
            let storage = status.storage.ok_or_else(|| format!("volume {id} has no storage"))?;
            match storage.stage {
                Stage::Ready if storage.operation.is_none() => return Ok(began.elapsed()),
                Stage::Failed => return Err(format!("volume {id}: {:?}", storage.failure).into()),
                _ => index = status.modify_index,
            }
        }
        Err(format!("volume {id} was not ready in time").into())
    }

    async fn delete(&self, id: &str) -> Result<Duration, Fatal> {
        let began = Instant::now();
        let changed: StorageChanged = self.ask::<verb::VolumeDelete>(&json!({"id": id})).await?;
        let mut index = changed.index;
        while began.elapsed() < PATIENCE {
            match self.newer_status(id, index).await? {
                None => return Ok(began.elapsed()),
                Some(status) => index = status.modify_index,
            }
        }
        Err(format!("volume {id} was not gone in time").into())
    }

    async fn cut(&self, id: &str) -> Result<Duration, Fatal> {
        let body = json!({"volumes": [id], "snapshot": SNAPSHOT});
        let began = Instant::now();
        let changed: SnapshotsChanged = self.ask::<verb::SnapshotCreate>(&body).await?;
        let is_ready = |snapshot: &SnapshotStub| snapshot.state == SnapshotState::Ready;
        let first = changed.snapshots.first().ok_or("no snapshot is stored")?;
        let mut index = first.modify_index;
        while began.elapsed() < PATIENCE {
            let listed = self.newer_snapshots(id, index).await?;
            if listed.snapshots.iter().any(is_ready) {
                return Ok(began.elapsed());
            }
            index = listed.index;
        }
        Err(format!("the snapshot of volume {id} was not ready in time").into())
    }

    async fn delete_cut(&self, id: &str) -> Result<(), Fatal> {
        let (body, began) = (json!({"volume": id, "snapshot": SNAPSHOT}), Instant::now());
        let changed: SnapshotsChanged = self.ask::<verb::SnapshotDelete>(&body).await?;
        let mut index = changed.snapshots.first().map(|snapshot| snapshot.modify_index);
        while let Some(than) = index {
            let listed = self.newer_snapshots(id, than).await?;
            index = (!listed.snapshots.is_empty()).then_some(listed.index);
            if began.elapsed() > PATIENCE {
                return Err(format!("the snapshot of volume {id} was not gone in time").into());
            }
        }
        Ok(())
    }

    /// The volume, once it has changed since this revision; none if it is gone.
    async fn newer_status(&self, id: &str, than: u64) -> Result<Option<VolumeStatus>, Fatal> {
        let body = json!({"id": id, "newer_than": than});
        match self.ask::<verb::VolumeStatus>(&body).await {
            Ok(status) => Ok(Some(status)),
            Err(RequestError::Problem(problem)) if problem.code == Code::NoSuchVolume => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The snapshots of a volume, once something of it has changed since this revision.
    async fn newer_snapshots(&self, id: &str, than: u64) -> Result<Snapshots, RequestError> {
        self.ask::<verb::SnapshotList>(&json!({"volume": id, "newer_than": than})).await
    }

    async fn ask<V: Verb<To = Namespace>>(&self, body: &Value) -> Result<V::Reply, RequestError> {
        let call = Call::within(ask::trace(), PATIENCE);
        self.bus.request(&V::subject(&self.namespace), body, &call).await
    }
}
