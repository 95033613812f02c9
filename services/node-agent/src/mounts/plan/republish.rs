//! Plans the calls that replace dead mounts by working ones at the same paths.
//!
//! **Promises** to leave a staging alone that an alloc outside of the request may use.

use std::path::PathBuf;

use berth_domain::AllocId;
use thiserror::Error;

use super::{NodeCall, VolumeOnNode};

/// The allocs whose mounts are replaced.
#[derive(Debug, Clone, Copy)]
pub struct RepublishInput<'a> {
    /// Each alloc with the epoch of its claim and its target path.
    pub allocs: &'a [(AllocId, u64, PathBuf)],
    /// Whether the plugin stages (`STAGE_UNSTAGE_VOLUME`).
    pub stages: bool,
}

/// Why a mount is not replaced.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RepublishRefusal {
    #[error("alloc {alloc} does not use the volume here by its claim of epoch {epoch} any more")]
    Gone { alloc: AllocId, epoch: u64 },
    #[error("alloc {alloc} was told to detach, so its mount is taken down and not brought back")]
    Leaving { alloc: AllocId },
}

/// The calls that replace mounts. The agent makes all of `down` before the first of `up`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepublishCalls {
    pub down: Vec<NodeCall>,
    /// The calls that publish: one list per alloc, in the order of `allocs`. The first also stages.
    pub up: Vec<Vec<NodeCall>>,
}

impl RepublishCalls {
    /// Whether the volume is staged again, with the current options.
    pub fn restages(&self) -> bool {
        self.up.iter().flatten().any(|call| matches!(call, NodeCall::Stage { .. }))
    }
}

/// The calls that replace mounts. The volume is staged again if no other alloc uses it. Otherwise
/// its staging stays, even if it is dead.
pub fn plan_republish(
    scene: VolumeOnNode<'_>,
    going: RepublishInput<'_>,
) -> Result<RepublishCalls, RepublishRefusal> {
    let RepublishInput { allocs, stages } = going;
    let mut calls = RepublishCalls::default();
    for (alloc, epoch, _) in allocs {
        let entry = scene.journal.uses.get(alloc).filter(|entry| entry.epoch == *epoch);
        let Some(entry) = entry else {
            return Err(RepublishRefusal::Gone { alloc: alloc.clone(), epoch: *epoch });
        };
        let detach = scene.journal.detached.get(alloc);
        if detach.is_some_and(|detach| detach.epoch >= *epoch) {
            return Err(RepublishRefusal::Leaving { alloc: alloc.clone() });
        }
        calls.down.push(NodeCall::Unpublish { target: entry.target.clone() });
    }
    let staging = stages.then(|| scene.place.staging.clone());
    let is_alone = !is_used_by_others(scene, allocs);
    if let Some(staging) = staging.clone().filter(|_| is_alone) {
        calls.down.push(NodeCall::Unstage { staging });
    }
    for (position, (.., target)) in allocs.iter().enumerate() {
        let mut up = Vec::new();
        if let Some(staging) = staging.clone().filter(|_| is_alone && position == 0) {
            up.push(NodeCall::Stage { staging });
        }
        up.push(NodeCall::Publish { staging: staging.clone(), target: target.clone() });
        calls.up.push(up);
    }
    Ok(calls)
}

/// Whether an alloc outside of this list may use the volume on this node.
fn is_used_by_others(scene: VolumeOnNode<'_>, allocs: &[(AllocId, u64, PathBuf)]) -> bool {
    let is_listed = |alloc: &AllocId| allocs.iter().any(|(listed, ..)| listed == alloc);
    let journalled = scene.journal.uses.keys().any(|alloc| !is_listed(alloc));
    let mut mounted = scene.mounts.beneath(&scene.place.volume_dir);
    journalled
        || mounted.any(|point| {
            !point.starts_with(&scene.place.staging)
                && !allocs.iter().any(|(.., target)| point.starts_with(target))
        })
}
