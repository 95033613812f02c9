//! The nodes: each holds its lease, and its agent answers and can work.

use berth_contract::code::Code;
use berth_contract::message::registry::NodeStatus;
use berth_domain::plugin::NodeState;

use super::facts::{RegistryLists, SystemFacts};
use super::finding::{DoctorFinding, Examined};
use berth_explain::{Actor, Cause, Finding, node_troubles};

/// The causes that this check reports; other checks report the rest.
const OWN_CAUSES: [Cause; 6] = [
    Cause::NodeGone,
    Cause::NodeDown,
    Cause::AgentAway,
    Cause::JournalFault,
    Cause::RunUnknown,
    Cause::MountUnaccounted,
];

pub fn examine(facts: &SystemFacts) -> Examined {
    let registry = match &facts.registry {
        Ok(registry) => registry,
        Err(problem) => return Examined::not_made("nodes and their agents", problem),
    };
    let nodes = &registry.nodes;
    let troubles = nodes.iter().flat_map(|node| {
        let troubles = node_troubles(&facts.why, node).into_iter();
        let troubles = troubles.filter(|finding| OWN_CAUSES.contains(&finding.cause));
        // An operator declared the node gone: nobody has to act, unless it comes back and cannot
        // work.
        let is_awaited = |finding: &Finding| {
            let answers = matches!(facts.why.agents.get(&node.id), Some(Ok(_)));
            finding.cause != Cause::NodeGone || answers && finding.who == Actor::You
        };
        let troubles = troubles.filter(is_awaited);
        troubles.filter_map(move |finding| {
            DoctorFinding::from_finding(format!("node {}", node.id), finding)
        })
    });
    let mut findings: Vec<DoctorFinding> = troubles.collect();
    if nodes.is_empty() {
        let sentence = "no agent has reported, so nothing can be mounted";
        let start = berth_explain::next::start_service("berth-node-agent", "each host that mounts");
        findings.push(DoctorFinding::warning("every host", sentence).next(start));
    }
    findings.extend(unread(facts, registry));
    if facts.agents_left_out > 0 {
        let sentence =
            format!("{} agents were not asked: there are too many", facts.agents_left_out);
        findings.push(DoctorFinding::warning("agents", sentence).next("berth node list"));
    }
    if registry.is_cut {
        let sentence = "there are more nodes or plugins than were read";
        findings.push(DoctorFinding::warning("the registry", sentence).next("berth node list"));
    }
    let count = |is: fn(&NodeStatus) -> bool| nodes.iter().filter(|node| is(node)).count();
    let gone = count(|node| node.gone.is_some());
    let down = count(|node| node.gone.is_none() && node.state == NodeState::Down);
    let others = [(down, "down"), (gone, "gone")].into_iter().filter(|(count, _)| *count > 0);
    let counts = [(nodes.len() - gone - down, "ready")].into_iter().chain(others);
    let counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
    Examined::new(counts.join(", "), findings)
}

/// Nodes of which too little could be read to know whether they are well.
fn unread(facts: &SystemFacts, registry: &RegistryLists) -> Vec<DoctorFinding> {
    let records = registry.unreadable.len();
    let of_records = (records > 0).then(|| {
        let sentence =
            format!("{records} records of nodes or plugins cannot be read: not known how they are");
        DoctorFinding::warning("the registry", sentence)
            .next("berth doctor   # the check `records` names them")
    });
    let denied = facts.why.agents.values().filter_map(|answer| answer.as_ref().err());
    let mut denied = denied.filter(|problem| problem.code == Code::NotAllowed);
    let of_agents = denied
        .next()
        .map(|problem| DoctorFinding::not_checked("what the agents of the nodes say", problem));
    of_records.into_iter().chain(of_agents).collect()
}
