//! The plugins: every instance is healthy, and none is missing.

use berth_contract::message::registry::PluginStatus;
use berth_domain::plugin::{Count, Half, NodeState};
use berth_domain::{NodeId, PluginId};

use super::facts::{RegistryLists, SystemFacts};
use super::finding::{DoctorFinding, Examined};
use berth_explain::{Cause, Finding, next, node_troubles, plugin_troubles, unreported_plugin};

pub fn examine(facts: &SystemFacts) -> Examined {
    let registry = match &facts.registry {
        Ok(registry) => registry,
        Err(problem) => return Examined::not_made("plugins", problem),
    };
    let mut findings = Vec::new();
    for plugin in &registry.plugins {
        let place = format!("plugin {}", plugin.id);
        let troubles: Vec<DoctorFinding> = troubles(facts, plugin)
            .into_iter()
            .filter_map(|finding| DoctorFinding::from_finding(&place, finding))
            .collect();
        if troubles.is_empty() {
            findings.extend(too_few(facts, plugin).map(|sentence| {
                DoctorFinding::warning(&place, sentence).next(next::plugin_status(&plugin.id))
            }));
        }
        findings.extend(troubles);
    }
    findings.extend(unreported(facts, registry));
    for node in &registry.nodes {
        let files = node_troubles(&facts.why, node).into_iter();
        let files = files.filter(|finding| finding.cause == Cause::PluginFile);
        let place = format!("node {}", node.id);
        findings.extend(files.filter_map(|finding| DoctorFinding::from_finding(&place, finding)));
    }
    let well = registry.plugins.iter().filter(|plugin| {
        plugin.nodes.is_complete() && plugin.controllers.is_none_or(|count| count.is_complete())
    });
    let summary = format!("{} of {} complete", well.count(), registry.plugins.len());
    Examined::new(summary, findings)
}

/// Plugins of volumes that no agent reports. None if records are missing: they may report it.
fn unreported(facts: &SystemFacts, registry: &RegistryLists) -> Vec<DoctorFinding> {
    let is_whole = !registry.is_cut && registry.unreadable.is_empty() && !registry.nodes.is_empty();
    let Some(storage) = facts.storage.as_ref().ok().filter(|_| is_whole) else { return Vec::new() };
    let is_reported = |id: &PluginId| registry.plugins.iter().any(|plugin| plugin.id == *id);
    let unreported = storage.unserved.iter().filter(|(id, _)| !is_reported(id));
    let findings = unreported.filter_map(|(id, count)| {
        let finding = unreported_plugin(id).shown_by([format!("{count} volumes are of it")]);
        DoctorFinding::from_finding(format!("plugin {id}"), finding)
    });
    findings.collect()
}

/// What is wrong with the instances on nodes that are up. The nodes' own check names the others.
fn troubles(facts: &SystemFacts, plugin: &PluginStatus) -> Vec<Finding> {
    let of_up = plugin.instances.iter().filter(|instance| !is_down(facts, &instance.node));
    let instances: Vec<_> = of_up.cloned().collect();
    if instances.is_empty() && !plugin.instances.is_empty() {
        return Vec::new();
    }
    let of_nodes = |finding: &Finding| matches!(finding.cause, Cause::NodeDown | Cause::NodeGone);
    // All nodes with one half of it are down, and the other half may run.
    if plugin_troubles(&facts.why, plugin).iter().any(of_nodes) {
        return Vec::new();
    }
    plugin_troubles(&facts.why, &PluginStatus { instances, ..plugin.clone() })
}

fn is_down(facts: &SystemFacts, node: &NodeId) -> bool {
    let node_status = facts.why.nodes.get(node).and_then(|answer| answer.as_ref().ok());
    node_status.is_some_and(|node| node.state == NodeState::Down)
}

/// Fewer instances run than the plugin's jobs say, beyond those on nodes that are down.
fn too_few(facts: &SystemFacts, plugin: &PluginStatus) -> Option<String> {
    let on_dead = |half| {
        let of_half = plugin.instances.iter().filter(|one| one.half == half);
        of_half.filter(|instance| is_down(facts, &instance.node)).count()
    };
    let counts = [
        ("controllers", plugin.controllers, Half::Controller),
        ("node instances", Some(plugin.nodes), Half::Node),
    ];
    let shortages = counts.into_iter().filter_map(|(word, count, half)| {
        let Count { healthy, expected } = count?;
        (healthy + on_dead(half) < expected).then(|| format!("{healthy} of {expected} {word} run"))
    });
    let shortages: Vec<String> = shortages.collect();
    (!shortages.is_empty()).then(|| format!("fewer than expected: {}", shortages.join(", ")))
}
