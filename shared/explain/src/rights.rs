//! Rights that a service's identity lacks, and that a step needs.
//!
//! **Owns** which rights a step needs. Each service reports what its identity lacks in its answer
//! to `$SRV.INFO`, an agent in its status.

use berth_contract::message::access::AccessReport;
use berth_contract::permissions::MissingRight;
use berth_contract::problem::Problem;
use berth_contract::service::{CLAIM, NODE_AGENT, ServiceName, VOLUMEWATCHER};
use berth_contract::verb::{self, Verb as _};
use berth_domain::NodeId;

use crate::cause::{Actor, Cause};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::missing_rights;

/// Rights of one identity that a finding lists besides the first, at most.
const SHOWN_MAX: usize = 5;

/// A verb that a service sends, or answers.
pub struct NeededRight {
    service: ServiceName,
    step: &'static str,
    to_send: bool,
}

const fn sends(service: ServiceName, step: &'static str) -> NeededRight {
    NeededRight { service, step, to_send: true }
}

const fn answers(service: ServiceName, step: &'static str) -> NeededRight {
    NeededRight { service, step, to_send: false }
}

/// What a release needs. A volumewatcher that may not send `work.checkpoint` sends the older
/// requests, so only their absence blocks a release.
pub const OF_RELEASE: [NeededRight; 5] = [
    sends(VOLUMEWATCHER, verb::ClaimCheckpoint::STEP),
    answers(CLAIM, verb::ClaimCheckpoint::STEP),
    sends(VOLUMEWATCHER, verb::AgentDetach::STEP),
    sends(VOLUMEWATCHER, verb::ControllerUnpublish::STEP),
    sends(VOLUMEWATCHER, verb::ControllerUnpublishOnNode::STEP),
];

/// What a claim needs while its volume is attached.
pub const OF_PUBLISH: [NeededRight; 2] = [
    sends(CLAIM, verb::ControllerPublish::STEP),
    sends(CLAIM, verb::ControllerPublishOnNode::STEP),
];

/// What an agent needs to take a volume down.
pub const OF_DETACH: [NeededRight; 1] = [answers(NODE_AGENT, verb::AgentDetach::STEP)];

/// What a change of the storage needs.
pub const OF_CHANGE: [NeededRight; 5] = [
    sends(VOLUMEWATCHER, verb::VolumeCheckpoint::STEP),
    answers(CLAIM, verb::VolumeCheckpoint::STEP),
    sends(VOLUMEWATCHER, verb::ControllerProvision::STEP),
    sends(VOLUMEWATCHER, verb::ControllerProvisionOnNode::STEP),
    sends(VOLUMEWATCHER, verb::AgentExpand::STEP),
];

/// What an agent needs to expand a volume on its node.
pub const OF_EXPANSION: [NeededRight; 1] = [answers(NODE_AGENT, verb::AgentExpand::STEP)];

/// The first of these rights that is missing; `what` is the work that needs it.
pub fn find_missing(facts: &Facts, needed: &[NeededRight], what: &str) -> Option<Finding> {
    needed.iter().find_map(|NeededRight { service, step, to_send }| {
        let access = access_of(facts, service.name)?;
        let right = access.find_step(step, *to_send)?;
        Some(describe(service.name, access, &right, what))
    })
}

/// No replica of a running service receives this request, because its identity may not.
pub fn find_unserved(facts: &Facts, service: &str, problem: &Problem) -> Option<Finding> {
    let step = problem.step.as_deref()?;
    let access = access_of(facts, service)?;
    let right = access.find_step(step, false)?;
    Some(describe(service, access, &right, step))
}

/// The first right of these that the node's agent lacks; `what` is the work that needs it.
pub fn find_missing_of_agent(
    facts: &Facts,
    node: &NodeId,
    needed: &[NeededRight],
    what: &str,
) -> Option<Finding> {
    let access = access_of_agent(facts, node)?;
    let right = needed
        .iter()
        .find_map(|needed_right| access.find_step(needed_right.step, needed_right.to_send))?;
    Some(describe(&agent(node), access, &right, what))
}

/// All rights that the identity of the node's agent lacks.
pub fn of_agent(facts: &Facts, node: &NodeId) -> Option<Finding> {
    let access = access_of_agent(facts, node)?;
    let missing = access.missing_rights();
    let (first, others) = missing.split_first()?;
    let finding = describe(&agent(node), access, first, &format!("node {node}"));
    Some(finding.shown_by(others.iter().take(SHOWN_MAX).map(ToString::to_string)))
}

fn agent(node: &NodeId) -> String {
    format!("the agent of node {node}")
}

fn access_of_agent<'a>(facts: &'a Facts, node: &NodeId) -> Option<&'a AccessReport> {
    facts.agents.get(node)?.as_ref().ok()?.access.as_ref()
}

fn access_of<'a>(facts: &'a Facts, service: &str) -> Option<&'a AccessReport> {
    facts.services.get(service)?.as_ref().ok()?.access.as_ref()
}

fn describe(service: &str, access: &AccessReport, right: &MissingRight, what: &str) -> Finding {
    let sentence = format!("{what}: {}", missing_rights::describe(service, access, right));
    Finding::new(Cause::RightMissing, Actor::You, sentence)
        .shown_by([right.to_string()])
        .next(missing_rights::next(access))
        .next("berth doctor   # which other rights are missing")
}

#[cfg(test)]
mod tests {
    use berth_contract::code::Code;
    use berth_contract::service::PLUGIN_REGISTRY;
    use serde_json::json;

    use super::*;
    use crate::facts::ServiceInfo;
    use crate::service;

    fn lacking(service: ServiceName, right: serde_json::Value) -> Facts {
        let access = json!({"identity": "claim", "missing": [right],
            "remedy": "berth access service claim --replace"});
        let access = serde_json::from_value(access).unwrap();
        let mut facts = Facts::default();
        facts.services.insert(service.name, Ok(ServiceInfo { access, ..ServiceInfo::default() }));
        facts
    }

    #[test]
    fn a_verb_that_a_service_may_not_receive_is_no_service_to_start() {
        let subject = "berth.v1.volume.status.*.*.* q";
        let facts = lacking(CLAIM, json!({ "subscribe": subject }));
        let problem = |step: &str| Problem::new(Code::NoResponder, "no responders").at_step(step);
        let finding = service::away(&facts, CLAIM.name, &problem("volume.status"));
        assert_eq!((finding.cause, &finding.who), (Cause::RightMissing, &Actor::You));
        assert!(
            finding.sentence.contains("berth-claim may not receive volume.status"),
            "{finding:?}"
        );
        assert_eq!(finding.evidence[0], format!("subscribe: requests {subject} (volume.status)"));
        assert!(
            finding.next[0].starts_with("berth access service claim --replace "),
            "{finding:?}"
        );
        assert!(finding.next.iter().all(|next| !next.contains("systemctl")), "{finding:?}");
        // Another verb, and another service.
        for (service, step) in [(CLAIM, "alloc.status"), (PLUGIN_REGISTRY, "volume.status")] {
            let other_finding = service::away(&facts, service.name, &problem(step));
            assert_eq!(other_finding.cause, Cause::ServiceAway, "{other_finding:?}");
        }
    }

    #[test]
    fn only_the_rights_of_the_work_are_its_cause() {
        let right = json!({"publish": "berth.v1.volume.checkpoint.*.service.volumewatcher"});
        let facts = lacking(VOLUMEWATCHER, right);
        let finding = find_missing(&facts, &OF_CHANGE, "creating").unwrap();
        let sentence = "creating: berth-volumewatcher may not send volume.checkpoint";
        assert!(finding.sentence.starts_with(sentence), "{finding:?}");
        for needed in [&OF_RELEASE[..], &OF_PUBLISH] {
            assert_eq!(find_missing(&facts, needed, "x"), None);
        }
    }
}
