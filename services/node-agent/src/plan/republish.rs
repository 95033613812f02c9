//! From dead mounts to living ones, at the same paths.

use std::path::PathBuf;

use berth_domain::AllocId;
use thiserror::Error;

use super::{NodeCall, VolumeOnNode};

/// Whose mounts are to be brought back.
#[derive(Debug, Clone, Copy)]
pub struct RepublishInput<'a> {
    /// For whom, by which claim, and where each is published.
    pub allocs: &'a [(AllocId, u64, PathBuf)],
    /// Whether the plugin stages (`STAGE_UNSTAGE_VOLUME`).
    pub stages: bool,
}

/// Why a mount is not brought back.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RepublishRefusal {
    #[error("alloc {alloc} does not use the volume here by its claim of epoch {epoch} any more")]
    Gone { alloc: AllocId, epoch: u64 },
    #[error("alloc {alloc} was told to detach, so its mount is taken down and not brought back")]
    Leaving { alloc: AllocId },
}

/// What brings mounts back: first all of them are taken down, then each is published.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepublishCalls {
    pub down: Vec<NodeCall>,
    /// What publishes each, in the order of the allocs; the first also stages.
    pub up: Vec<Vec<NodeCall>>,
}

impl RepublishCalls {
    /// Whether the staging is made anew, with the options of today.
    pub fn restages(&self) -> bool {
        self.up.iter().flatten().any(|call| matches!(call, NodeCall::Stage { .. }))
    }
}

/// The calls that bring mounts back. The staging is made anew when nobody else uses it; where
/// somebody does, it is left alone, whatever it is worth.
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
    let alone = !has_strangers(scene, allocs);
    if let Some(staging) = staging.clone().filter(|_| alone) {
        calls.down.push(NodeCall::Unstage { staging });
    }
    for (at, (.., target)) in allocs.iter().enumerate() {
        let mut up = Vec::new();
        if let Some(staging) = staging.clone().filter(|_| alone && at == 0) {
            up.push(NodeCall::Stage { staging });
        }
        up.push(NodeCall::Publish { staging: staging.clone(), target: target.clone() });
        calls.up.push(up);
    }
    Ok(calls)
}

/// Whether somebody uses the volume here, or may, who is not among these.
fn has_strangers(scene: VolumeOnNode<'_>, allocs: &[(AllocId, u64, PathBuf)]) -> bool {
    let known = |alloc: &AllocId| allocs.iter().any(|(one, ..)| one == alloc);
    let journalled = scene.journal.uses.keys().any(|alloc| !known(alloc));
    let mut mounted = scene.mounts.beneath(&scene.place.volume_dir);
    journalled
        || mounted.any(|point| {
            !point.starts_with(&scene.place.staging)
                && !allocs.iter().any(|(.., target)| point.starts_with(target))
        })
}
