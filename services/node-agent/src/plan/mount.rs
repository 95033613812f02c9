//! From a grant to a mount.

use std::path::PathBuf;

use berth_domain::AllocId;
use thiserror::Error;

use super::{NodeCall, Scene};
use crate::journal::{Use, UseState};

/// A grant to act on.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// For whom.
    pub alloc: &'a AllocId,
    /// Which claim of the alloc.
    pub epoch: u64,
    /// Whether the plugin stages (`STAGE_UNSTAGE_VOLUME`).
    pub stages: bool,
}

/// Why a grant is no longer good (rule 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Void {
    /// The alloc was told to go.
    #[error("the alloc was told to detach at epoch {told}, and the grant is of epoch {granted}")]
    Detached {
        /// When it was told.
        told: u64,
        /// When it was granted.
        granted: u64,
    },
    /// The alloc uses the volume by a later claim.
    #[error(
        "the alloc uses the volume by its claim of epoch {used}; the grant is of epoch {granted}"
    )]
    Superseded {
        /// The later claim.
        used: u64,
        /// When it was granted.
        granted: u64,
    },
}

/// The calls that a grant leads to, in order; none when all is done already.
pub fn mount(scene: Scene<'_>, arrival: Arrival<'_>) -> Result<Vec<NodeCall>, Void> {
    let Arrival { alloc, epoch, stages } = arrival;
    if let Some(told) = scene.journal.detached.get(alloc).filter(|told| told.epoch >= epoch) {
        return Err(Void::Detached { told: told.epoch, granted: epoch });
    }
    let mut calls = Vec::new();
    match scene.journal.uses.get(alloc) {
        Some(entry) if entry.epoch > epoch => {
            return Err(Void::Superseded { used: entry.epoch, granted: epoch });
        }
        Some(entry) if entry.epoch < epoch => calls = undo(scene, alloc, entry),
        Some(entry) if is_there(scene, entry) => return Ok(calls),
        _ => {}
    }
    let staging = stages.then(|| scene.place.staging.clone());
    if let Some(staging) = staging.clone().filter(|staging| !is_staged(scene, alloc, staging)) {
        calls.push(NodeCall::Stage { staging });
    }
    calls.push(NodeCall::Publish { staging, target: scene.place.target.clone() });
    Ok(calls)
}

/// What an earlier claim of the alloc left here: its proof of release did not come from this node,
/// and the new claim may differ in all but the ids.
fn undo(scene: Scene<'_>, alloc: &AllocId, entry: &Use) -> Vec<NodeCall> {
    let mut calls = vec![NodeCall::Unpublish { target: entry.target.clone() }];
    if let Some(staging) = entry.staging.clone().filter(|_| !scene.has_others(alloc)) {
        calls.push(NodeCall::Unstage { staging });
    }
    calls
}

/// The journal and the mount table agree.
fn is_there(scene: Scene<'_>, entry: &Use) -> bool {
    entry.state == UseState::Published && scene.mounts.has(&entry.target)
}

/// Another alloc has it published from there now. A mount at the staging path proves nothing either
/// way: it may be half staged, and many plugins mount nothing there.
fn is_staged(scene: Scene<'_>, alloc: &AllocId, staging: &PathBuf) -> bool {
    let mut others = scene.journal.uses.iter().filter(|(other, _)| *other != alloc);
    others.any(|(_, entry)| entry.staging.as_ref() == Some(staging) && is_there(scene, entry))
}
