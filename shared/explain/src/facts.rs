//! The facts, with their sources. This crate sends no request.

use std::collections::BTreeMap;

use berth_contract::code::Code;
use berth_contract::message::access::AccessReport;
use berth_contract::message::agent::AgentStatus;
use berth_contract::message::alloc::AllocStatus;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::registry::{NodeStatus, PluginStatus};
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::volume::{NodePlacement, VolumeStatus};
use berth_contract::problem::Problem;
use berth_domain::access::AccessMode;
use berth_domain::{
    AllocId, Namespace, NodeId, PluginId, SnapshotId, Timestamp, VolumeId, VolumeKey,
};

/// A source's answer, or why it did not answer.
pub type SourceAnswer<T> = Result<T, Problem>;

/// The things that a name may mean; of each kind at most one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// A volume of the session's namespace.
    pub volume: Option<VolumeId>,
    /// An alloc of the session's namespace.
    pub alloc: Option<AllocId>,
    /// A node.
    pub node: Option<NodeId>,
    /// A plugin.
    pub plugin: Option<PluginId>,
    /// A snapshot of a volume of the session's namespace.
    pub snapshot: Option<SnapshotName>,
}

/// The name `VOLUME@SNAPSHOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotName {
    /// Its volume, which may have been deleted.
    pub volume: VolumeId,
    /// Its id.
    pub snapshot: SnapshotId,
}

/// The state that one replica of a service reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceInfo {
    /// How far the replica's clock is ahead of nats-server's, in milliseconds; none until it is
    /// measured.
    pub clock_skew_ms: Option<i64>,
    /// The rights that the replica's identity lacks; none if it lacks nothing.
    pub access: Option<AccessReport>,
}

/// The claims that decide what the waiters for a volume wait for.
#[derive(Debug, Clone, Default)]
pub struct Holders {
    /// How several claims share the volume; none if no claim holds it.
    pub access: Option<AccessMode>,
    /// The decisive holders, and the first in line.
    pub claims: Vec<ClaimStatus>,
}

/// Everything that was read. A fact that was not requested is missing in its map.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// When the facts were read.
    pub now: Timestamp,
    /// The namespace of `names`.
    pub namespace: Namespace,
    /// What the name to explain may mean.
    pub names: Names,
    /// Volumes with their claims.
    pub volumes: BTreeMap<VolumeKey, SourceAnswer<VolumeStatus>>,
    /// The holders of volumes whose status was not read.
    pub holders: BTreeMap<VolumeKey, Holders>,
    /// The snapshots of a volume that are not ready.
    pub snapshots: BTreeMap<VolumeKey, SourceAnswer<Vec<SnapshotStub>>>,
    /// Snapshots that were named, in any state.
    pub named_snapshots: BTreeMap<(VolumeKey, SnapshotId), SourceAnswer<SnapshotStub>>,
    /// Allocs with their claims.
    pub allocs: BTreeMap<(Namespace, AllocId), SourceAnswer<AllocStatus>>,
    /// Nodes, from the registry.
    pub nodes: BTreeMap<NodeId, SourceAnswer<NodeStatus>>,
    /// Plugins, from the registry.
    pub plugins: BTreeMap<PluginId, SourceAnswer<PluginStatus>>,
    /// The status of agents, from themselves.
    pub agents: BTreeMap<NodeId, SourceAnswer<AgentStatus>>,
    /// All claims for a node, in every namespace.
    pub claims_on: BTreeMap<NodeId, SourceAnswer<Vec<ClaimStatus>>>,
    /// All claims on volumes of a plugin, in every namespace.
    pub claims_of: BTreeMap<PluginId, SourceAnswer<Vec<ClaimStatus>>>,
    /// Which nodes may host a volume: of all nodes, or of the one node of the key.
    pub placements: BTreeMap<(VolumeKey, Option<NodeId>), SourceAnswer<Vec<NodePlacement>>>,
    /// Services by name; of several replicas, the first one that answered.
    pub services: BTreeMap<&'static str, SourceAnswer<ServiceInfo>>,
}

impl Facts {
    /// The volume of a claim.
    pub fn volume_of(&self, claim: &ClaimStatus) -> Option<&VolumeStatus> {
        let key = VolumeKey::new(claim.namespace.clone(), claim.volume.clone());
        self.volumes.get(&key)?.as_ref().ok()
    }

    /// A volume of the names' namespace.
    pub fn volume(&self, id: &VolumeId) -> Option<&SourceAnswer<VolumeStatus>> {
        self.volumes.get(&VolumeKey::new(self.namespace.clone(), id.clone()))
    }

    /// An alloc of the names' namespace.
    pub fn alloc(&self, id: &AllocId) -> Option<&SourceAnswer<AllocStatus>> {
        self.allocs.get(&(self.namespace.clone(), id.clone()))
    }

    /// Why no replica of a service answers. A caller that may not ask it learns nothing about it:
    /// none.
    pub fn service_away(&self, name: &str) -> Option<&Problem> {
        let problem = self.services.get(name)?.as_ref().err()?;
        (problem.code != Code::NotAllowed).then_some(problem)
    }

    /// A known plugin.
    pub fn plugin(&self, id: &PluginId) -> Option<&PluginStatus> {
        self.plugins.get(id)?.as_ref().ok()
    }
}
