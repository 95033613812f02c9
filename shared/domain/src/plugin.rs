//! Plugins: what their instances on nodes add up to.
//!
//! **Owns** the instance record's meaning and the fold: a plugin is what its instances say, counted
//! anew each time, so that concurrent updates cannot skew it (D1).
//!
//! **Promises** that the answer to "can the plugin serve this volume on that node" comes with its
//! reason when it is no.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::proof::Proof;
use crate::volume::Route;
use crate::{NodeId, Timestamp};

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
    /// In words.
    pub description: String,
    /// `GetPluginInfo.name`.
    pub provider: String,
    /// `GetPluginInfo.vendor_version`.
    pub version: String,
    /// Since when it is healthy, or not.
    pub since: Timestamp,
    /// What the controller half can do, on a controller instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerAbilities>,
    /// What the node half can do, on a node instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeAbilities>,
}

/// The controller capabilities that decide something, by their CSI names.
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
}

/// The node's capabilities and what `NodeGetInfo` said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is one capability bit of CSI")]
pub struct NodeAbilities {
    /// What the plugin calls the node: handed to the controller as it is.
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
    /// How many volumes the node takes; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_volumes: Option<u64>,
    /// Where the node is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topology: BTreeMap<String, String>,
}

/// Whether a node's agent is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It holds its lease.
    Ready,
    /// Its lease ended; what it has mounted, it may still have mounted.
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

/// A node, as the registry knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Whether its agent is there.
    pub state: NodeState,
    /// Since when.
    pub since: Timestamp,
    /// How far its clock is from the registry's, in milliseconds; positive when ahead.
    #[serde(default)]
    pub clock_skew_ms: i64,
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// Changes with each boot of the host.
    #[serde(default)]
    pub boot_id: String,
    /// The node's own clock in the last report that changed anything: an older one comes too late.
    #[serde(default)]
    pub reported: Timestamp,
    /// What it says of itself, such as its address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// By what it is known that nothing there can write (rule 12). It stands until the node is back
    /// and has undone every mount whose claim is gone; until then it is not ready for anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<Proof>,
}

/// A plugin's instances, by node and half.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plugin {
    /// The instances.
    pub instances: BTreeMap<(NodeId, Half), Instance>,
}

/// How many of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// Healthy, on nodes that are there.
    pub healthy: usize,
    /// All that are known.
    pub expected: usize,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.healthy, self.expected))
    }
}

impl Plugin {
    /// Instances of one half, counted; `ready` says which nodes are there.
    pub fn count(&self, half: Half, ready: impl Fn(&NodeId) -> bool) -> Count {
        let mut count = Count::default();
        for ((node, their), instance) in &self.instances {
            if *their == half {
                count.expected += 1;
                count.healthy += usize::from(instance.healthy && ready(node));
            }
        }
        count
    }

    /// Whether the plugin has a controller service: any instance that says so, healthy or not.
    pub fn has_controller(&self) -> bool {
        self.instances.iter().any(|((_, half), instance)| {
            *half == Half::Controller
                || instance.node.as_ref().is_some_and(|node| node.controller_service)
        })
    }

    /// Whether the controller attaches volumes (`PUBLISH_UNPUBLISH_VOLUME`); none before any
    /// controller instance has said what it can do.
    pub fn controller_attaches(&self) -> Option<bool> {
        let said = self.instances.values().filter_map(|instance| instance.controller.as_ref());
        said.map(|controller| controller.publish_unpublish_volume).reduce(|one, other| one || other)
    }

    /// How a volume gets to a node, or the reason why it cannot now (B3, B9).
    pub fn route(&self, node: &NodeId, ready: impl Fn(&NodeId) -> bool) -> Result<Route, String> {
        let Some(instance) = self.instances.get(&(node.clone(), Half::Node)) else {
            return Err(format!("the plugin has no instance on node {node}"));
        };
        if !ready(node) {
            return Err(format!("node {node} is down: its agent's lease has ended"));
        }
        if !instance.healthy {
            return Err(format!("it is unhealthy on node {node}: {}", instance.description));
        }
        let Some(abilities) = &instance.node else {
            return Err(format!("its node service on {node} has not said what it can do yet"));
        };
        // Both are asked: whether it has a controller service, and whether that attaches (B9).
        let attaches = match (abilities.controller_service, self.controller_attaches()) {
            (false, _) => false,
            (true, Some(attaches)) => attaches,
            (true, None) => {
                return Err(
                    "it needs a controller, and no controller instance has been seen".to_owned()
                );
            }
        };
        if attaches && self.count(Half::Controller, ready).healthy == 0 {
            return Err("it needs a controller, and no controller instance is healthy".to_owned());
        }
        Ok(Route {
            controller: attaches,
            external_node: Some(abilities.external_node.clone()).filter(|node| !node.is_empty()),
        })
    }
}
