//! Claims that wait for other claims.

use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_domain::AllocId;
use berth_domain::volume::State;

use super::{Case, find};
use crate::span::ago;
use crate::why::{Actor, Cause, Facts, Finding, next};

/// Another claim uses the attachment that this claim must release.
pub fn standing_use(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    if claim.state != State::NodeDetached || claim.attempt.is_some() {
        return None;
    }
    let kind = match claim.wait? {
        ClaimWait::OtherName => Cause::RegisteredTwice,
        ClaimWait::Attachment => Cause::HeldByOthers,
        _ => return None,
    };
    let sentence = format!("its detach waits for {}", claim.waits_for.as_ref()?);
    let finding = Finding::new(kind, Actor::You, sentence);
    Some(
        finding
            .shown_by(claim.hint.clone())
            .next(next::why_volume(&claim.volume, &claim.namespace)),
    )
}

/// A waiting claim: the cause is what blocks the first holder of the volume.
pub fn turn(case: &Case<'_>) -> Option<Finding> {
    let claim = case.claim;
    if claim.state != State::Waiting {
        return None;
    }
    let waits_for = claim.waits_for.clone().unwrap_or_else(|| "its turn".to_owned());
    let claims = &case.volume()?.claims;
    Some(behind_holder(case.facts, claims, &claim.alloc, &waits_for).unwrap_or_else(|| {
        let sentence = format!("it waits for {waits_for}");
        Finding::new(Cause::UnderWay, Actor::NOBODY, sentence)
    }))
}

/// The cause that blocks the holder of the volume, for an alloc that waits for it; none when no
/// claim holds the volume.
pub fn behind_holder(
    facts: &Facts,
    claims: &[ClaimStatus],
    waiter: &AllocId,
    waits_for: &str,
) -> Option<Finding> {
    let holder = holder(claims)?;
    let of_holder = Case { claim: holder, facts };
    let since = ago(holder.since, facts.now);
    let (alloc, node) = (&holder.alloc, &holder.node);
    let told = format!("{alloc} holds the volume on {node}: {} for {since}", holder.state);
    if of_holder.is_granted() {
        let sentence = format!(
            "{alloc} on node {node} has held the volume for {since}; {waiter} is granted it in its \
             turn"
        );
        let finding = Finding::new(Cause::HeldByOthers, Actor::NOBODY, sentence)
            .shown_by([format!("{waiter} waits for {waits_for}")]);
        let when = "once its workload has ended, if it is to end now";
        return Some(finding.next(next::stop_alloc(alloc, &holder.namespace, when)));
    }
    let mut finding = find(&of_holder);
    finding.sentence = format!("{waiter} waits for {alloc}: {}", finding.sentence);
    finding.evidence.insert(0, told);
    Some(finding)
}

/// The claim that holds the volume and must end first.
fn holder(claims: &[ClaimStatus]) -> Option<&ClaimStatus> {
    let holds = |claim: &&ClaimStatus| claim.state != State::Waiting;
    // A claim that is being released ends next; its cause blocks the queue.
    let mut holders: Vec<&ClaimStatus> = claims.iter().filter(holds).collect();
    holders.sort_by_key(|claim| (claim.state == State::Taken, claim.since));
    holders.into_iter().next()
}
