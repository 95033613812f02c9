//! Operations that do not return: plugin calls past their deadlines, and operations of a host.

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined};
use berth_explain::{Cause, node_troubles};

pub fn examine(facts: &SystemFacts) -> Examined {
    let registry = match &facts.registry {
        Ok(registry) => registry,
        Err(problem) => return Examined::not_made("operations that hang", problem),
    };
    let troubles = registry.nodes.iter().flat_map(|node| {
        let troubles = node_troubles(&facts.why, node).into_iter();
        let troubles =
            troubles.filter(|one| matches!(one.cause, Cause::HostHangs | Cause::PluginHangs));
        troubles.filter_map(move |finding| {
            DoctorFinding::from_finding(format!("node {}", node.id), finding)
        })
    });
    let findings: Vec<DoctorFinding> = troubles.collect();
    let agents = facts.why.agents.values().filter_map(|agent| agent.as_ref().ok());
    let work: usize = agents.clone().map(|agent| agent.work.len() + agent.storage.len()).sum();
    let summary = format!("agents {}, under way {work}, hung {}", agents.count(), findings.len());
    Examined::new(summary, findings)
}
