//! Instances of a plugin that are unhealthy, or absent.

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
    let halves: Vec<&InstanceStatus> =
        plugin.instances.iter().filter(|one| one.half == half && !one.healthy).collect();
    if let [one] = halves[..] {
        return instance_down(one);
    }
    let sentence = match half {
        Half::Controller => format!("no controller of plugin {id} is healthy"),
        Half::Node => format!("plugin {id} is healthy on no node"),
    };
    let told = halves.iter().take(NAMED_MAX);
    let told = told.map(|one| format!("{} on {}: {}", one.half, one.node, one.description));
    let finding = Finding::new(Cause::PluginDown, Actor::PluginOperator(id.clone()), sentence);
    finding
        .shown_by(told)
        .next(next::plugin_status(id))
        .next_if_known(halves.first().map(|one| next::plugin_process(&one.node, id)))
}

/// One instance is unhealthy.
pub fn instance_down(one: &InstanceStatus) -> Finding {
    if let Some(first) = &one.shares_id_with {
        let sentence = format!(
            "plugin {} calls node {} by the id of node {first}, and the storage cannot tell the \
             two apart",
            one.plugin, one.node
        );
        let who = Actor::PluginOperator(one.plugin.clone());
        return Finding::new(Cause::SharedNodeId, who, sentence)
            .shown_by([one.description.clone()])
            .next(next::plugin_status(&one.plugin));
    }
    let mut finding = down_on(&one.plugin, &one.node, Some(&one.description));
    if one.half == Half::Controller {
        finding.sentence =
            format!("the controller of plugin {} on node {} is unhealthy", one.plugin, one.node);
    }
    finding
}

/// The node half is unhealthy on a node, or absent.
pub fn down_on(plugin: &PluginId, node: &NodeId, description: Option<&str>) -> Finding {
    let sentence = match description {
        Some(_) => format!("plugin {plugin} is unhealthy on node {node}"),
        None => format!("plugin {plugin} does not run on node {node}"),
    };
    Finding::new(Cause::PluginDown, Actor::PluginOperator(plugin.clone()), sentence)
        .shown_by(description.map(|said| format!("its probe on {node}: {said}")))
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
