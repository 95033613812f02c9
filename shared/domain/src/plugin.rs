//! Plugins: the sum of their instances on nodes.
//!
//! **Owns** the meaning of an instance record. A plugin is computed from its instances each time,
//! so that concurrent updates cannot falsify it (D1).
//!
//! **Promises** that "the plugin cannot serve this volume on that node" comes with a reason.
//!
//! **Never** stores a plugin: what is shown of one is computed.

mod controllers;
mod node_id;
mod storage_trouble;

pub use controllers::ControllerChoice;
pub use node_id::NodeIdFault;
pub use storage_trouble::{StorageTrouble, are_alike, keeping_out};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::proof::Proof;
pub use crate::volume::UnaccountedMount;

use crate::volume::{HoldingProcess, Route};
use crate::{JobId, Namespace, NodeId, PluginId, Timestamp};

/// Which half of a plugin an instance serves; a monolith reports both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Half {
    /// The controller service.
    Controller,
    /// The node service.
    Node,
}

impl Half {
    /// The name in keys and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "node",
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One half of a plugin on one node, as its agent last saw it (D2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Whether it answered its last probe.
    pub healthy: bool,
    /// The health in words.
    pub description: String,
    /// `GetPluginInfo.name`.
    pub provider: String,
    /// `GetPluginInfo.vendor_version`.
    pub version: String,
    /// When it became healthy, or unhealthy.
    pub since: Timestamp,
    /// What the controller half can do, on a controller instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerAbilities>,
    /// What the node half can do, on a node instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeAbilities>,
    /// Node half: when the plugin gave the node its present id. The registry writes it, not the
    /// agent: of two nodes with one id the earlier one keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_since: Option<Timestamp>,
    /// The process that listened at the plugin's socket when it last answered a probe. None where
    /// the agent cannot see it, and from an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<HoldingProcess>,
}

impl Instance {
    /// The plugin's id of the node, if known.
    pub fn external_node(&self) -> Option<&str> {
        let external = self.node.as_ref().map(|abilities| abilities.external_node.as_str());
        external.filter(|external| !external.is_empty())
    }
}

/// The controller capabilities that Berth uses, by their CSI names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is one capability bit of CSI")]
pub struct ControllerAbilities {
    /// `PUBLISH_UNPUBLISH_VOLUME`: volumes are attached by the controller (B9).
    pub publish_unpublish_volume: bool,
    /// `PUBLISH_READONLY`.
    #[serde(default)]
    pub publish_readonly: bool,
    /// `CREATE_DELETE_VOLUME`.
    #[serde(default)]
    pub create_delete_volume: bool,
    /// `LIST_VOLUMES`.
    #[serde(default)]
    pub list_volumes: bool,
    /// `CREATE_DELETE_SNAPSHOT`.
    #[serde(default)]
    pub create_delete_snapshot: bool,
    /// `CLONE_VOLUME`.
    #[serde(default)]
    pub clone_volume: bool,
    /// `EXPAND_VOLUME`.
    #[serde(default)]
    pub expand_volume: bool,
    /// `SINGLE_NODE_MULTI_WRITER`.
    #[serde(default)]
    pub single_node_multi_writer: bool,
    /// `GET_CAPACITY`.
    #[serde(default)]
    pub get_capacity: bool,
    /// `LIST_SNAPSHOTS`.
    #[serde(default)]
    pub list_snapshots: bool,
    /// `GET_SNAPSHOT`.
    #[serde(default)]
    pub get_snapshot: bool,
    /// `GET_VOLUME`.
    #[serde(default)]
    pub get_volume: bool,
    /// `MODIFY_VOLUME`.
    #[serde(default)]
    pub modify_volume: bool,
    /// `VOLUME_CONDITION`.
    #[serde(default)]
    pub volume_condition: bool,
    /// `GET_VOLUME_HEALTH`.
    #[serde(default)]
    pub get_volume_health: bool,
    /// `LIST_VOLUME_HEALTH`.
    #[serde(default)]
    pub list_volume_health: bool,
    /// `LIST_VOLUMES_PUBLISHED_NODES`.
    #[serde(default)]
    pub list_published_nodes: bool,
    /// The plugin's `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT`.
    #[serde(default)]
    pub group_snapshot: bool,
    /// The plugin's `VOLUME_ACCESSIBILITY_CONSTRAINTS`.
    #[serde(default)]
    pub topology: bool,
    /// The plugin's `SNAPSHOT_ACCESSIBILITY_CONSTRAINTS`.
    #[serde(default)]
    pub snapshot_topology: bool,
    /// The plugin expands volumes only while they are not in use (`VolumeExpansion.OFFLINE`).
    #[serde(default)]
    pub expand_offline_only: bool,
}

/// The node's capabilities, and the response of `NodeGetInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is one capability bit of CSI")]
pub struct NodeAbilities {
    /// The plugin's id of the node (`node_id`), passed to the controller unchanged.
    pub external_node: String,
    /// Whether the plugin has a controller service at all (`CONTROLLER_SERVICE`).
    pub controller_service: bool,
    /// `STAGE_UNSTAGE_VOLUME`.
    pub stage_unstage_volume: bool,
    /// `GET_VOLUME_STATS`.
    #[serde(default)]
    pub get_volume_stats: bool,
    /// `EXPAND_VOLUME`.
    #[serde(default)]
    pub expand_volume: bool,
    /// `VOLUME_CONDITION`.
    #[serde(default)]
    pub volume_condition: bool,
    /// `SINGLE_NODE_MULTI_WRITER`.
    #[serde(default)]
    pub single_node_multi_writer: bool,
    /// `VOLUME_MOUNT_GROUP`.
    #[serde(default)]
    pub volume_mount_group: bool,
    /// `GET_VOLUME_HEALTH`.
    #[serde(default)]
    pub get_volume_health: bool,
    /// `GET_STORAGE_HEALTH`.
    #[serde(default)]
    pub get_storage_health: bool,
    /// The most volumes that the node may have; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_volumes: Option<u64>,
    /// Why the node takes no further volume of the plugin now, in words: it answered so lately.
    /// Absent while it may take one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
    /// What is wrong with the storage, seen from the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<StorageTrouble>,
    /// The node's topology (`accessible_topology`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topology: BTreeMap<String, String>,
}

/// Whether a node's agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// The agent holds its lease.
    Ready,
    /// The agent's lease ended. Volumes may still be mounted on the node.
    Down,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ready => "ready",
            Self::Down => "down",
        })
    }
}

/// The attribute of a node that says with which incarnation of the bucket of claims its agent has
/// compared what is mounted. An attribute, because registries of older versions keep it.
pub const COMPARED_INCARNATION: &str = "compared-incarnation";

/// A node, as the registry knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Whether its agent runs.
    pub state: NodeState,
    /// When it entered its state.
    pub since: Timestamp,
    /// How far its clock is ahead of the registry's, in milliseconds; negative if behind.
    #[serde(default)]
    pub clock_skew_ms: i64,
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// Changes with each boot of the host.
    #[serde(default)]
    pub boot_id: String,
    /// The node's own clock in the last report that changed the record. Older reports are ignored.
    #[serde(default)]
    pub reported: Timestamp,
    /// What the agent reports of its node, such as the address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// The proof that nothing there can write (rule 12). It stays until the node is back and has
    /// undone every mount whose claim is gone. Until then the node gets no claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<Proof>,
    /// When the node last came back after a proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Timestamp>,
    /// Mounts there that no claim covers, by the agent's last report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unaccounted: Vec<UnaccountedMount>,
    /// Whether the agent has started and has not compared its mounts with the claims yet. Until
    /// then `unaccounted` still names what was known before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncompared: bool,
    /// The public X25519 key of the agent, new with each start: secrets for the node are sealed for
    /// it (A9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealing_key: Option<String>,
    /// The plugins whose controllers the node may host, as it has shown (`node.host`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<PluginId>,
    /// The newest revision of the bucket of volumes when the node came on record, until the node
    /// has first compared its mounts with the claims. What it has mounted of volumes that were
    /// registered later may be older than all records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newcomer: Option<u64>,
}

impl Node {
    /// A node of which nothing is known yet.
    pub fn unknown(since: Timestamp) -> Self {
        Self {
            state: NodeState::Down,
            since,
            clock_skew_ms: 0,
            version: String::new(),
            boot_id: String::new(),
            reported: Timestamp::default(),
            attributes: BTreeMap::new(),
            gone: None,
            back: None,
            unaccounted: Vec::new(),
            uncompared: false,
            sealing_key: None,
            hosts: BTreeSet::new(),
            newcomer: None,
        }
    }

    /// The incarnation of the bucket of claims with which the agent last compared what is mounted;
    /// none before, and from an older agent.
    pub fn compared_incarnation(&self) -> Option<u64> {
        self.attributes.get(COMPARED_INCARNATION)?.parse().ok()
    }

    /// Whether a claim of this age may be released by a proof: the node counts as gone, or did so
    /// after the claim was made, and a slow worker may still use that proof. Such a claim is not
    /// granted again: the release would detach the volume under its new mount (rule 12).
    pub fn may_be_proven(&self, since: Timestamp, clock_margin: Duration) -> bool {
        self.gone.is_some() || self.back.is_some_and(|back| since <= back.after(clock_margin))
    }
}

/// A job that provides a plugin: how many instances it is to have running (D5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Controller instances.
    pub controllers: u32,
    /// Node instances.
    pub nodes: u32,
    /// Since when it says so.
    pub since: Timestamp,
}

impl Job {
    /// How many instances of a half it is to have.
    pub fn expects(&self, half: Half) -> usize {
        let expected = match half {
            Half::Controller => self.controllers,
            Half::Node => self.nodes,
        };
        usize::try_from(expected).unwrap_or(usize::MAX)
    }
}

/// A plugin: its instances, by node and half, and the jobs that provide it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plugin {
    /// The instances.
    pub instances: BTreeMap<(NodeId, Half), Instance>,
    /// The jobs, by namespace and name.
    pub jobs: BTreeMap<(Namespace, JobId), Job>,
}

/// Healthy instances, and expected ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// Healthy instances on ready nodes.
    pub healthy: usize,
    /// Known instances, or the number that the plugin's jobs announce, if that is larger.
    pub expected: usize,
}

impl Count {
    /// Whether every expected instance is healthy.
    pub const fn is_complete(&self) -> bool {
        self.healthy >= self.expected
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.healthy, self.expected))
    }
}

/// Whether node instances are lacking: none is healthy. A plugin of which only controllers are
/// hosted lacks none: it has no node instance anywhere, and no job announces one.
pub fn lacks_nodes(controllers: Option<Count>, nodes: Count) -> bool {
    let has_controllers = controllers.is_some_and(|count| count.expected > 0);
    nodes.healthy == 0 && (nodes.expected > 0 || !has_controllers)
}

impl Plugin {
    /// Whether there is neither an instance nor a job, so that the plugin no longer exists (D4).
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.jobs.is_empty()
    }

    /// Counts the instances of one half. `ready` says which nodes are ready.
    ///
    /// Expected is the larger of two numbers: known instances, and instances that the jobs
    /// announce. It is not their sum: an instance does not say which job runs it, so a sum would
    /// count running instances twice. Instances without a job count, too: their failure is noticed.
    /// So healthy is never more than expected.
    pub fn count(&self, half: Half, ready: impl Fn(&NodeId) -> bool) -> Count {
        let mut count = Count::default();
        let faulty = if half == Half::Node { self.node_id_faults() } else { BTreeMap::new() };
        for ((node, their), instance) in &self.instances {
            if *their == half {
                count.expected += 1;
                let is_healthy = instance.healthy && ready(node) && !faulty.contains_key(node);
                count.healthy += usize::from(is_healthy);
            }
        }
        let announced = self.jobs.values().map(|job| job.expects(half));
        count.expected = count.expected.max(announced.fold(0, usize::saturating_add));
        count
    }

    /// Whether each half that it has can be called somewhere; and in words, which half lacks
    /// instances.
    pub fn health(&self, ready: impl Fn(&NodeId) -> bool) -> (bool, String) {
        let controllers = self.has_controller().then(|| self.count(Half::Controller, &ready));
        let nodes = self.count(Half::Node, &ready);
        let no_controller = controllers.is_some_and(|count| count.healthy == 0);
        let no_node = lacks_nodes(controllers, nodes);
        let halves = [
            (no_controller, controllers.unwrap_or_default(), "controllers"),
            (no_node, nodes, "nodes"),
        ];
        let lacking = halves.into_iter().filter(|(none, count, _)| *none || !count.is_complete());
        let lacking = lacking.map(|(_, Count { healthy, expected }, name)| {
            format!("{healthy} of {expected} {name} healthy")
        });
        let lacking: Vec<String> = lacking.collect();
        let said = match lacking[..] {
            [] if nodes.expected == 0 => "healthy, and on no node".to_owned(),
            [] => "healthy".to_owned(),
            _ => lacking.join(", "),
        };
        (!no_controller && !no_node, said)
    }

    /// Whether the plugin has a controller service: a controller is on record, healthy or not, a
    /// job announces one, or its nodes say so. Nodes have to agree: any node may report what it
    /// likes, and no volume is registered while nobody answers as the controller.
    pub fn has_controller(&self) -> bool {
        let mut said = self.instances.values().filter_map(|instance| instance.node.as_ref());
        self.jobs.values().any(|job| job.controllers > 0)
            || self.controller_hosts().next().is_some()
            || said.next().is_some_and(|first| first.controller_service)
                && said.all(|node| node.controller_service)
    }

    /// Whether the controller attaches volumes (`PUBLISH_UNPUBLISH_VOLUME`). None before any
    /// controller instance has reported its capabilities.
    pub fn controller_attaches(&self) -> Option<bool> {
        let said = self.instances.values().filter_map(|instance| instance.controller.as_ref());
        said.map(|controller| controller.publish_unpublish_volume).reduce(|one, other| one || other)
    }

    /// How a volume gets to a node, or the reason why it cannot now (B3, B9).
    pub fn route(&self, node: &NodeId, ready: impl Fn(&NodeId) -> bool) -> Result<Route, String> {
        let instance = self.node_instance(node)?;
        if !ready(node) {
            return Err(format!("node {node} is down: its agent's lease has ended"));
        }
        if !instance.healthy {
            return Err(format!("it is unhealthy on node {node}: {}", instance.description));
        }
        let route = self.attachment(node)?;
        if route.controller && self.count(Half::Controller, ready).healthy == 0 {
            return Err("it needs a controller, and no controller instance is healthy".to_owned());
        }
        Ok(route)
    }

    /// How volumes are attached to a node, whether they can be now or not; or why it is not known.
    pub fn attachment(&self, node: &NodeId) -> Result<Route, String> {
        let Some(abilities) = &self.node_instance(node)?.node else {
            return Err(format!("its node service on {node} has not said what it can do yet"));
        };
        // Both count: whether it has a controller service, and whether that attaches (B9).
        let attaches = match (abilities.controller_service, self.controller_attaches()) {
            (false, _) => false,
            (true, Some(attaches)) => attaches,
            (true, None) => {
                return Err(
                    "it needs a controller, and no controller instance has been seen".to_owned()
                );
            }
        };
        Ok(Route {
            controller: attaches,
            external_node: Some(abilities.external_node.clone()).filter(|node| !node.is_empty()),
            topology: abilities.topology.clone(),
        })
    }

    fn node_instance(&self, node: &NodeId) -> Result<&Instance, String> {
        let instance = self.instances.get(&(node.clone(), Half::Node));
        instance.ok_or_else(|| format!("the plugin has no instance on node {node}"))
    }
}

#[cfg(test)]
mod tests;
