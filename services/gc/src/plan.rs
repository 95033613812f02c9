//! What a sweep would do, from what the mirrors say; pure.
//!
//! **Promises** an order (by volume, then alloc), and that a volume with a record that cannot be
//! read is named and left alone.

use std::time::Duration;

use berth_domain::volume::{Claim, State};
use berth_domain::{AllocId, Timestamp, VolumeKey};
use berth_service::projection::{Allocs, Subtree, Volumes};

use crate::evidence;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Claims that nobody seems to want; the evidence is still to be read.
    pub unwanted: Vec<Unwanted>,
    /// Volumes that are to go, and have no claim left.
    pub closing: Vec<VolumeKey>,
    /// What should go and cannot yet, in words.
    pub kept: Vec<String>,
}

/// A claim that nobody seems to want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwanted {
    /// On which volume.
    pub volume: VolumeKey,
    /// Whose.
    pub alloc: AllocId,
    /// Which claim of the alloc's.
    pub epoch: u64,
}

/// Looks through everything. What is younger than the grace is somebody else's to see first.
pub fn plan(volumes: &Volumes, allocs: &Allocs, now: Timestamp, grace: Duration) -> Plan {
    let mut all: Vec<(&VolumeKey, &Subtree)> = volumes.iter().collect();
    all.sort_by_key(|(volume, _)| *volume);
    let mut plan = Plan::default();
    for (volume, subtree) in all {
        if let Some((key, why)) = subtree.unreadable.iter().next() {
            plan.kept.push(format!("volume {volume}: its record {key} cannot be read: {why}"));
            continue;
        }
        for (alloc, claim) in &subtree.volume.claims {
            match verdict(volume, alloc, claim, allocs, now, grace) {
                Verdict::AtRest => {}
                Verdict::Unwanted => plan.unwanted.push(Unwanted {
                    volume: volume.clone(),
                    alloc: alloc.clone(),
                    epoch: claim.epoch,
                }),
                Verdict::Stuck => plan.kept.push(stuck(volume, alloc, claim)),
            }
        }
        let closing = subtree.volume.spec.as_ref().is_some_and(|spec| spec.closing.is_some());
        if closing && subtree.volume.claims.is_empty() {
            plan.closing.push(volume.clone());
        }
    }
    plan
}

enum Verdict {
    /// Wanted, or too young to say.
    AtRest,
    Unwanted,
    Stuck,
}

fn verdict(
    volume: &VolumeKey,
    alloc: &AllocId,
    claim: &Claim,
    allocs: &Allocs,
    now: Timestamp,
    grace: Duration,
) -> Verdict {
    let overdue = |since: Timestamp| since.after(grace) <= now;
    match claim.state {
        State::Waiting | State::Publishing | State::Taken => {
            let known = allocs.get(&volume.namespace, alloc).map(|(_, alloc)| alloc);
            let ended = known.map_or(claim.since, |alloc| alloc.since.max(claim.since));
            match evidence::of_alloc(known) {
                Some(_) if overdue(ended) => Verdict::Unwanted,
                _ => Verdict::AtRest,
            }
        }
        State::Unpublishing | State::NodeDetached if overdue(claim.since) => Verdict::Stuck,
        State::Unpublishing | State::NodeDetached => Verdict::AtRest,
    }
}

/// A claim that is being released for long, and why it is not released yet.
fn stuck(volume: &VolumeKey, alloc: &AllocId, claim: &Claim) -> String {
    let Claim { state, since, node, tries, .. } = claim;
    let why = match (&claim.error, &claim.attempt) {
        (Some(error), _) => format!("{tries} tries failed, the last with: {error}"),
        (None, Some(attempt)) => {
            format!("{} by {} has not been answered yet", attempt.call, attempt.worker)
        }
        (None, None) => "nobody has taken it up yet: is berth-volumewatcher running?".to_owned(),
    };
    format!("{}: {state} on node {node} since {since}; {why}", describe(volume, alloc, claim.epoch))
}

/// A claim as people know it.
pub fn describe(volume: &VolumeKey, alloc: &AllocId, epoch: u64) -> String {
    format!("claim of alloc {alloc} on volume {volume} (epoch {epoch})")
}

#[cfg(test)]
mod tests;
