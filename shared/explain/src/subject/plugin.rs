//! Explains the state of a plugin.

use berth_contract::message::registry::InstanceStatus;
use berth_domain::PluginId;

use super::worst;
use crate::cause::{Actor, Cause};
use crate::facts::Facts;
use crate::finding::{Diagnosis, Finding};
use crate::node;
use crate::plugin::troubles;
use crate::record::read_record;
use crate::span::ago;

/// Unhealthy instances that are listed besides the decisive one, at most.
const NAMED_MAX: usize = 5;

/// The diagnosis of a plugin; none when there is no such plugin.
pub fn diagnose(facts: &Facts, id: &PluginId) -> Option<Diagnosis> {
    let subject = format!("plugin {id}");
    // That the registry does not answer is said once, for all kinds of names.
    let plugin = match read_record(facts.plugins.get(id)?, &subject, |_| None) {
        Ok(plugin) => plugin,
        Err(diagnosis) => return diagnosis,
    };
    let counts = match plugin.controllers {
        Some(count) => format!("controllers {count}, nodes {}", plugin.nodes),
        None => format!("nodes {}", plugin.nodes),
    };
    let claims = facts.claims_of.get(id).and_then(|claims| claims.as_ref().ok());
    let read_claims = worst::known_claims(facts, claims);
    let is_of_plugin = |cause| {
        matches!(
            cause,
            Cause::PluginHangs | Cause::PluginRefuses | Cause::NoRoom | Cause::MountHangs
        )
    };
    let finding = troubles(facts, plugin)
        .into_iter()
        .next()
        .or_else(|| worst::worst_finding(facts, &read_claims, is_of_plugin))
        .or_else(|| hung_call(facts, id))
        .unwrap_or_else(|| {
            // Agents know of calls that hang, and claims of those that fail.
            let is_denied = facts.agents.values().any(Result::is_err) || claims.is_none();
            let calls = if is_denied { "" } else { ", and no call hangs" };
            let told = format!("every instance answers its probe{calls}; nothing to do");
            Finding::new(Cause::Nothing, Actor::NOBODY, told)
        });
    let not_known = facts.claims_of.get(id).and_then(|claims| claims.as_ref().err());
    let unhealthy = plugin.instances.iter().filter(|instance| !instance.healthy);
    let since = unhealthy.clone().map(|instance| instance.since).min();
    let also = unhealthy.skip(1).take(NAMED_MAX).map(|status| instance(facts, status)).collect();
    let not_known = not_known.map(|problem| format!("its claims: {}", problem.message));
    Some(Diagnosis {
        since,
        also,
        not_known: not_known.into_iter().collect(),
        ..Diagnosis::new(subject, counts, finding)
    })
}

/// A call of the plugin that hangs: of a change of the storage, or of a claim that was not read.
fn hung_call(facts: &Facts, id: &PluginId) -> Option<Finding> {
    let mut hung = facts.agents.keys().flat_map(|node| node::hung_work(facts, node));
    hung.find(|finding| finding.who == Actor::PluginOperator(id.clone()))
}

fn instance(facts: &Facts, status: &InstanceStatus) -> String {
    let since = ago(status.since, facts.now);
    format!("{} on {} unhealthy for {since}: {}", status.half, status.node, status.description)
}
