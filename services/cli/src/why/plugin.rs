//! Explains the state of a plugin.

use berth_contract::code::Code;
use berth_contract::message::registry::{InstanceStatus, PluginStatus};
use berth_domain::plugin::{Half, NodeState};
use berth_domain::volume::CallFailure;
use berth_domain::{NodeId, PluginId};

use super::{Actor, Cause, Diagnosis, Facts, Finding, next, node, volume};
use crate::span::ago;

/// The most instances that one finding names.
const NAMED_MAX: usize = 5;

/// The diagnosis of a plugin; none when there is no such plugin.
pub fn diagnose(facts: &Facts, id: &PluginId) -> Option<Diagnosis> {
    let plugin = facts.plugin(id)?;
    let counts = match plugin.controllers {
        Some(count) => format!("controllers {count}, nodes {}", plugin.nodes),
        None => format!("nodes {}", plugin.nodes),
    };
    let claims = facts.claims_of.get(id).and_then(|claims| claims.as_ref().ok());
    let known = volume::known_claims(facts, claims);
    let is_of_plugin = |cause| {
        matches!(
            cause,
            Cause::PluginHangs | Cause::PluginRefuses | Cause::NoRoom | Cause::MountHangs
        )
    };
    let finding = troubles(facts, plugin)
        .into_iter()
        .next()
        .or_else(|| volume::worst_finding(facts, &known, is_of_plugin))
        .unwrap_or_else(|| {
            let told = "every instance answers its probe, and no call hangs; nothing to do";
            Finding::new(Cause::Nothing, Actor::NOBODY, told)
        });
    let not_known = facts.claims_of.get(id).and_then(|claims| claims.as_ref().err());
    let unhealthy = plugin.instances.iter().filter(|one| !one.healthy);
    let since = unhealthy.clone().map(|one| one.since).min();
    let also = unhealthy.skip(1).take(NAMED_MAX).map(|one| instance(facts, one)).collect();
    let not_known = not_known.map(|problem| format!("its claims: {}", problem.message));
    Some(Diagnosis {
        since,
        also,
        not_known: not_known.into_iter().collect(),
        ..Diagnosis::new(format_args!("plugin {id}"), counts, finding)
    })
}

fn instance(facts: &Facts, one: &InstanceStatus) -> String {
    let since = ago(one.since, facts.now);
    format!("{} on {} unhealthy for {since}: {}", one.half, one.node, one.description)
}

/// Every fault of a plugin's instances; a half without a healthy instance decides.
pub fn troubles(facts: &Facts, plugin: &PluginStatus) -> Vec<Finding> {
    let no_controller = plugin.controllers.is_some_and(|count| count.healthy == 0);
    if no_controller || plugin.nodes.healthy == 0 {
        return vec![worst_half(facts, plugin)];
    }
    plugin.instances.iter().filter(|one| !one.healthy).map(instance_down).collect()
}

/// The half of a plugin that has no healthy instance.
pub fn worst_half(facts: &Facts, plugin: &PluginStatus) -> Finding {
    let no_controller = plugin.controllers.is_some_and(|count| count.healthy == 0);
    let half = if no_controller { Half::Controller } else { Half::Node };
    // No instance is healthy on a node that is down.
    let there = |one: &&InstanceStatus| one.half == half;
    let nodes = plugin.instances.iter().filter(there).map(|one| facts.nodes.get(&one.node));
    let nodes: Vec<_> = nodes.map(|node| node.and_then(|node| node.as_ref().ok())).collect();
    match nodes.first() {
        Some(Some(first)) if nodes.iter().flatten().all(|node| node.state == NodeState::Down) => {
            node::down(facts, first)
        }
        _ => down(plugin, half),
    }
}

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

/// Whether the failure has one of these codes.
pub fn is_code(failure: &CallFailure, codes: &[Code]) -> bool {
    failure.facts.code.is_some_and(|code| codes.contains(&code.into()))
}

/// Whether the plugin was called, or may have been, and did not answer.
pub fn is_unanswered(failure: &CallFailure) -> bool {
    is_code(failure, &[Code::StillBusy, Code::NoAnswer])
}

/// An agent refused the request as older than another one, so the plugin was not called. A later
/// try is newer, or comes when the agent has forgotten the newer request.
pub fn not_called(plugin: &str, failure: &CallFailure, nobody: Actor) -> Option<Finding> {
    if !is_code(failure, &[Code::OldCall]) {
        return None;
    }
    let node = failure.facts.node.as_ref();
    let agent = node.map_or_else(|| "an agent".to_owned(), |node| format!("the agent of {node}"));
    let sentence = format!(
        "{agent} refused the request, because it knows of a newer one for the volume; {plugin} was \
         not called"
    );
    let finding = Finding::new(Cause::RequestOutdated, nobody, sentence);
    Some(
        finding
            .shown_by([failure.to_string()])
            .next_if_known(node.map(next::node_status))
            .next(format!("berth explain {}", Code::OldCall)),
    )
}

/// No agent has reported the plugin.
pub fn not_known(plugin: &PluginId) -> Finding {
    let sentence = format!("no agent has reported plugin {plugin}");
    Finding::new(Cause::PluginDown, Actor::PluginOperator(plugin.clone()), sentence)
        .next("berth plugin status")
        .next("berth node status")
}
