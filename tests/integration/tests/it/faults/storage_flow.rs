//! Flows at the storage. Each ends with a comparison of the storage's own list with the records.

use berth_domain::volume::storage::{SnapshotState, Stage};
use berth_harness::proxy::Side::{self, After, Before};
use berth_integration::System;
use serde_json::{Value, json};

/// A change of the storage whose writes and calls are hit by faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFlow {
    /// A volume is created.
    Create,
    /// A volume is created as a copy of another.
    Copy,
    /// A volume is deleted.
    Delete,
    /// A mounted volume is expanded, at its controller and on its node.
    Expand,
    /// A snapshot is cut, found ready, and deleted.
    Snapshot,
    /// Snapshots of two volumes are cut as a group, and deleted.
    Group,
}

const SMALL: u64 = 320 << 20;
const LARGE: u64 = 400 << 20;
const SNAPSHOT: &str = "s";

impl StorageFlow {
    /// See `Flow::turns`.
    pub fn turns(self) -> [(Side, &'static str, usize); 2] {
        let provision = "berth.v1.controller.*.provision.*.*";
        match self {
            Self::Create | Self::Delete => {
                [(Before, "$KV.berth-volumes.default.{}.spec", 1), (After, provision, 0)]
            }
            // The first write of the spec is in one batch with its source's, which ends the batch.
            Self::Copy => [(Before, "$KV.berth-volumes.default.{}.spec", 0), (After, provision, 0)],
            Self::Expand => [(Before, "berth.v1.agent.n1.expand.*.*", 0), (After, provision, 0)],
            Self::Snapshot => {
                [(Before, "$KV.berth-volumes.default.{}.snapshot.*", 1), (After, provision, 0)]
            }
            Self::Group => [(Before, provision, 0), (After, provision, 0)],
        }
    }

    /// Brings the system to the state in which the flow begins.
    pub async fn prepare(self, system: &System, volume: &str) {
        let small = json!({"size": "1MiB"});
        match self {
            Self::Create => {}
            Self::Copy => drop(system.created(&source(volume), small).await),
            Self::Delete | Self::Snapshot => drop(system.created(volume, small).await),
            Self::Group => {
                for id in [volume, &source(volume)] {
                    system.created(id, small.clone()).await;
                }
            }
            Self::Expand => {
                let image =
                    json!({"size": SMALL, "parameters": {"backing": "image", "fs-type": "xfs"}});
                system.created(volume, image).await;
                system.run(volume, 0, volume).await;
            }
        }
    }

    /// Runs the flow.
    pub async fn run(self, system: &System, volume: &str) {
        match self {
            Self::Create => drop(system.created(volume, json!({"size": "1MiB"})).await),
            Self::Copy => {
                let from = json!({"from": {"volume": source(volume)}});
                system.created(volume, from).await;
            }
            Self::Delete => system.deleted(volume).await,
            Self::Expand => {
                system.expand(volume, json!({"size": LARGE})).await.unwrap();
                system.staged_as(volume, Stage::Ready).await;
            }
            Self::Snapshot | Self::Group => {
                let volumes: Vec<String> = match self {
                    Self::Group => vec![volume.to_owned(), source(volume)],
                    _ => vec![volume.to_owned()],
                };
                let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
                let slow = json!({"parameters": {"ready-after-ms": "300"}});
                system.snapshot(&volumes, SNAPSHOT, slow).await.unwrap();
                system.snapshot_is(volume, SNAPSHOT, SnapshotState::Ready).await;
                system.snapshot_deleted(volume, SNAPSHOT, self == Self::Group).await;
            }
        }
    }

    /// Checks the end: the volume can be used, and the storage's list equals the records, before
    /// and after everything is deleted.
    pub async fn check_end(self, system: &System, volume: &str) {
        system.assert_known().await;
        match self {
            Self::Create | Self::Copy => {
                system.run(volume, 1, volume).await;
                system.stop(volume).await;
            }
            Self::Expand => {
                let status = system.volume_status(volume).await.unwrap();
                assert_eq!(status.capacity_bytes, Some(LARGE));
                system.stop(volume).await;
            }
            Self::Delete | Self::Snapshot | Self::Group => {}
        }
        let mut volumes: Vec<String> = vec![volume.to_owned()];
        if matches!(self, Self::Copy | Self::Group) {
            volumes.push(source(volume));
        }
        for id in &volumes {
            system.freed(id).await;
            system.deleted(id).await;
        }
        system.assert_known().await;
        let stored = super::flow::stored_keys(system, volume).await;
        assert_eq!(stored, Vec::<String>::new(), "keys of {volume} are left");
        let listed: Vec<Value> = berth_harness::storage::volumes(&system.backend());
        for id in volumes {
            let name = format!("berth-{id}-");
            let is_listed = listed.iter().any(|volume| volume.to_string().contains(&name));
            assert!(!is_listed, "{id} is deleted, and the storage still has it");
        }
        system.judge();
    }
}

/// The source of a copy, or the other volume of a group.
fn source(volume: &str) -> String {
    format!("{volume}-second")
}
