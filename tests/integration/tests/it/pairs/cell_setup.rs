//! The setup of a cell: its own volume, the alloc that has it, and allocs that request it.

use std::fs;
use std::path::Path;

use berth_contract::message::alloc::{RegisterAlloc, StopAlloc};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::{Namespace, NodeId, VolumeId};
use berth_harness::dirs::mounts_beneath;
use berth_integration::System;
use serde_json::{Value, json};

/// The text that the holder writes.
const CONTENT: &str = "written by the alloc that has the volume";

/// The names and paths of one cell.
#[derive(Debug, Clone)]
pub struct CellSetup {
    pub volume: String,
    /// Another name, for a second registration.
    pub second: String,
    /// The alloc that has the volume, on `n1`.
    pub holder: String,
    /// An alloc that requests the volume, on `n2`.
    pub other: String,
    /// An alloc that is registered later, on `n2`.
    pub third: String,
    /// An alloc that takes every volume that it is granted, on `n2`, after the request.
    pub taker: String,
    pub owner: String,
    pub class: String,
    /// The plugin's id of the volume.
    pub external_id: String,
    /// The path at which the holder has the volume mounted.
    pub path: String,
}

impl CellSetup {
    /// Creates a volume. `with_class` gives it a class with a quota.
    pub async fn create(system: &System, number: usize, with_class: bool) -> Self {
        let name = |what: &str| format!("{what}{number}");
        let (volume, class) = (name("v"), name("class"));
        let document = if with_class {
            system.class(&class, json!({"quota_volumes": 1})).await.unwrap();
            json!({"class": class, "size": "1MiB"})
        } else {
            json!({"size": "1MiB"})
        };
        system.created(&volume, document).await;
        let external_id = system.volume_status(&volume).await.unwrap().external_id.unwrap();
        Self {
            volume,
            second: name("w"),
            holder: name("a"),
            other: name("b"),
            third: name("c"),
            taker: name("d"),
            owner: name("o"),
            class,
            external_id,
            path: String::new(),
        }
    }

    /// The holder mounts the volume and writes into it; the other alloc is registered.
    pub async fn occupy(&mut self, system: &System) {
        for (alloc, node) in [(&self.holder, "n1"), (&self.other, "n2")] {
            let register = self.register(alloc, node);
            let subject = verb::AllocRegister::subject(&Namespace::default());
            system.persist::<Value>(&subject, &register).await.unwrap();
        }
        self.path = system.mount(&self.holder, 0, &self.volume).await.unwrap().path;
        fs::write(Path::new(&self.path).join("f"), CONTENT).unwrap();
    }

    /// The document of an alloc that requests the volume.
    pub fn register(&self, alloc: &str, node: &str) -> RegisterAlloc {
        let volume = VolumeRequest::for_volume(VolumeId::new(&*self.volume).unwrap());
        let node = NodeId::new(node).unwrap();
        RegisterAlloc {
            allow_missing: true,
            owner: Some(self.owner.parse().unwrap()),
            ..RegisterAlloc::new(alloc.parse().unwrap(), node, vec![volume])
        }
    }

    pub fn stop(&self, alloc: &str) -> StopAlloc {
        let owner = Some(self.owner.parse().unwrap());
        StopAlloc { owner, ..StopAlloc::new(alloc.parse().unwrap(), AllocState::Complete, None) }
    }

    /// The fault of the holder's mount, if it has one. If `ended`, the mount may be gone.
    pub fn fault_of_mount(&self, ended: bool) -> Option<String> {
        if !self.is_mounted() {
            let fault = format!("nothing is mounted at {}, and the alloc lives", self.path);
            return (!ended).then_some(fault);
        }
        let content = fs::read_to_string(Path::new(&self.path).join("f"));
        if content.as_ref().is_ok_and(|text| text == CONTENT) {
            return None;
        }
        Some(format!("the alloc's data is lost while {} is mounted: {content:?}", self.path))
    }

    /// Has another alloc request the volume on `n2`, by each of its names: a wrong decision may
    /// show only now. Returns the names by which the volume was granted. A name whose record was
    /// lost may belong to another volume by now.
    pub async fn take_elsewhere(&self, system: &System) -> Vec<String> {
        let mut register = self.register(&self.taker, "n2");
        let second = VolumeRequest::for_volume(VolumeId::new(&*self.second).unwrap());
        register.volumes.push(second);
        let subject = verb::AllocRegister::subject(&Namespace::default());
        system.persist::<Value>(&subject, &register).await.unwrap();
        let mut granted = Vec::new();
        for volume in [&self.volume, &self.second] {
            if system.try_mount(&self.taker, 1, volume).await.is_err() {
                continue;
            }
            let status = system.volume_status(volume).await.unwrap();
            if status.external_id.as_ref() == Some(&self.external_id) {
                granted.push(volume.clone());
            }
        }
        granted
    }

    /// Whether the holder has the volume mounted.
    pub fn is_mounted(&self) -> bool {
        !mounts_beneath(Path::new(&self.path)).is_empty()
    }

    /// Ends every alloc, whatever its state.
    pub async fn end_allocs(&self, system: &System) {
        let subject = verb::AllocStop::subject(&Namespace::default());
        for alloc in [&self.holder, &self.other, &self.third, &self.taker] {
            let by_owner = system.persist::<Value>(&subject, &self.stop(alloc)).await;
            if by_owner.is_err() {
                // The alloc may be adopted by another owner, or may not exist.
                let revision = self.revision_of(system, alloc).await;
                let stop = json!({"id": alloc, "revision": revision});
                let _unknown: Result<Value, Problem> = system.persist(&subject, &stop).await;
            }
        }
    }

    async fn revision_of(&self, system: &System, alloc: &str) -> Option<u64> {
        let subject = verb::AllocStatus::subject(&Namespace::default());
        let status: Value = system.persist(&subject, &json!({"id": alloc})).await.ok()?;
        status["modify_index"].as_u64()
    }
}
