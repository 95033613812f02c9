//! The claims: none is stuck. A claim that only takes its time, or waits in line, is well.

use std::time::Duration;

use berth_contract::message::claim::ClaimStatus;
use berth_domain::Timestamp;
use berth_domain::volume::State;

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined, keep_one_of_each_remedy};
use crate::span::ago;
use berth_explain::{Cause, find_claim, next};

/// How long a step may take, or fail, before the claim counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(15);
/// How long a step without a fault may be in progress before it counts as slow.
const SLOW_AFTER: Duration = Duration::from_secs(600);

pub fn examine(facts: &SystemFacts) -> Examined {
    let list = match &facts.claims {
        Ok(list) => list,
        Err(problem) => return Examined::not_made("claims", problem),
    };
    let mut findings: Vec<DoctorFinding> =
        list.claims.iter().filter_map(|claim| stuck(facts, claim)).collect();
    let stuck = findings.len();
    keep_one_of_each_remedy(&mut findings);
    if list.is_cut {
        let sentence =
            format!("there are more claims than the {} that were read", list.claims.len());
        findings.push(DoctorFinding::warning("claims", sentence).next("berth claim list -n '*'"));
    }
    let count = |is: fn(&ClaimStatus) -> bool| list.claims.iter().filter(|claim| is(claim)).count();
    let taken = count(|claim| claim.state == State::Taken && claim.step.is_none());
    let waiting = count(|claim| claim.state == State::Waiting);
    let moving = list.claims.len() - taken - waiting;
    let summary = format!("{taken} taken, {waiting} in line, {moving} on their way, {stuck} stuck");
    Examined::new(summary, findings)
}

/// Since when the claim is at its present step. A granted claim enters no other state when its
/// mount is made again, when its alloc ends or when its node is declared gone.
fn busy_since(facts: &SystemFacts, claim: &ClaimStatus) -> Timestamp {
    let ClaimStatus { namespace, volume, alloc, node, .. } = claim;
    if claim.state != State::Taken {
        return claim.since;
    }
    let why = &facts.why;
    let agent = why.agents.get(node).and_then(|agent| agent.as_ref().ok());
    let mut operations = agent.into_iter().flat_map(|agent| &agent.work);
    let operation = operations.find(|operation| {
        (&operation.namespace, &operation.volume, &operation.alloc) == (namespace, volume, alloc)
    });
    let gone = why.nodes.get(node).and_then(|node| node.as_ref().ok()?.gone.as_ref());
    let ended = claim.step.map(|_| match why.allocs.get(&(namespace.clone(), alloc.clone())) {
        Some(Ok(alloc)) => alloc.since,
        Some(Err(_)) => claim.since,
        // Only so many allocs are read.
        None => facts.now,
    });
    let begun = operation.map(|operation| operation.since).or(gone.map(|proof| proof.at));
    begun.or(ended).unwrap_or(claim.since)
}

fn stuck(facts: &SystemFacts, claim: &ClaimStatus) -> Option<DoctorFinding> {
    // The finding is reported for the claim's holder.
    if claim.state == State::Waiting {
        return None;
    }
    let since = facts.now.since(claim.since);
    if since < STUCK_AFTER && claim.failed_tries() < 2 && !claim.stray {
        return None;
    }
    let finding = find_claim(&facts.why, claim);
    let place = format!("volume {}/{}, alloc {}", claim.namespace, claim.volume, claim.alloc);
    let why = next::why_volume(&claim.volume, &claim.namespace);
    let busy_since = busy_since(facts, claim);
    if finding.cause == Cause::UnderWay && facts.now.since(busy_since) >= SLOW_AFTER {
        let what =
            format!("{} for {}: {}", claim.state, ago(busy_since, facts.now), finding.sentence);
        return Some(DoctorFinding::warning(place, what).next(why));
    }
    let finding = DoctorFinding::from_finding(place, finding)?;
    let what = format!("{} on {}: {}", claim.state, claim.node, finding.what);
    Some(DoctorFinding { what, ..finding }.next(why))
}
