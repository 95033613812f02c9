//! Claims that wait for other claims.

use berth_contract::message::claim::ClaimStatus;
use berth_domain::volume::State;

use super::{Case, find};
use crate::span::ago;
use crate::why::{Actor, Cause, Finding, next};

/// Another claim stands on the attachment that this one is to give up.
pub fn standing_use(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    if claim.state != State::NodeDetached || claim.attempt.is_some() {
        return None;
    }
    let waits_for = claim.waits_for.as_ref()?;
    let kind = if waits_for.contains("the same volume of the plugin") {
        Cause::RegisteredTwice
    } else if waits_for.starts_with("the end of alloc ") {
        Cause::HeldByOthers
    } else {
        return None;
    };
    let sentence = format!("its detach waits for {waits_for}");
    let finding = Finding::new(kind, Actor::You, sentence);
    Some(
        finding
            .shown_by(claim.hint.clone())
            .next(next::why_volume(&claim.volume, &claim.namespace)),
    )
}

/// In line: what keeps the first who holds the volume is the cause.
pub fn turn(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    if claim.state != State::Waiting {
        return None;
    }
    let waits_for = claim.waits_for.clone().unwrap_or_else(|| "its turn".to_owned());
    let Some(holder) = holder(case) else {
        let sentence = format!("it waits for {waits_for}");
        return Some(Finding::new(Cause::UnderWay, Actor::NOBODY, sentence));
    };
    let of_holder = Case { claim: holder, ..*case };
    let since = ago(holder.since, case.now());
    let (alloc, node) = (&holder.alloc, &holder.node);
    let told = format!("{alloc} holds the volume on {node}: {} for {since}", holder.state);
    if holder.state == State::Taken && of_holder.is_granted() {
        let sentence = format!(
            "{alloc} on node {node} has held the volume for {since}; {} is granted it in its turn",
            claim.alloc
        );
        let finding = Finding::new(Cause::HeldByOthers, Actor::NOBODY, sentence)
            .shown_by([format!("the claim of {} waits for {waits_for}", claim.alloc)]);
        let when = "once its workload has ended, if it is to end now";
        return Some(finding.next(next::stop_alloc(alloc, &holder.namespace, when)));
    }
    let mut finding = find(&of_holder);
    finding.sentence = format!("{} waits for {alloc}: {}", claim.alloc, finding.sentence);
    finding.evidence.insert(0, told);
    Some(finding)
}

/// The first who holds the volume.
fn holder<'a>(case: &Case<'a>) -> Option<&'a ClaimStatus> {
    let claims = &case.volume()?.claims;
    let holds = |claim: &&ClaimStatus| claim.state != State::Waiting;
    // One that is being released is next to go; what keeps it keeps the line.
    let mut holders: Vec<&ClaimStatus> = claims.iter().filter(holds).collect();
    holders.sort_by_key(|claim| (claim.state == State::Taken, claim.since));
    holders.into_iter().next()
}
