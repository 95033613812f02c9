//! Explains why a claim waits: by what keeps those that hold the volume.
//!
//! **Promises** that of several holders one is named that must give the volume up, or that is kept
//! from it: no claim that the waiter could share the volume with, and none that goes by itself.

use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_domain::access::{AccessMode, Mode, admit};
use berth_domain::volume::State;
use berth_domain::{AllocId, NodeId};

use super::case::Case;
use super::rules::find_own;
use crate::cause::{Actor, Cause};
use crate::facts::{Facts, Holders};
use crate::finding::Finding;
use crate::next;
use crate::span::ago;

/// An alloc that waits for a volume.
pub struct Waiter<'a> {
    pub alloc: &'a AllocId,
    pub node: &'a NodeId,
    pub mode: Mode,
    /// In words, for the evidence.
    pub waits_for: &'a str,
}

impl Waiter<'_> {
    /// Whether the claim keeps the volume from the waiter, however it is used.
    fn conflicts(&self, access: AccessMode, held: &ClaimStatus) -> bool {
        admit(access, self.mode, &self.node, [(&held.node, held.mode)]).is_err()
    }
}

/// A waiting claim: the cause is what keeps the volume's holder.
pub fn turn(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { state, waits_for, alloc, node, mode, .. } = case.claim;
    if *state != State::Waiting {
        return None;
    }
    let waits_for = waits_for.as_deref().unwrap_or("its turn");
    let waiter = Waiter { alloc, node, mode: *mode, waits_for };
    let found = match case.volume() {
        Some(volume) => {
            let access = volume.in_use.map(|used| used.access);
            behind_holder(case.facts, access, &volume.claims, &waiter)
        }
        None => case.facts.holders.get(&case.key()).and_then(|Holders { access, claims }| {
            behind_holder(case.facts, *access, claims, &waiter)
        }),
    };
    Some(found.unwrap_or_else(|| {
        let sentence = format!("it waits for {waits_for}");
        Finding::new(Cause::UnderWay, Actor::NOBODY, sentence)
    }))
}

/// What keeps the holder of the volume, for an alloc that waits for it; none when no claim holds
/// the volume against it.
pub fn behind_holder(
    facts: &Facts,
    access: Option<AccessMode>,
    claims: &[ClaimStatus],
    waiter: &Waiter<'_>,
) -> Option<Finding> {
    let conflicting =
        claims.iter().filter(|held| access.is_none_or(|access| waiter.conflicts(access, held)));
    let (holder, mut finding) = find_holder(facts, conflicting)?;
    let ClaimStatus { alloc, node, state, .. } = holder.claim;
    let Waiter { alloc: waiter, waits_for, .. } = waiter;
    let since = ago(holder.claim.since, facts.now);
    if keeps_itself(&holder, &finding) {
        let sentence = format!(
            "{alloc} on node {node} has held the volume for {since}; {waiter} is granted it in its \
             turn"
        );
        let told = format!("{waiter} waits for {waits_for}");
        return Some(Finding { sentence, who: Actor::NOBODY, ..finding }.shown_by([told]));
    }
    finding.sentence = format!("{waiter} waits for {alloc}: {}", finding.sentence);
    let told = format!("{alloc} holds the volume on {node}: {state} for {since}");
    finding.evidence.insert(0, told);
    Some(finding)
}

/// The claim that keeps the volume from others, and why. Of several it is the first in the order of
/// causes.
pub fn find_holder<'a>(
    facts: &'a Facts,
    claims: impl IntoIterator<Item = &'a ClaimStatus>,
) -> Option<(Case<'a>, Finding)> {
    let holders = claims.into_iter().filter(|claim| claim.state != State::Waiting);
    let found = holders.map(|claim| {
        let case = Case { facts, claim };
        (case, find_of_holder(&case))
    });
    found.min_by_key(|(Case { claim, .. }, finding)| {
        (rank(claim, finding), claim.state == State::Taken, claim.since)
    })
}

/// Which cause decides how much of an obstacle the holder is. A release that goes on by itself is
/// the least, whatever it waits for now.
fn rank(claim: &ClaimStatus, finding: &Finding) -> Cause {
    // The claim service has read more records: its hint says what keeps a release of which nothing
    // else is known.
    let is_kept_by_more = claim.hint.is_some() && finding.next.is_empty();
    let goes_on = matches!(finding.who, Actor::Nobody { .. })
        // It ends with the other claim, which is a holder itself.
        || claim.wait == Some(ClaimWait::Attachment);
    match finding.cause {
        Cause::UnderWay if is_kept_by_more => Cause::HeldByOthers,
        cause if goes_on => cause.max(Cause::UnderWay),
        cause => cause,
    }
}

/// Why a claim keeps the volume. A holder whose mount fails could still give the volume up; what
/// comes before [`Cause::PluginRefuses`] would keep its release, too.
fn find_of_holder(case: &Case<'_>) -> Finding {
    let found = find_own(case).unwrap_or_else(|| case.at_rest());
    if !case.is_granted() || found.cause < Cause::PluginRefuses {
        return found;
    }
    let ClaimStatus { alloc, node, namespace, since, .. } = case.claim;
    let sentence =
        format!("{alloc} on node {node} has held the volume for {}", ago(*since, case.now()));
    let when = "once its workload has ended, if it is to end now";
    let stop = next::stop_alloc(alloc, namespace, when);
    Finding::new(Cause::HeldByOthers, Actor::You, sentence).next(stop)
}

/// Whether nothing keeps the holder but its alloc.
pub fn keeps_itself(holder: &Case<'_>, finding: &Finding) -> bool {
    holder.is_granted() && finding.cause == Cause::HeldByOthers
}
