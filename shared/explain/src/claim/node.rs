//! Causes at the node of a claim.

use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_contract::message::registry::{InstanceStatus, NodeStatus};
use berth_domain::PluginId;
use berth_domain::plugin::{Half, keeping_out};
use berth_domain::volume::{CallKind, State};

use super::case::{Case, hangs, refused};
use crate::cause::{Actor, Cause};
use crate::finding::Finding;
use crate::judgement::judge_failure;
use crate::obstacle::{self, Obstacle};
use crate::span::ago;
use crate::{failure as of_failure, instance, next, node, rights};

/// The node is gone, down or unknown, or its agent does not answer.
pub fn gone_or_away(case: &Case<'_>) -> Option<Finding> {
    if !needs_node(case) {
        return None;
    }
    let Some(node) = case.node() else { return reported_down(case) };
    if let Some(finding) = node::keeps_unmount(case.facts, &case.claim.node, node) {
        let last = last_reported(case).filter(|_| node.is_ok());
        return Some(finding.shown_by(last).shown_by(case.evidence()));
    }
    match node {
        Ok(node) if node.gone.is_some() => None,
        Ok(node) => agent_away(case, node),
        // These credentials may not read it, or the registry did not answer.
        Err(_) => reported_down(case),
    }
}

/// Why the node can be granted no claim: it is not there, the plugin is not well on it, or does not
/// reach its storage from there.
pub fn refuses_claims(case: &Case<'_>) -> Option<Finding> {
    let node = case.node()?;
    let unlisted = node::keeps_unmount(case.facts, &case.claim.node, node);
    unlisted.or_else(|| {
        let node = node.as_ref().ok()?;
        if node.gone.is_some() {
            return node::trouble(case.facts, node);
        }
        agent_away(case, node)
            .or_else(|| half_down(case, node))
            .or_else(|| storage_away(case, node))
    })
}

/// The same, from the claim's own record, if the node was not read.
fn reported_down(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { node, wait, waits_for, .. } = case.claim;
    let waits_for = waits_for.as_ref().filter(|_| *wait == Some(ClaimWait::Node))?;
    let finding = Finding::new(Cause::NodeDown, Actor::You, format!("it waits for {waits_for}"));
    Some(finding.next(next::start_agent(node)).next(next::node_status(node)))
}

/// The last report about the claim from an agent that is away.
fn last_reported(case: &Case<'_>) -> Option<String> {
    let mount = case.claim.mount.as_ref()?;
    let (state, since) = (mount.state.as_str(), ago(mount.since, case.now()));
    Some(format!("its agent reported last: {state}, since {since} ago"))
}

/// Whether the claim's next step is the node's, or the node must have the claim's mount.
fn needs_node(case: &Case<'_>) -> bool {
    match case.claim.state {
        State::Waiting | State::Publishing | State::NodeDetached => false,
        State::Taken | State::Unpublishing => true,
    }
}

fn agent_away(case: &Case<'_>, node: &NodeStatus) -> Option<Finding> {
    let finding = if let Some(agent) = case.agent() {
        node::agent_away(node, agent.as_ref().err()?)?.shown_by(case.evidence())
    } else {
        let failure = case.claim.failure.as_ref().filter(|_| case.claim.tries > 0)?;
        let is_away = of_failure::is_code(failure, &[Code::NoResponder]);
        is_away.then(|| node::did_not_listen(&node.id, failure))?
    };
    Some(finding.shown_by(last_reported(case)))
}

/// The agent's identity lacks a right that the claim's step needs. If the mount is absent, any of
/// its rights may be needed.
pub fn missing_right(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { node, step, .. } = case.claim;
    if case.is_granted() {
        let is_mounted = case.mount().is_some_and(|mount| mount.mounted);
        return rights::of_agent(case.facts, node).filter(|_| !is_mounted);
    }
    let detaches = *step == Some(CallKind::NodeDetach);
    let find =
        || rights::find_missing_of_agent(case.facts, node, &rights::OF_DETACH, "the release");
    detaches.then(find)?
}

/// The agent cannot write its journal, so it neither mounts nor unmounts.
pub fn journal(case: &Case<'_>) -> Option<Finding> {
    let node = case.node()?.as_ref().ok().filter(|_| needs_node(case))?;
    if case.mount().is_some_and(|mount| mount.mounted) && case.is_granted() {
        return None;
    }
    node::journal(node)
}

/// The plugin's node half is unhealthy on the node.
pub fn plugin_down(case: &Case<'_>) -> Option<Finding> {
    if case.claim.step? != CallKind::NodeDetach {
        return None;
    }
    half_down(case, case.node()?.as_ref().ok().filter(|node| node.gone.is_none())?)
}

fn find_half<'a>(node: &'a NodeStatus, plugin: &PluginId) -> Option<&'a InstanceStatus> {
    let mut halves = node.instances.iter().filter(|instance| instance.half == Half::Node);
    halves.find(|instance| instance.plugin == *plugin)
}

/// The plugin says that the node does not reach the storage, for all that the volume offers.
fn storage_away(case: &Case<'_>, node: &NodeStatus) -> Option<Finding> {
    let (volume, half) = (case.volume()?, find_half(node, case.plugin_id()?)?);
    let troubles = &half.abilities.as_ref()?.storage;
    keeping_out(troubles, &volume.capabilities, volume.fs_type.as_deref())?;
    instance::storage_unwell(half)
}

fn half_down(case: &Case<'_>, node: &NodeStatus) -> Option<Finding> {
    let id = case.plugin_id()?;
    match find_half(node, id) {
        Some(half) if half.healthy => None,
        unhealthy => Some(
            instance::down_on(id, &node.id, unhealthy.map(|half| &half.description[..]))
                .shown_by(case.evidence()),
        ),
    }
}

/// The cause that blocks the unmount.
pub fn trouble(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    let node = &claim.node;
    if let Some(work) = case.work().filter(|work| work.hung) {
        return Some(hangs(case, node, work));
    }
    let failure = claim.failure.as_ref().filter(|_| claim.tries > 0)?;
    if let Some(finding) = of_failure::not_called(&case.plugin_name(), failure, case.nobody()) {
        return Some(finding);
    }
    if of_failure::is_code(failure, &[Code::RunUnknown]) {
        let sentence = format!(
            "it cannot be seen on node {node} whether alloc {} still runs, so its volumes stay",
            claim.alloc
        );
        let finding = Finding::new(Cause::RunUnknown, Actor::You, sentence);
        return Some(finding.shown_by([failure.to_string()]).next(next::node_status(node)));
    }
    if let Some(obstacle) = obstacle::find(node, failure) {
        return Some(kept_mounted(case, &obstacle));
    }
    if let Some(work) = case.work().filter(|work| work.rpc.is_some())
        && of_failure::is_code(failure, &[Code::StillBusy])
    {
        return Some(hangs(case, node, work));
    }
    if let Some(finding) = refused(case, failure, Some(node)) {
        let confirms = finding.cause == Cause::PluginRefuses;
        return Some(finding.next_if_known(confirms.then(|| confirm_unstaged(case))));
    }
    let sentence =
        format!("node {node} could not unmount it, for {}", ago(claim.since, case.now()));
    // A record of an older version does not say which program failed.
    let judged =
        judge_failure(failure, case.plugin_id()).map(|judged| case.leave_to_retries(judged).1);
    let actor = judged.unwrap_or_else(|| case.plugin_operator());
    let finding = Finding::new(Cause::MountFails, actor, sentence);
    Some(finding.shown_by(case.evidence()).next(next::node_status(node)))
}

/// The command that ends a release which the plugin on the node always refuses (rule 18).
fn confirm_unstaged(case: &Case<'_>) -> String {
    format!(
        "berth volume detach {} {} --unstaged-on-node --yes   # only once nothing of the volume \
         is left on the node",
        hint::volume_argument(&case.key()),
        hint::quoted(case.claim.node.as_str()),
    )
}

/// Something on the node keeps the volume mounted, and a person has to end it.
fn kept_mounted(case: &Case<'_>, obstacle: &Obstacle<'_>) -> Finding {
    let ClaimStatus { node, alloc, since, .. } = case.claim;
    obstacle.explain(match obstacle.cause {
        Cause::HeldByProcess => format!(
            "the volume is still in use on node {node}, by {}, after alloc {alloc} was to give it \
             up",
            obstacle.name_processes()
        ),
        Cause::ForeignMount => format!(
            "something else is mounted on node {node} where the volume was, so the plugin is not \
             told to unmount it"
        ),
        _ => format!(
            "node {node} has not unmounted it, for {}, and no process is seen that uses it",
            ago(*since, case.now())
        ),
    })
}
