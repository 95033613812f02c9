//! Causes at the controller of a claim.

use berth_contract::code::Code;
use berth_contract::hint;
use berth_domain::plugin::Half;
use berth_domain::proof::ProofKind;
use berth_domain::volume::{CallFailure, State};
use berth_domain::{AllocId, NodeId, PluginId, VolumeKey};

use super::case::{Case, hangs, refused};
use crate::cause::{Actor, Cause};
use crate::finding::Finding;
use crate::judgement::judge_at_controller;
use crate::record::is_none;
use crate::span::ago;
use crate::{failure as of_failure, instance, next};

/// No controller of the plugin is healthy.
pub fn down(case: &Case<'_>) -> Option<Finding> {
    let id = case.plugin_id()?;
    let plugin_status = match case.facts.plugins.get(id)? {
        Ok(plugin_status) => plugin_status,
        // A failed read says nothing about the plugin.
        Err(problem) => {
            return is_none(problem).then(|| instance::not_known(id).shown_by(case.evidence()));
        }
    };
    let is_none_healthy = plugin_status.controllers.is_some_and(|count| count.healthy == 0);
    is_none_healthy
        .then(|| instance::down(plugin_status, Half::Controller).shown_by(case.evidence()))
}

/// No controller is healthy, and the plugin needs one to attach the volume to the node.
pub fn is_lacking(case: &Case<'_>) -> Option<Finding> {
    down(case).filter(|_| case.plugin().is_none_or(|plugin| plugin.attaches))
}

/// The cause that blocks the attach or the detach.
pub fn trouble(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    if let Some((node, work)) = case.controller_work().filter(|(_, work)| work.hung) {
        return Some(hangs(case, node, work));
    }
    if claim.exhausted {
        let finding = no_room(case.plugin_id(), &case.key(), &claim.node, &claim.alloc);
        return Some(finding.shown_by(claim.failure.as_ref().map(ToString::to_string)));
    }
    let failure = claim.failure.as_ref().filter(|_| claim.tries > 0)?;
    if let Some(finding) = of_failure::not_called(&case.plugin_name(), failure, case.nobody()) {
        return Some(finding);
    }
    if of_failure::is_unanswered(failure) {
        let plugin = case.plugin_id().filter(|_| case.controller_work().is_none());
        let not_asked =
            plugin.and_then(|plugin| of_failure::not_asked(case.facts, plugin, failure));
        if let Some(finding) = not_asked {
            return Some(finding.shown_by(case.evidence()));
        }
        return Some(not_answered(case, failure));
    }
    if let Some(finding) = refused(case, failure, failure.facts.node.as_ref()) {
        return Some(with_ways_out(case, finding));
    }
    let sentence = format!(
        "the controller of {} could not do its part, for {}",
        case.plugin_name(),
        ago(claim.since, case.now())
    );
    let judged =
        judge_at_controller(failure, case.plugin_id()).map(|judged| case.leave_to_retries(judged));
    let (kind, actor) = judged.unwrap_or((Cause::PluginRefuses, case.plugin_operator()));
    let explain = failure.facts.code.map(|code| format!("berth explain {}", Code::from(code)));
    Some(
        Finding::new(kind, actor, sentence)
            .shown_by(case.evidence())
            .next_if_known(explain.filter(|_| kind != Cause::PluginRefuses))
            .next_if_known(case.plugin_id().map(next::plugin_status)),
    )
}

/// A controller got the call, and its plugin has not answered.
fn not_answered(case: &Case<'_>, failure: &CallFailure) -> Finding {
    let node = failure.facts.node.as_ref();
    if let Some((node, work)) = case.controller_work() {
        return hangs(case, node, work);
    }
    let rpc = match case.claim.state {
        State::NodeDetached => "ControllerUnpublishVolume",
        _ => "ControllerPublishVolume",
    };
    if let Some(finding) = node.and_then(|node| not_under_way(case, node, rpc)) {
        return finding.shown_by([failure.to_string()]);
    }
    let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let since = ago(case.claim.since, case.now());
    let sentence = format!("{}{on} has not answered {rpc} for {since}", case.plugin_name());
    let finding = Finding::new(Cause::PluginHangs, case.plugin_operator(), sentence)
        .shown_by([failure.to_string()]);
    finding.next_if_known(case.plugin_id().map(|plugin| match node {
        Some(node) => next::plugin_process(node, plugin),
        None => next::plugin_status(plugin),
    }))
}

/// The record has a call, and the agent that would make it answers that it makes none. So the claim
/// waits for the call's deadline, not for the plugin.
fn not_under_way(case: &Case<'_>, node: &NodeId, rpc: &str) -> Option<Finding> {
    let attempt = case.claim.attempt.as_ref().filter(|attempt| case.now() <= attempt.ends())?;
    case.facts.agents.get(node)?.as_ref().ok()?;
    let sentence = format!(
        "the last call {rpc} was not answered, and the agent of node {node} makes none now: the \
         next one may be made after {}",
        attempt.ends()
    );
    let finding = Finding::new(Cause::UnderWay, case.nobody(), sentence);
    Some(finding.next_if_known(case.plugin_id().map(next::plugin_status)))
}

/// The plugin has no room on the node. While the claim exists, the plugin is asked for no other
/// node (rule 7): another node helps only after the claim's alloc is stopped.
pub fn no_room(
    plugin: Option<&PluginId>,
    volume: &VolumeKey,
    node: &NodeId,
    alloc: &AllocId,
) -> Finding {
    let name = plugin.map_or_else(|| "its plugin".to_owned(), |id| format!("plugin {id}"));
    let sentence = format!("{name} has no room for one more volume on node {node}");
    let holders = plugin.map(|id| {
        format!(
            "berth claim status --plugin {} --node {} -n '*'   # release one of these",
            hint::quoted(id.as_str()),
            hint::quoted(node.as_str())
        )
    });
    Finding::new(Cause::NoRoom, Actor::You, sentence)
        .next_if_known(holders)
        .next(format!(
            "berth volume placement {}   # or find another node with room",
            hint::volume_source(volume)
        ))
        .next(next::stop_alloc(alloc, &volume.namespace, "then run it there"))
}

/// Adds the ways to end a detach that the plugin always refuses.
fn with_ways_out(case: &Case<'_>, finding: Finding) -> Finding {
    let claim = case.claim;
    if claim.state != State::NodeDetached || finding.cause != Cause::PluginRefuses {
        return finding;
    }
    let proof = claim.proof.as_ref().filter(|proof| proof.kind != ProofKind::StorageFenced);
    let fence = proof.map(|_| {
        format!(
            "# node {} was declared gone: where the storage refuses because the host still \
             reaches it, fence the host at the storage, or switch it off",
            claim.node
        )
    });
    finding.next_if_known(fence).next(format!(
        "berth volume detach {} {} --detached-at-storage --yes   # only once the storage shows \
         that it is detached",
        hint::volume_argument(&case.key()),
        hint::quoted(claim.node.as_str()),
    ))
}
