//! Claims without a running alloc, and volumes that are removed with their last claim (F1).

use std::time::Duration;

use berth_domain::volume::{Claim, State};
use berth_domain::{AllocId, VolumeKey};
use berth_service::projection::Subtree;

use super::{Plan, SweepView, UnwantedClaim, describe};
use crate::evidence;

enum ClaimVerdict {
    /// Wanted, or too young to decide.
    AtRest,
    Unwanted,
    Stuck,
}

impl SweepView<'_> {
    /// Judges every claim. The volumewatcher has the grace period to release a claim first.
    pub(super) fn claims(&self, grace: Duration, plan: &mut Plan) {
        let mut subtrees: Vec<(&VolumeKey, &Subtree)> = self.volumes.iter().collect();
        subtrees.sort_by_key(|(volume, _)| *volume);
        for (volume, subtree) in subtrees {
            if let Some(record) = subtree.first_unreadable() {
                plan.kept.push(format!("volume {volume}: {record}"));
                continue;
            }
            for (alloc, claim) in &subtree.volume.claims {
                match self.verdict(volume, alloc, claim, grace) {
                    ClaimVerdict::AtRest => {}
                    ClaimVerdict::Unwanted => plan.unwanted.push(UnwantedClaim {
                        volume: volume.clone(),
                        alloc: alloc.clone(),
                        epoch: claim.epoch,
                    }),
                    ClaimVerdict::Stuck => plan.kept.push(stuck(volume, alloc, claim)),
                }
            }
            let closing = subtree.volume.spec.as_ref().is_some_and(|spec| spec.closing.is_some());
            if closing && subtree.volume.claims.is_empty() {
                plan.closing.push(volume.clone());
            }
        }
    }

    fn verdict(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        claim: &Claim,
        grace: Duration,
    ) -> ClaimVerdict {
        match claim.state {
            State::Waiting | State::Publishing | State::Taken => {
                let alloc_record =
                    self.allocs.get(&volume.namespace, alloc).map(|(_, alloc)| alloc);
                let ended = alloc_record.map_or(claim.since, |alloc| alloc.since.max(claim.since));
                match evidence::of_alloc(alloc_record) {
                    Some(_) if self.overdue(ended, grace) => ClaimVerdict::Unwanted,
                    _ => ClaimVerdict::AtRest,
                }
            }
            State::Unpublishing | State::NodeDetached if self.overdue(claim.since, grace) => {
                ClaimVerdict::Stuck
            }
            State::Unpublishing | State::NodeDetached => ClaimVerdict::AtRest,
        }
    }
}

/// Describes a claim whose release takes long, and why it is not released yet.
fn stuck(volume: &VolumeKey, alloc: &AllocId, claim: &Claim) -> String {
    let Claim { state, since, node, progress, .. } = claim;
    let why = match (&progress.failure, &progress.attempt) {
        (Some(failure), _) => {
            format!("{} tries failed, the last with: {failure}", progress.tries)
        }
        (None, Some(attempt)) => {
            format!("{} by {} has not been answered yet", attempt.call, attempt.worker)
        }
        (None, None) => "nobody has taken it up yet: is berth-volumewatcher running?".to_owned(),
    };
    format!("{}: {state} on node {node} since {since}; {why}", describe(volume, alloc, claim.epoch))
}
