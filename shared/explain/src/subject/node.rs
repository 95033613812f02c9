//! Explains the state of a node.

use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::registry::NodeStatus;
use berth_contract::service::PLUGIN_REGISTRY;
use berth_domain::NodeId;
use berth_domain::plugin::Half;

use super::worst;
use crate::cause::{Actor, Cause};
use crate::claim::{self, Case};
use crate::facts::Facts;
use crate::finding::{Diagnosis, Finding};
use crate::node::{state, trouble};
use crate::record::read_record;
use crate::service;

/// Claims of one node that are listed besides its own cause, at most.
const ALSO_MAX: usize = 5;

/// The diagnosis of a node; none when there is no such node.
pub fn diagnose(facts: &Facts, id: &NodeId) -> Option<Diagnosis> {
    let subject = format!("node {id}");
    // If the name may be another kind's, that kind's diagnosis may be better than an error.
    let is_only = facts.names.volume.is_none() && facts.names.plugin.is_none();
    let unanswered =
        |problem: &_| is_only.then(|| service::away(facts, PLUGIN_REGISTRY.name, problem));
    let node = match read_record(facts.nodes.get(id)?, &subject, unanswered) {
        Ok(node) => node,
        Err(diagnosis) => return diagnosis,
    };
    let claims = facts.claims_on.get(id).and_then(|claims| claims.as_ref().ok());
    let read_claims = worst::known_claims(facts, claims);
    let finding = trouble(facts, node)
        .or_else(|| worst::worst_finding(facts, &read_claims, |cause| cause < Cause::UnderWay))
        .unwrap_or_else(|| well(facts, node, claims));
    let (state, since) = state(node);
    let mut diagnosis = Diagnosis { since: Some(since), ..Diagnosis::new(subject, state, finding) };
    diagnosis.also = worst::explained(&read_claims)
        .into_iter()
        .filter_map(|claim| also(facts, claim))
        .take(ALSO_MAX)
        .collect();
    if let Some(Err(problem)) = facts.agents.get(id) {
        diagnosis.not_known.push(format!("what it has mounted: {}", problem.message));
    }
    if let Some(Err(problem)) = facts.claims_on.get(id) {
        diagnosis.not_known.push(format!("its claims: {}", problem.message));
    }
    Some(diagnosis)
}

fn also(facts: &Facts, claim: &ClaimStatus) -> Option<String> {
    let case = Case { facts, claim };
    let finding = claim::find(&case);
    let line = format!("volume {} {}: {}", claim.volume, claim::state(&case), finding.sentence);
    (finding.cause < Cause::UnderWay).then_some(line)
}

/// Nothing is wrong.
fn well(facts: &Facts, node: &NodeStatus, claims: Option<&Vec<ClaimStatus>>) -> Finding {
    let agent = facts.agents.get(&node.id).and_then(|agent| agent.as_ref().ok());
    let answers = if agent.is_some() { "its agent answers" } else { "its agent was not asked" };
    let mounts = agent.map_or("not known".to_owned(), |agent| agent.mounts.len().to_string());
    let plugins = node.instances.iter().filter(|instance| instance.half == Half::Node).count();
    let claims = claims.map_or("not known".to_owned(), |claims| claims.len().to_string());
    let sentence = format!(
        "{answers}, plugins: {plugins}, all healthy, claims: {claims}, mounts: {mounts}; \
         nothing to do"
    );
    Finding::new(Cause::Nothing, Actor::NOBODY, sentence)
}
