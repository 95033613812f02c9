//! What was read, and from whom: nothing here asks.

use std::collections::BTreeMap;

use berth_contract::message::agent::AgentStatus;
use berth_contract::message::alloc::AllocStatus;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::registry::{NodeStatus, PluginStatus};
use berth_contract::message::volume::{NodePlacement, VolumeStatus};
use berth_contract::problem::Problem;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, Timestamp, VolumeId, VolumeKey};

/// What a source said, or why it said nothing.
pub type SourceAnswer<T> = Result<T, Problem>;

/// The things that may have a name.
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
}

/// What one replica of a service says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceInfo {
    /// How far its clock is ahead of nats-server's, in milliseconds, once that was measured.
    pub clock_skew_ms: Option<i64>,
}

/// Everything that was read. What was not requested is absent from its map.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// When it was read.
    pub now: Timestamp,
    /// The namespace of the names.
    pub namespace: Namespace,
    /// The name to explain.
    pub names: Names,
    /// Volumes with their claims.
    pub volumes: BTreeMap<VolumeKey, SourceAnswer<VolumeStatus>>,
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
    /// Where a volume fits; on all nodes, or on this one.
    pub placements: BTreeMap<(VolumeKey, Option<NodeId>), SourceAnswer<Vec<NodePlacement>>>,
    /// Services, by name; of several replicas the one that answered first.
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

    /// A plugin that is known.
    pub fn plugin(&self, id: &PluginId) -> Option<&PluginStatus> {
        self.plugins.get(id)?.as_ref().ok()
    }
}
