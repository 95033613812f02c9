//! The facts, with their sources: nothing here sends a request.

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

/// The kinds of things that may have a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// A volume of the session's namespace.
    pub volume: Option<VolumeId>,
    /// An alloc of it.
    pub alloc: Option<AllocId>,
    /// A node.
    pub node: Option<NodeId>,
    /// A plugin.
    pub plugin: Option<PluginId>,
    /// A snapshot of a volume of the namespace.
    pub snapshot: Option<SnapshotName>,
}

/// `VOLUME@SNAPSHOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotName {
    /// Its volume, which may be gone.
    pub volume: VolumeId,
    /// Its id.
    pub snapshot: SnapshotId,
}

/// The state that one replica of a service reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceInfo {
    /// How far the replica's clock is ahead of nats-server's, in milliseconds, once measured.
    pub clock_skew_ms: Option<i64>,
    /// What the replica's identity lacks; none if it lacks nothing.
    pub access: Option<AccessReport>,
}

/// The claims that hold a volume, or those of them that decide what others wait for.
#[derive(Debug, Clone, Default)]
pub struct Holders {
    /// How they share the volume.
    pub access: Option<AccessMode>,
    /// The claims.
    pub claims: Vec<ClaimStatus>,
}

/// Everything that was read. An unrequested fact is absent from its map.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The time of the reads.
    pub now: Timestamp,
    /// The namespace of the names.
    pub namespace: Namespace,
    /// The name to explain.
    pub names: Names,
    /// Volumes with their claims.
    pub volumes: BTreeMap<VolumeKey, SourceAnswer<VolumeStatus>>,
    /// Claims that hold a volume, where the volume was not read.
    pub holders: BTreeMap<VolumeKey, Holders>,
    /// Snapshots of a volume that are not ready.
    pub snapshots: BTreeMap<VolumeKey, SourceAnswer<Vec<SnapshotStub>>>,
    /// Snapshots that were named, in any state.
    pub named_snapshots: BTreeMap<(VolumeKey, SnapshotId), SourceAnswer<SnapshotStub>>,
    /// Allocs with their claims.
    pub allocs: BTreeMap<(Namespace, AllocId), SourceAnswer<AllocStatus>>,
    /// Nodes, by the registry.
    pub nodes: BTreeMap<NodeId, SourceAnswer<NodeStatus>>,
    /// Plugins, by the registry.
    pub plugins: BTreeMap<PluginId, SourceAnswer<PluginStatus>>,
    /// Nodes, by their agents.
    pub agents: BTreeMap<NodeId, SourceAnswer<AgentStatus>>,
    /// Claims for a node, in every namespace.
    pub claims_on: BTreeMap<NodeId, SourceAnswer<Vec<ClaimStatus>>>,
    /// Claims on volumes of a plugin, in every namespace.
    pub claims_of: BTreeMap<PluginId, SourceAnswer<Vec<ClaimStatus>>>,
    /// Where a volume fits: on all nodes, or on this node.
    pub placements: BTreeMap<(VolumeKey, Option<NodeId>), SourceAnswer<Vec<NodePlacement>>>,
    /// Services, by name; of several replicas, the first that answered.
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

    /// Why no replica of a service answers. That the caller may not ask says nothing of it.
    pub fn service_away(&self, name: &str) -> Option<&Problem> {
        let problem = self.services.get(name)?.as_ref().err()?;
        (problem.code != Code::NotAllowed).then_some(problem)
    }

    /// A known plugin.
    pub fn plugin(&self, id: &PluginId) -> Option<&PluginStatus> {
        self.plugins.get(id)?.as_ref().ok()
    }
}
