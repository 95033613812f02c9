//! What a cell is about: a volume of its own, the alloc that has it, and others that want it.

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

/// What the holder writes.
const CONTENT: &str = "written by the alloc that has the volume";

/// The names and places of one cell.
#[derive(Debug, Clone)]
pub struct Scene {
    pub volume: String,
    /// Another name, for a second registration.
    pub second: String,
    /// Has the volume, on `n1`.
    pub holder: String,
    /// Wants it, on `n2`.
    pub other: String,
    /// Comes later, on `n2`.
    pub third: String,
    /// Takes whatever it is given, on `n2`, after the request.
    pub taker: String,
    pub owner: String,
    pub class: String,
    /// The plugin's id of the volume.
    pub external_id: String,
    /// Where the holder has it.
    pub path: String,
}

impl Scene {
    /// A created volume. `class` limits how many of its kind there are.
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

    /// The document of an alloc that wants the volume.
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

    /// What is wrong with the holder's mount; `ended` if it need not be there any more.
    pub fn fault_of_mount(&self, ended: bool) -> Option<String> {
        if !self.is_mounted() {
            let told = format!("nothing is mounted at {}, and the alloc lives", self.path);
            return (!ended).then_some(told);
        }
        let found = fs::read_to_string(Path::new(&self.path).join("f"));
        if found.as_ref().is_ok_and(|text| text == CONTENT) {
            return None;
        }
        Some(format!("the alloc's data is lost while {} is mounted: {found:?}", self.path))
    }

    /// Another alloc asks for the volume on `n2`, by each of its names: what was decided wrongly
    /// may show only now. The names by which it was granted: where its record was lost, a name may
    /// be another volume's by now.
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

    /// Ends every alloc, whatever is known of it.
    pub async fn end_allocs(&self, system: &System) {
        let subject = verb::AllocStop::subject(&Namespace::default());
        for alloc in [&self.holder, &self.other, &self.third, &self.taker] {
            let by_owner = system.persist::<Value>(&subject, &self.stop(alloc)).await;
            if by_owner.is_err() {
                // Adopted by another owner, or not there.
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
