//! Explains the state of a plugin.

use berth_contract::message::registry::InstanceStatus;
use berth_domain::PluginId;

use super::worst;
use crate::cause::{Actor, Cause};
use crate::facts::Facts;
use crate::finding::{Diagnosis, Finding};
use crate::plugin::troubles;
use crate::span::ago;

/// The most instances that one diagnosis names.
const NAMED_MAX: usize = 5;

/// The diagnosis of a plugin; none when there is no such plugin.
pub fn diagnose(facts: &Facts, id: &PluginId) -> Option<Diagnosis> {
    let plugin = facts.plugin(id)?;
    let counts = match plugin.controllers {
        Some(count) => format!("controllers {count}, nodes {}", plugin.nodes),
        None => format!("nodes {}", plugin.nodes),
    };
    let claims = facts.claims_of.get(id).and_then(|claims| claims.as_ref().ok());
    let known = worst::known_claims(facts, claims);
    let is_of_plugin = |cause| {
        matches!(
            cause,
            Cause::PluginHangs | Cause::PluginRefuses | Cause::NoRoom | Cause::MountHangs
        )
    };
    let finding = troubles(facts, plugin)
        .into_iter()
        .next()
        .or_else(|| worst::worst_finding(facts, &known, is_of_plugin))
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
