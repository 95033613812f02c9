//! Faults of the instances of a plugin.

use berth_contract::message::registry::{InstanceStatus, PluginStatus};
use berth_domain::plugin::{Half, NodeState, lacks_nodes};

use crate::facts::Facts;
use crate::finding::Finding;
use crate::instance::{down, instance_down, storage_unwell};
use crate::node;

/// Every fault of a plugin's instances; a half without a healthy instance decides.
pub fn troubles(facts: &Facts, plugin: &PluginStatus) -> Vec<Finding> {
    let no_controller = plugin.controllers.is_some_and(|count| count.healthy == 0);
    if no_controller || lacks_nodes(plugin.controllers, plugin.nodes) {
        return vec![worst_half(facts, plugin)];
    }
    let of_instance = |instance: &InstanceStatus| {
        if instance.healthy { storage_unwell(instance) } else { Some(instance_down(instance)) }
    };
    plugin.instances.iter().filter_map(of_instance).collect()
}

/// The half of a plugin that has no healthy instance, and why.
pub fn worst_half(facts: &Facts, plugin: &PluginStatus) -> Finding {
    let no_controller = plugin.controllers.is_some_and(|count| count.healthy == 0);
    let half = if no_controller { Half::Controller } else { Half::Node };
    // If the node is down, none of its instances is healthy.
    let is_of_half = |instance: &&InstanceStatus| instance.half == half;
    let nodes =
        plugin.instances.iter().filter(is_of_half).map(|instance| facts.nodes.get(&instance.node));
    let nodes: Vec<_> = nodes.map(|node| node.and_then(|node| node.as_ref().ok())).collect();
    match nodes.first() {
        Some(Some(first)) if nodes.iter().flatten().all(|node| node.state == NodeState::Down) => {
            node::away(facts, first).unwrap_or_else(|| down(plugin, half))
        }
        _ => down(plugin, half),
    }
}
