//! What the facts of a failed call mean.

use berth_contract::code::Code;
use berth_domain::plugin::{Half, NodeState};
use berth_domain::volume::{CallFailure, FailureFacts};
use berth_domain::{NodeId, PluginId};

use crate::cause::{Actor, Cause};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::next;

/// Whether the failure has one of these codes.
pub fn is_code(failure: &CallFailure, codes: &[Code]) -> bool {
    failure.facts.code.is_some_and(|code| codes.contains(&code.into()))
}

/// Whether the plugin did not answer the call, if it got it.
pub fn is_unanswered(failure: &CallFailure) -> bool {
    is_code(failure, &[Code::StillBusy, Code::NoAnswer])
}

/// The plugin's process ends whenever it works on the call, and takes the calls for other volumes
/// with it. `at` is the node whose plugin has the call, where the failure does not say.
pub fn crashes(
    plugin: Option<&PluginId>,
    at: Option<&NodeId>,
    failure: &CallFailure,
) -> Option<Finding> {
    let FailureFacts { rpc, node, crashes, .. } = &failure.facts;
    let node = node.as_ref().or(at);
    if !failure.facts.ends_plugin() {
        return None;
    }
    let name = plugin.map_or_else(|| "its plugin".to_owned(), |id| format!("plugin {id}"));
    let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let call = rpc.as_deref().unwrap_or("this call");
    let sentence = format!(
        "{name}{on}: its process ended {crashes} times while it worked on {call} for this volume, \
         so that call is made less and less often"
    );
    let who = plugin.cloned().map_or(Actor::You, Actor::PluginOperator);
    let process = node.zip(plugin).map(|(node, id)| next::plugin_process(node, id));
    let status = plugin.map(next::plugin_status);
    let finding = Finding::new(Cause::PluginCrashes, who, sentence);
    Some(finding.next_if_known(process.or(status)))
}

/// The call was not made, because an agent with a controller of the plugin does not say whether it
/// is at an earlier call for the volume (rule 4). The plugin got no call to answer.
pub fn not_asked(facts: &Facts, plugin: &PluginId, failure: &CallFailure) -> Option<Finding> {
    if !is_code(failure, &[Code::StillBusy]) {
        return None;
    }
    let is_down = |id: &NodeId| {
        let node = facts.nodes.get(id).and_then(|node| node.as_ref().ok());
        node.is_some_and(|node| node.state == NodeState::Down)
    };
    let instances = facts.plugin(plugin)?.instances.iter();
    let mut hosts = instances.filter(|one| one.half == Half::Controller && !is_down(&one.node));
    let (id, problem) = hosts.find_map(|one| {
        let problem = facts.agents.get(&one.node)?.as_ref().err()?;
        (problem.code != Code::NotAllowed).then_some((&one.node, problem))
    })?;
    let sentence = format!(
        "the agent of node {id} does not say whether its controller is still at an earlier call \
         for the volume: no call is made before it answers, or its lease has ended"
    );
    let finding = Finding::new(Cause::AgentAway, Actor::You, sentence)
        .shown_by([format!("agent.status of {id}: {}", problem.message)]);
    Some(finding.next(next::start_agent(id)).next(next::node_status(id)))
}

/// An agent refused the request as older than another one, so the plugin was not called. A retry is
/// newer, or comes after the agent has forgotten the newer request.
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
