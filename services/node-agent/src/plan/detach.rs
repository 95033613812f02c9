//! From a use, known or not, to nothing.

use berth_domain::AllocId;
use thiserror::Error;

use super::{NodeCall, VolumeOnNode};

/// Who is to go.
#[derive(Debug, Clone, Copy)]
pub struct DetachInput<'a> {
    pub alloc: &'a AllocId,
    pub epoch: u64,
    /// Whether the plugin stages (`STAGE_UNSTAGE_VOLUME`); counts when the journal does not say.
    pub stages: bool,
}

/// The alloc is here by a later claim, so that the one it is to leave by is gone already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the alloc uses the volume by its claim of epoch {used}; it was told to go at {told}")]
pub struct NewerClaim {
    pub used: u64,
    pub told: u64,
}

/// The calls that take a use down, in order; none when it is known that nothing is left.
///
/// A use that the journal does not know is taken down too: the claim says that it may be there, the
/// paths follow from the ids, and the calls are idempotent.
pub fn plan_detach(
    scene: VolumeOnNode<'_>,
    departure: DetachInput<'_>,
) -> Result<Vec<NodeCall>, NewerClaim> {
    let DetachInput { alloc, epoch, stages } = departure;
    let entry = scene.journal.uses.get(alloc);
    if let Some(entry) = entry.filter(|entry| entry.epoch > epoch) {
        return Err(NewerClaim { used: entry.epoch, told: epoch });
    }
    let (target, staging) = match entry {
        Some(entry) => (entry.target.clone(), entry.staging.clone()),
        None => (scene.place.target.clone(), stages.then(|| scene.place.staging.clone())),
    };
    let done =
        scene.journal.detached.get(alloc).is_some_and(|known| known.done && known.epoch >= epoch);
    if done && entry.is_none() && !scene.mounts.has(&target) {
        return Ok(Vec::new());
    }
    let mut calls = vec![NodeCall::Unpublish { target }];
    if let Some(staging) = staging.filter(|_| !scene.has_others(alloc)) {
        calls.push(NodeCall::Unstage { staging });
    }
    Ok(calls)
}
