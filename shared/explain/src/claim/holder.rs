//! Explains why a claim waits: what keeps the holders of the volume from giving it up.
//!
//! **Promises** that it names a holder that must give the volume up, or is kept from it: never a
//! claim that the waiter could share the volume with, and a release that continues by itself only
//! if no other holder is left.

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
    /// What it waits for, in words: the evidence.
    pub waits_for: &'a str,
}

impl Waiter<'_> {
    /// Whether the claim keeps the volume from the waiter, by its mode or its node.
    fn conflicts(&self, access: AccessMode, holder: &ClaimStatus) -> bool {
        admit(access, self.mode, &self.node, [(&holder.node, holder.mode)]).is_err()
    }
}

/// Explains a waiting claim by what keeps the volume's holder.
pub fn turn(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { state, waits_for, alloc, node, mode, .. } = case.claim;
    if *state != State::Waiting {
        return None;
    }
    let waits_for = waits_for.as_deref().unwrap_or("its turn");
    let waiter = Waiter { alloc, node, mode: *mode, waits_for };
    let behind = match case.volume() {
        Some(volume) => {
            let access = volume.in_use.map(|used| used.access);
            behind_holder(case.facts, access, &volume.claims, &waiter)
        }
        None => case.facts.holders.get(&case.key()).and_then(|Holders { access, claims }| {
            behind_holder(case.facts, *access, claims, &waiter)
        }),
    };
    Some(behind.unwrap_or_else(|| {
        let sentence = format!("it waits for {waits_for}");
        Finding::new(Cause::UnderWay, Actor::NOBODY, sentence)
    }))
}

/// What keeps the holder of the volume, for an alloc that waits for it; none if no claim holds the
/// volume against it.
pub fn behind_holder(
    facts: &Facts,
    access: Option<AccessMode>,
    claims: &[ClaimStatus],
    waiter: &Waiter<'_>,
) -> Option<Finding> {
    let conflicting =
        claims.iter().filter(|holder| access.is_none_or(|access| waiter.conflicts(access, holder)));
    let (holder, mut finding) = find_holder(facts, conflicting)?;
    let ClaimStatus { alloc, node, state, .. } = holder.claim;
    let Waiter { alloc: waiter, waits_for, .. } = waiter;
    let since = ago(holder.claim.since, facts.now);
    if keeps_itself(&holder, &finding) {
        let sentence = format!(
            "{alloc} on node {node} has held the volume for {since}; {waiter} is granted it in its \
             turn"
        );
        let evidence = format!("{waiter} waits for {waits_for}");
        return Some(Finding { sentence, who: Actor::NOBODY, ..finding }.shown_by([evidence]));
    }
    finding.sentence = format!("{waiter} waits for {alloc}: {}", finding.sentence);
    let evidence = format!("{alloc} holds the volume on {node}: {state} for {since}");
    finding.evidence.insert(0, evidence);
    Some(finding)
}

/// The claim that keeps the volume from others, and why. Of several holders, the one with the first
/// cause in the order.
pub fn find_holder<'a>(
    facts: &'a Facts,
    claims: impl IntoIterator<Item = &'a ClaimStatus>,
) -> Option<(Case<'a>, Finding)> {
    let holders = claims.into_iter().filter(|claim| claim.state != State::Waiting);
    let found_holders = holders.map(|claim| {
        let case = Case { facts, claim };
        (case, find_of_holder(&case))
    });
    found_holders.min_by_key(|(Case { claim, .. }, finding)| {
        (rank(claim, finding), claim.state == State::Taken, claim.since)
    })
}

/// The cause by which a holder is compared with others. A release that continues by itself comes
/// last, whatever it waits for now.
fn rank(claim: &ClaimStatus, finding: &Finding) -> Cause {
    // The claim service has read more records: its hint tells what blocks a release that is
    // otherwise unexplained.
    let is_kept_by_more = claim.hint.is_some() && finding.next.is_empty();
    let goes_on = matches!(finding.who, Actor::Nobody { .. })
        // It ends with the other claim, which is compared itself.
        || claim.wait == Some(ClaimWait::Attachment);
    match finding.cause {
        Cause::UnderWay if is_kept_by_more => Cause::HeldByOthers,
        cause if goes_on => cause.max(Cause::UnderWay),
        cause => cause,
    }
}

/// Why a claim keeps the volume. A holder whose mount fails could still give the volume up; causes
/// before [`Cause::PluginRefuses`] would block its release, too.
fn find_of_holder(case: &Case<'_>) -> Finding {
    let own_finding = find_own(case).unwrap_or_else(|| case.at_rest());
    if !case.is_granted() || own_finding.cause < Cause::PluginRefuses {
        return own_finding;
    }
    let ClaimStatus { alloc, node, namespace, since, .. } = case.claim;
    let sentence =
        format!("{alloc} on node {node} has held the volume for {}", ago(*since, case.now()));
    let when = "once its workload has ended, if it is to end now";
    let stop = next::stop_alloc(alloc, namespace, when);
    Finding::new(Cause::HeldByOthers, Actor::You, sentence).next(stop)
}

/// Whether only its alloc keeps the holder from giving the volume up.
pub fn keeps_itself(holder: &Case<'_>, finding: &Finding) -> bool {
    holder.is_granted() && finding.cause == Cause::HeldByOthers
}
