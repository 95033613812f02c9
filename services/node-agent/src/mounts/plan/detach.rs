//! Plans the calls that unpublish and unstage a volume for an alloc.
//!
//! **Promises** to plan them for a use that the journal does not name, too, and to refuse a detach
//! that is older than the alloc's claim.

use berth_domain::AllocId;
use thiserror::Error;

use super::{NodeCall, VolumeOnNode};

/// The alloc to detach.
#[derive(Debug, Clone, Copy)]
pub struct DetachInput<'a> {
    pub alloc: &'a AllocId,
    pub epoch: u64,
    /// Whether the plugin stages (`STAGE_UNSTAGE_VOLUME`). Read only if the journal has no entry.
    pub stages: bool,
}

/// The alloc uses the volume by a later claim. The claim of the detach has ended already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the alloc uses the volume by its claim of epoch {used}; it was told to go at {told}")]
pub struct NewerClaim {
    pub used: u64,
    pub told: u64,
}

/// The calls that undo a use, in order. Empty if nothing is left to undo.
///
/// A use without a journal entry is undone, too: the claim says that it may exist. Its paths follow
/// from the ids, and the calls are idempotent.
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
    if let Some(staging) = staging.filter(|_| !scene.has_other_uses(alloc)) {
        calls.push(NodeCall::Unstage { staging });
    }
    Ok(calls)
}
