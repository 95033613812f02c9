//! The worst of several claims, and the finding about a refused request.

use std::collections::BTreeMap;

use berth_contract::code::Code;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::query::RefusedRequest;
use berth_contract::problem::Problem;
use berth_domain::PluginId;
use berth_domain::volume::State;

use crate::cause::{Actor, Cause};
use crate::claim::{self, Case};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::next;
use crate::record::is_none;
use crate::span::ago;

/// Claims in line for one volume that are explained, at most. Each is compared with all holders,
/// and those behind wait for the same.
const LINE_MAX: usize = 5;

/// The claims to explain: all holders, and the first in line for each volume.
pub fn explained(claims: &[ClaimStatus]) -> Vec<&ClaimStatus> {
    let (mut line, mut explained): (Vec<_>, Vec<_>) =
        claims.iter().partition(|claim| claim.state == State::Waiting);
    line.sort_by_key(|claim| claim.epoch);
    let mut lengths: BTreeMap<_, usize> = BTreeMap::new();
    line.retain(|claim| {
        let length = lengths.entry((&claim.namespace, &claim.volume)).or_default();
        *length += 1;
        *length <= LINE_MAX
    });
    explained.extend(line);
    explained
}

/// The claim with the first cause in the order, and its finding.
pub fn worst<'a>(facts: &'a Facts, claims: &'a [ClaimStatus]) -> Option<(Case<'a>, Finding)> {
    worst_of(facts, claims, |_| true)
}

/// The same among the causes that `decides` accepts.
fn worst_of<'a>(
    facts: &'a Facts,
    claims: &'a [ClaimStatus],
    decides: impl Fn(Cause) -> bool,
) -> Option<(Case<'a>, Finding)> {
    let findings = explained(claims).into_iter().map(|claim| {
        let case = Case { facts, claim };
        (case, claim::find(&case))
    });
    let findings = findings.filter(|(_, finding)| decides(finding.cause));
    findings.min_by_key(|(case, finding)| (finding.cause, case.claim.since))
}

/// Claims whose volumes were read.
pub fn known_claims(facts: &Facts, claims: Option<&Vec<ClaimStatus>>) -> Vec<ClaimStatus> {
    let read_claims = claims.into_iter().flatten().filter(|claim| facts.volume_of(claim).is_some());
    read_claims.cloned().collect()
}

/// The first finding in the order of causes, among those of claims that `decides` accepts: an
/// earlier cause of another claim hides none of them. The finding names the volume.
pub fn worst_finding(
    facts: &Facts,
    claims: &[ClaimStatus],
    decides: impl Fn(Cause) -> bool,
) -> Option<Finding> {
    let (case, finding) = worst_of(facts, claims, decides)?;
    let ClaimStatus { volume, namespace, .. } = case.claim;
    let sentence = format!("volume {volume}: {}", finding.sentence);
    let why_volume = next::why_volume(volume, namespace);
    Some(Finding { sentence, ..finding }.next(why_volume))
}

/// Facts about a claim that could not be read, each with the reason.
pub fn not_known(case: &Case<'_>) -> Vec<String> {
    let node = &case.claim.node;
    let describe = |what: &str, problem: &Problem| format!("{what}: {}", problem.message);
    let of_node = case.node().and_then(|answer| answer.as_ref().err());
    let of_node = of_node.filter(|problem| !is_none(problem));
    let of_agent = case.agent().and_then(|answer| answer.as_ref().err());
    let of_node = of_node.map(|problem| describe(&format!("how node {node} is"), problem));
    let of_agent =
        of_agent.map(|problem| describe(&format!("what node {node} has mounted"), problem));
    of_node.into_iter().chain(of_agent).collect()
}

/// Whether the request was for use of the volume, not for a change of its registration.
pub fn is_of_claim(refusal: &RefusedRequest) -> bool {
    let step = refusal.step.as_str();
    step.starts_with("node.") || ["claim.take", "controller.publish", "agent.mount"].contains(&step)
}

/// The last request for a volume was refused, and none has been granted since.
pub fn last_refusal(facts: &Facts, plugin: Option<&PluginId>, refusal: &RefusedRequest) -> Finding {
    let RefusedRequest { at, step, code, message, trace, .. } = refusal;
    let actor = match code {
        Code::OldCall => Actor::NOBODY,
        code if code.is_of_plugin() => plugin.cloned().map_or(Actor::You, Actor::PluginOperator),
        _ => Actor::You,
    };
    let since = ago(*at, facts.now);
    let sentence = format!("the last request for it was refused {since} ago: {message}");
    let evidence = format!("{step} was refused at {at} with {code}");
    let finding = Finding::new(Cause::Refused, actor, sentence).shown_by([evidence]);
    finding
        .next(format!("berth explain {code}"))
        .next_if_known(trace.as_ref().map(|trace| format!("berth trace {trace}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each of them is compared with every holder.
    #[test]
    fn of_a_long_line_the_first_are_explained() {
        let claim = |index: usize, state: &str| -> ClaimStatus {
            let claim = json!({"namespace": "default", "volume": "data", "state": state,
                "alloc": format!("a{index}"), "node": "n1", "mode": "write", "epoch": 900 - index,
                "since": "2026-11-21T12:00:00Z"});
            serde_json::from_value(claim).unwrap()
        };
        let line = (0..800).map(|index| claim(index, "waiting"));
        let claims: Vec<ClaimStatus> = line.chain([claim(800, "taken")]).collect();
        let explained: Vec<&str> =
            explained(&claims).iter().map(|claim| claim.alloc.as_str()).collect();
        assert_eq!(explained, ["a800", "a799", "a798", "a797", "a796", "a795"]);
    }
}
