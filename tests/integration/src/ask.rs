//! Requests as a user sends them: over the bus, retried while the answer is "later".

use std::time::Duration;

use berth_bus::{Call, RequestError};
use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::message::agent::{Mount, Mounted};
use berth_contract::message::alloc::{self, AllocStatus};
use berth_contract::message::claim::Claims;
use berth_contract::message::registry::{Nodes, Plugins};
use berth_contract::message::volume::{self, Deregistered, Registered, VolumeStatus, Volumes};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::plugin::Node;
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::process::binary;
use berth_harness::wait;
use berth_service::clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::system::{PLUGIN, System};

/// How long a system may take to carry out a request after a fault.
pub const RECOVERY: Duration = Duration::from_secs(120);

fn volume_id(id: &str) -> VolumeId {
    VolumeId::new(id).expect("the test's volume has an id")
}

fn alloc_id(id: &str) -> AllocId {
    AllocId::new(id).expect("the test's alloc has an id")
}

fn node_id(node: usize) -> NodeId {
    NodeId::new(format!("n{}", node + 1)).expect("the test's node has an id")
}

fn at_agent(node: usize) -> String {
    verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(node_id(node)))
}

fn mount_request(alloc: &str, volume: &str, wait: bool) -> Mount {
    Mount {
        namespace: Namespace::default(),
        alloc: alloc_id(alloc),
        volume: volume_id(volume),
        wait,
        alias: None,
        path: None,
    }
}

impl System {
    /// Sends a request without a retry.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &impl Serialize,
    ) -> Result<T, Problem> {
        let within = Duration::from_millis(self.options.patience_ms);
        let call = Call::within(clock::begin_trace(), within);
        self.bus.request(subject, body, &call).await.map_err(|error| match error {
            RequestError::Problem(problem) => *problem,
            error => error.into_problem("test"),
        })
    }

    /// Sends a request, and retries while the answer is "later". That a record is newer is an
    /// answer: most tests have replicas of one version.
    pub async fn persist<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &impl Serialize,
    ) -> Result<T, Problem> {
        wait::until(subject, RECOVERY, || async {
            match self.ask(subject, body).await {
                Err(problem) if problem.retryable && problem.code != Code::NewerRecord => {
                    Err(problem.to_string())
                }
                answer => Ok(answer),
            }
        })
        .await
    }

    async fn about<V: Verb<To = Namespace>>(
        &self,
        body: &impl Serialize,
    ) -> Result<V::Reply, Problem> {
        self.persist(&V::subject(&Namespace::default()), body).await
    }

    /// Creates a volume on the storage, and registers it with these access modes.
    pub async fn volume(&self, id: &str, access: &[&str]) -> Registered {
        self.provision(id);
        let capability: Vec<Value> = access.iter().map(|mode| json!({"access": mode})).collect();
        let document = json!({"id": id, "plugin": PLUGIN, "capability": capability});
        self.about::<verb::VolumeRegister>(&document).await.expect("the volume is registered")
    }

    /// The same, for one writer, as a block device.
    pub async fn volume_of_block(&self, id: &str) -> Registered {
        self.provision_with(id, &["--backing", "image", "--capacity-bytes", "1048576"]);
        let document = json!({"id": id, "plugin": PLUGIN, "capability": [
            {"access": "single-node-writer", "attachment": "block-device"}]});
        self.about::<verb::VolumeRegister>(&document).await.expect("the volume is registered")
    }

    /// The same, for one writer, with the secret that the driver demands.
    pub async fn volume_with_secrets(&self, id: &str, secret: &str) -> Registered {
        self.provision(id);
        let document = json!({"id": id, "plugin": PLUGIN, "secrets": {"password": secret},
            "capability": [{"access": "single-node-writer"}]});
        self.about::<verb::VolumeRegister>(&document).await.expect("the volume is registered")
    }

    /// Creates a volume on the storage.
    pub fn provision(&self, id: &str) {
        self.provision_with(id, &[]);
    }

    fn provision_with(&self, id: &str, more: &[&str]) {
        let made = std::process::Command::new(binary("berth-csi-dev"))
            .args(["provision", "--volume", id, "--backend"])
            .arg(self.backend())
            .args(more)
            .output()
            .expect("the driver runs");
        assert!(made.status.success(), "{made:?}");
    }

    /// Registers an alloc on a node (from 0) that requests a volume.
    pub async fn alloc(&self, id: &str, node: usize, volume: &str, read_only: bool) -> AllocStatus {
        let request = VolumeRequest { read_only, ..VolumeRequest::for_volume(volume_id(volume)) };
        let register = alloc::RegisterAlloc {
            allow_missing: true,
            ..alloc::RegisterAlloc::new(alloc_id(id), node_id(node), vec![request])
        };
        self.about::<verb::AllocRegister>(&register).await.expect("the alloc is registered")
    }

    /// Has the node's agent claim and mount the volume; retried while the answer is "later".
    pub async fn mount(&self, alloc: &str, node: usize, volume: &str) -> Result<Mounted, Problem> {
        self.persist(&at_agent(node), &mount_request(alloc, volume, false)).await
    }

    /// The same without a retry. At the request's deadline the agent may answer "later".
    pub async fn try_mount(
        &self,
        alloc: &str,
        node: usize,
        volume: &str,
    ) -> Result<Mounted, Problem> {
        self.ask(&at_agent(node), &mount_request(alloc, volume, false)).await
    }

    /// The same, waiting in the volume's queue while other allocs hold it.
    pub async fn mount_in_turn(
        &self,
        alloc: &str,
        node: usize,
        volume: &str,
    ) -> Result<Mounted, Problem> {
        self.persist(&at_agent(node), &mount_request(alloc, volume, true)).await
    }

    /// Registers an alloc and mounts its volume.
    pub async fn run(&self, alloc: &str, node: usize, volume: &str) -> Mounted {
        self.alloc(alloc, node, volume, false).await;
        self.mount(alloc, node, volume).await.expect("the volume is mounted")
    }

    /// Ends an alloc as complete.
    pub async fn stop(&self, alloc: &str) -> AllocStatus {
        let stop = alloc::StopAlloc::new(alloc_id(alloc), AllocState::Complete, None);
        self.about::<verb::AllocStop>(&stop).await.expect("the alloc is stopped")
    }

    /// All claims on a volume.
    pub async fn claims(&self, volume: &str) -> Claims {
        let query = json!({"volume": volume});
        self.about::<verb::ClaimStatus>(&query).await.expect("claims are shown")
    }

    /// A volume.
    pub async fn volume_status(&self, id: &str) -> Result<VolumeStatus, Problem> {
        self.about::<verb::VolumeStatus>(&json!({"id": id})).await
    }

    /// Waits until the volume has no claim.
    pub async fn freed(&self, volume: &str) {
        wait::until(&format!("{volume} is free"), RECOVERY, || async {
            let claims = self.claims(volume).await.claims;
            if claims.is_empty() {
                return Ok(());
            }
            Err(serde_json::to_string_pretty(&claims).unwrap_or_default())
        })
        .await;
    }

    /// Deregisters a volume.
    pub async fn deregister(&self, id: &str, force: bool) -> Result<Deregistered, Problem> {
        let deregister = volume::Deregister {
            id: volume_id(id),
            force,
            reason: String::new(),
            create_index: None,
        };
        self.about::<verb::VolumeDeregister>(&deregister).await
    }

    /// All volumes.
    pub async fn volumes(&self) -> Result<Volumes, Problem> {
        self.ask(&verb::VolumeList::subject(&Namespace::default()), &json!({})).await
    }

    /// All plugins.
    pub async fn plugins(&self) -> Result<Plugins, Problem> {
        self.ask(&verb::PluginStatus::subject(&()), &json!({})).await
    }

    /// All nodes.
    pub async fn nodes(&self) -> Result<Nodes, Problem> {
        self.ask(&verb::NodeStatus::subject(&()), &json!({})).await
    }

    /// Waits until each node's agent has compared its mounts with the claims, also with those of a
    /// restored bucket. Until then its node is not forgotten.
    pub async fn compared(&self) {
        let volumes = self.bus.bucket(&bucket::VOLUMES, 1).await.expect("the volumes are read");
        let nodes = self.bus.bucket(&bucket::NODES, 1).await.expect("the nodes are read");
        wait::until("every node has compared", RECOVERY, || async {
            let now = volumes.incarnation();
            let list = nodes.list(">").await.map_err(|error| error.to_string())?;
            let records = list.entries.iter().filter_map(|entry| entry.value.as_deref());
            let is_uncompared = |record: &[u8]| {
                let Ok(node) = serde_json::from_slice::<Node>(record) else { return false };
                let is_older = node.compared_incarnation() != Some(now.number);
                node.uncompared || (now.origin.may_lack_records() && is_older)
            };
            let left = records.filter(|record| is_uncompared(record)).count();
            if left == 0 { Ok(()) } else { Err(format!("{left} have not")) }
        })
        .await;
    }
}
