//! Findings about instances of a plugin that are unhealthy or missing.

use berth_contract::message::registry::{InstanceStatus, PluginStatus};
use berth_domain::plugin::Half;
use berth_domain::{NodeId, PluginId};

use crate::cause::{Actor, Cause};
use crate::finding::Finding;
use crate::next;

/// The most instances that one finding names.
const NAMED_MAX: usize = 5;

/// No instance of a half is healthy.
pub fn down(plugin: &PluginStatus, half: Half) -> Finding {
    let id = &plugin.id;
    let halves: Vec<&InstanceStatus> = plugin
        .instances
        .iter()
        .filter(|instance| instance.half == half && !instance.healthy)
        .collect();
    if let [only_instance] = halves[..] {
        return instance_down(only_instance);
    }
    let sentence = match half {
        Half::Controller => format!("no controller of plugin {id} is healthy"),
        Half::Node => format!("plugin {id} is healthy on no node"),
    };
    let named = halves.iter().take(NAMED_MAX);
    let named = named.map(|instance| {
        format!("{} on {}: {}", instance.half, instance.node, instance.description)
    });
    let finding = Finding::new(Cause::PluginDown, Actor::PluginOperator(id.clone()), sentence);
    finding
        .shown_by(named)
        .next(next::plugin_status(id))
        .next_if_known(halves.first().map(|instance| next::plugin_process(&instance.node, id)))
}

/// One instance is unhealthy.
pub fn instance_down(instance: &InstanceStatus) -> Finding {
    if let Some(first) = &instance.shares_id_with {
        let sentence = format!(
            "plugin {} calls node {} by the id of node {first}, and the storage cannot tell the \
             two apart",
            instance.plugin, instance.node
        );
        let who = Actor::PluginOperator(instance.plugin.clone());
        return Finding::new(Cause::SharedNodeId, who, sentence)
            .shown_by([instance.description.clone()])
            .next(next::plugin_status(&instance.plugin));
    }
    let mut finding = down_on(&instance.plugin, &instance.node, Some(&instance.description));
    if instance.half == Half::Controller {
        finding.sentence = format!(
            "the controller of plugin {} on node {} is unhealthy",
            instance.plugin, instance.node
        );
    }
    finding
}

/// The plugin runs on the node, and says that its storage is not well there.
pub fn storage_unwell(instance: &InstanceStatus) -> Option<Finding> {
    let (plugin, node) = (&instance.plugin, &instance.node);
    let troubles = &instance.abilities.as_ref()?.storage;
    // What is out of reach comes first.
    let (cause, how) = if troubles.first()?.unreachable {
        (Cause::StorageUnreachable, "does not reach")
    } else {
        (Cause::StorageDegraded, "has trouble with")
    };
    let sentence = format!("node {node} {how} the storage of plugin {plugin}, as the plugin says");
    let finding = Finding::new(cause, Actor::PluginOperator(plugin.clone()), sentence)
        .shown_by(troubles.iter().map(|trouble| trouble.said.clone()))
        .next(next::plugin_process(node, plugin));
    Some(finding.next(next::plugin_status(plugin)))
}

/// The node half on a node is unhealthy or missing.
pub fn down_on(plugin: &PluginId, node: &NodeId, description: Option<&str>) -> Finding {
    let sentence = match description {
        Some(_) => format!("plugin {plugin} is unhealthy on node {node}"),
        None => format!("plugin {plugin} does not run on node {node}"),
    };
    Finding::new(Cause::PluginDown, Actor::PluginOperator(plugin.clone()), sentence)
        .shown_by(description.map(|description| format!("its probe on {node}: {description}")))
        .next(next::plugin_process(node, plugin))
        .next(next::plugin_status(plugin))
}

/// No agent has reported the plugin.
pub fn not_known(plugin: &PluginId) -> Finding {
    let sentence = format!("no agent has reported plugin {plugin}");
    Finding::new(Cause::PluginDown, Actor::PluginOperator(plugin.clone()), sentence)
        .next("berth plugin status")
        .next("berth node status")
}
