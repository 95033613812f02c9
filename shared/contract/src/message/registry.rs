//! Plugins and nodes: agents report, everybody looks.

use std::collections::BTreeMap;

use berth_domain::plugin::{ControllerAbilities, Count, Half, Instance, NodeAbilities, NodeState};
use berth_domain::{NodeId, PluginId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{decode_leaf, decode_struct};

/// `node.report`: all there is to know of a node, each time, so that a lost report costs nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The node.
    pub node: NodeId,
    /// The agent's version.
    pub version: String,
    /// Changes with each boot of the host.
    pub boot_id: String,
    /// The node's clock when this was sent: what skew is measured by.
    pub clock: Timestamp,
    /// What the node says of itself.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    /// Every plugin instance on the node; one that is missing here has left.
    #[serde(default)]
    pub instances: Vec<ReportedInstance>,
}
decode_struct!(Report { node, version, boot_id, clock, attributes, instances });

/// One half of a plugin on the reporting node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedInstance {
    /// The plugin.
    pub plugin: PluginId,
    /// Which half.
    pub half: Half,
    /// What its agent last saw.
    pub instance: Instance,
}
decode_leaf!(Half);
decode_struct!(ReportedInstance { plugin, half, instance });
decode_struct!(Instance { healthy, description, provider, version, since, controller, node });
decode_struct!(ControllerAbilities {
    publish_unpublish_volume,
    publish_readonly = false,
    create_delete_volume = false,
    list_volumes = false,
    create_delete_snapshot = false,
    clone_volume = false,
    expand_volume = false,
    single_node_multi_writer = false,
});
decode_struct!(NodeAbilities {
    external_node,
    controller_service,
    stage_unstage_volume,
    get_volume_stats = false,
    expand_volume = false,
    volume_condition = false,
    single_node_multi_writer = false,
    max_volumes,
    topology,
});

/// `node.report` was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// How far the node's clock is from the registry's, in milliseconds.
    pub clock_skew_ms: i64,
}

/// `node.leave`: the node leaves for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// The node.
    pub node: NodeId,
}
decode_struct!(Leave { node });

/// `node.leave` was done; again is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Whether the node was known until now.
    pub known: bool,
    /// How many plugin instances went with it.
    pub instances: usize,
}

/// `plugin.status` and `node.status`: one by id, or all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status<Id> {
    /// Only this one.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}
decode_struct!(Status<PluginId> { id });
decode_struct!(Status<NodeId> { id });

fn none<T>() -> Option<T> {
    None
}

/// A plugin: the fold of its instances (D1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginStatus {
    /// The plugin.
    pub id: PluginId,
    /// What its instances call it.
    pub provider: String,
    /// The versions its instances run, sorted.
    pub versions: Vec<String>,
    /// Healthy controllers of how many; none when it has no controller service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<Count>,
    /// Healthy node instances of how many.
    pub nodes: Count,
    /// Whether its controller attaches volumes.
    pub attaches: bool,
    /// Its instances, by node and half.
    pub instances: Vec<InstanceStatus>,
}

/// One half of a plugin on one node, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// The plugin.
    pub plugin: PluginId,
    /// Where.
    pub node: NodeId,
    /// Which half.
    pub half: Half,
    /// Whether it is healthy, on a node that is there.
    pub healthy: bool,
    /// In words.
    pub description: String,
    /// Its version.
    pub version: String,
    /// Since when it is healthy, or not.
    pub since: Timestamp,
    /// What the controller half can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerAbilities>,
    /// What the node half can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abilities: Option<NodeAbilities>,
}

/// `plugin.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugins {
    /// The plugins, by id.
    pub plugins: Vec<PluginStatus>,
}

/// A node, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub id: NodeId,
    /// Whether its agent is there.
    pub state: NodeState,
    /// Since when.
    pub since: Timestamp,
    /// How far its clock is from the registry's, in milliseconds; positive when ahead.
    pub clock_skew_ms: i64,
    /// The agent's version.
    pub version: String,
    /// Changes with each boot.
    pub boot_id: String,
    /// What the node says of itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Its plugin instances.
    pub instances: Vec<InstanceStatus>,
}

/// `node.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// The nodes, by id.
    pub nodes: Vec<NodeStatus>,
}
