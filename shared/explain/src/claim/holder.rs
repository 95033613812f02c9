//! Explains why a claim waits: what keeps the holders of the volume from giving it up.
//!
//! **Promises** that it names a holder that must give the volume up, or is kept from it. It names a
//! holder that the waiter could share the volume with, or a release that continues by itself, only
//! if no other holder is left.

use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_contract::message::storage::StorageWait;
use berth_domain::access::{AccessMode, Mode, admit};
use berth_domain::volume::State;
use berth_domain::{AllocId, NodeId};

use super::case::Case;
use super::rules::find_own;
use super::{controller, node};
use crate::cause::{Actor, Cause};
use crate::facts::{Facts, Holders};
use crate::finding::Finding;
use crate::span::ago;
use crate::{next, storage};

/// An alloc that waits for a volume.
pub struct Waiter<'a> {
    pub alloc: &'a AllocId,
    pub node: &'a NodeId,
    pub mode: Mode,
    /// What it waits for, in words: the evidence.
    pub waits_for: &'a str,
}

/// Explains a waiting claim: by the holder that it conflicts with, by what it or the first in line
/// lacks, or by any holder.
pub fn turn(case: &Case<'_>) -> Option<Finding> {
    let ClaimStatus { state, wait, waits_for, alloc, node, mode, .. } = case.claim;
    // The turn of an alloc that has ended does not come.
    if *state != State::Waiting || *wait == Some(ClaimWait::Release) {
        return None;
    }
    let waits_for = waits_for.as_deref().unwrap_or("its turn");
    let waiter = Waiter { alloc, node, mode: *mode, waits_for };
    let (access, claims) = match case.volume() {
        Some(volume) => (volume.in_use.map(|used| used.access), &volume.claims[..]),
        None => match case.facts.holders.get(&case.key()) {
            Some(Holders { access, claims }) => (*access, &claims[..]),
            None => (None, &[][..]),
        },
    };
    let facts = case.facts;
    let explain_to_waiter = |found| explain_to_waiter(facts, found, &waiter);
    let finding = find_conflicting(facts, access, claims, (node, *mode))
        .map(explain_to_waiter)
        .or_else(|| find_lack(case, first_in_line(claims)))
        .or_else(|| find_holder(facts, claims).map(explain_to_waiter));
    Some(finding.unwrap_or_else(|| {
        let sentence = format!("it waits for {waits_for}");
        Finding::new(Cause::UnderWay, Actor::NOBODY, sentence)
    }))
}

/// The claim whose turn is next.
fn first_in_line(claims: &[ClaimStatus]) -> Option<&ClaimStatus> {
    let waiting = claims.iter().filter(|claim| claim.state == State::Waiting);
    waiting.min_by_key(|claim| claim.epoch)
}

/// What a claim lacks that conflicts with no holder, or else what the first in line lacks.
fn find_lack(case: &Case<'_>, first: Option<&ClaimStatus>) -> Option<Finding> {
    let alloc = &case.claim.alloc;
    find_own_lack(case).or_else(|| {
        let first = Case { claim: first.filter(|first| first.alloc != *alloc)?, ..*case };
        let finding = find_own(&first).or_else(|| find_own_lack(&first))?;
        let first_alloc = &first.claim.alloc;
        let sentence = format!("{alloc} is behind {first_alloc} in line: {}", finding.sentence);
        Some(Finding { sentence, ..finding })
    })
}

/// What keeps a claim from its grant although its turn has come.
fn find_own_lack(case: &Case<'_>) -> Option<Finding> {
    node::refuses_claims(case).or_else(|| controller::is_lacking(case)).or_else(|| at_storage(case))
}

/// A call at the storage that blocks every grant, or an expansion that is first in line.
fn at_storage(case: &Case<'_>) -> Option<Finding> {
    let volume = case.volume()?;
    let operation = volume.storage.as_ref()?.operation.as_ref()?;
    let is_in_the_way = operation.calling || operation.waits_for == Some(StorageWait::VolumeFree);
    storage::find_change(case.facts, volume).filter(|_| is_in_the_way)
}

/// The holder that keeps the volume from a use on this node in this mode, and why; none if no claim
/// holds the volume. If no holder conflicts, the use needs another access mode, or the plugin has
/// no room for another node: then any holder counts.
pub fn find_in_the_way<'a>(
    facts: &'a Facts,
    access: Option<AccessMode>,
    claims: &'a [ClaimStatus],
    usage: (&NodeId, Mode),
) -> Option<(Case<'a>, Finding)> {
    find_conflicting(facts, access, claims, usage).or_else(|| find_holder(facts, claims))
}

/// The holder that conflicts with this use, or else with the first in line, which is granted first.
fn find_conflicting<'a>(
    facts: &'a Facts,
    access: Option<AccessMode>,
    claims: &'a [ClaimStatus],
    (node, mode): (&NodeId, Mode),
) -> Option<(Case<'a>, Finding)> {
    let conflicting_with = |node: &NodeId, mode: Mode| {
        let conflicts = |holder: &&ClaimStatus| {
            access.is_none_or(|access| {
                admit(access, mode, &node, [(&holder.node, holder.mode)]).is_err()
            })
        };
        find_holder(facts, claims.iter().filter(conflicts))
    };
    conflicting_with(node, mode).or_else(|| {
        first_in_line(claims).and_then(|first| conflicting_with(&first.node, first.mode))
    })
}

/// What keeps the holder of the volume, for an alloc that waits for it; none if no claim holds the
/// volume.
pub fn behind_holder(
    facts: &Facts,
    access: Option<AccessMode>,
    claims: &[ClaimStatus],
    waiter: &Waiter<'_>,
) -> Option<Finding> {
    let found = find_in_the_way(facts, access, claims, (waiter.node, waiter.mode))?;
    Some(explain_to_waiter(facts, found, waiter))
}

/// Words a holder's finding for the waiter.
fn explain_to_waiter(
    facts: &Facts,
    (holder, mut finding): (Case<'_>, Finding),
    waiter: &Waiter<'_>,
) -> Finding {
    let ClaimStatus { alloc, node, state, .. } = holder.claim;
    let Waiter { alloc: waiter, waits_for, .. } = waiter;
    let since = ago(holder.claim.since, facts.now);
    if keeps_itself(&holder, &finding) {
        let sentence = format!(
            "{alloc} on node {node} has held the volume for {since}; {waiter} is granted it in its \
             turn"
        );
        let evidence = format!("{waiter} waits for {waits_for}");
        return Finding { sentence, who: Actor::NOBODY, ..finding }.shown_by([evidence]);
    }
    finding.sentence = format!("{waiter} waits for {alloc}: {}", finding.sentence);
    let evidence = format!("{alloc} holds the volume on {node}: {state} for {since}");
    finding.evidence.insert(0, evidence);
    finding
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
