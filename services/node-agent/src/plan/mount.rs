//! From a grant to a mount.

use std::path::{Path, PathBuf};

use berth_domain::AllocId;
use berth_domain::access::AttachmentMode;
use berth_domain::volume::MountOptions;
use thiserror::Error;

use super::{NodeCall, VolumeOnNode};
use crate::journal::{JournalledUse, UseState};

/// A grant to act on.
#[derive(Debug, Clone, Copy)]
pub struct MountInput<'a> {
    pub alloc: &'a AllocId,
    pub epoch: u64,
    /// Whether the plugin stages (`STAGE_UNSTAGE_VOLUME`).
    pub stages: bool,
    pub attachment: AttachmentMode,
    pub options: &'a MountOptions,
}

/// Why a grant leads to no call: it is no longer good (rule 10), or does not fit what is here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MountRefusal {
    #[error("the alloc was told to detach at epoch {told}, and the grant is of epoch {granted}")]
    Detached { told: u64, granted: u64 },
    #[error(
        "the alloc uses the volume by its claim of epoch {used}; the grant is of epoch {granted}"
    )]
    Superseded { used: u64, granted: u64 },
    /// Another alloc has it from the same staging, and a staging is made with one set of options:
    /// whether a plugin heeds others when it publishes, CSI leaves to the plugin.
    #[error(
        "alloc {other} has the volume on this node with other mount options (fs_type, flags or \
         group) or another attachment, and what is staged there can have one only"
    )]
    Differs { other: AllocId },
}

/// The calls that a grant leads to, in order; none when all is done already.
pub fn plan_mount(
    scene: VolumeOnNode<'_>,
    arrival: MountInput<'_>,
) -> Result<Vec<NodeCall>, MountRefusal> {
    let MountInput { alloc, epoch, stages, .. } = arrival;
    if let Some(detach) = scene.journal.detached.get(alloc).filter(|detach| detach.epoch >= epoch) {
        return Err(MountRefusal::Detached { told: detach.epoch, granted: epoch });
    }
    let mut calls = Vec::new();
    match scene.journal.uses.get(alloc) {
        Some(entry) if entry.epoch > epoch => {
            return Err(MountRefusal::Superseded { used: entry.epoch, granted: epoch });
        }
        Some(entry) if entry.epoch < epoch => calls = undo_earlier(scene, alloc, entry),
        Some(entry) if is_there(scene, entry) => return Ok(calls),
        _ => {}
    }
    let staging = stages.then(|| scene.place.staging.clone());
    if let Some(other) =
        staging.as_ref().and_then(|staging| find_differing(scene, arrival, staging))
    {
        return Err(MountRefusal::Differs { other: other.clone() });
    }
    if let Some(staging) = staging.clone().filter(|staging| !is_staged(scene, alloc, staging)) {
        calls.push(NodeCall::Stage { staging });
    }
    calls.push(NodeCall::Publish { staging, target: scene.place.target.clone() });
    Ok(calls)
}

/// What an earlier claim of the alloc left here: its proof of release did not come from this node,
/// and the new claim may differ in all but the ids.
fn undo_earlier(scene: VolumeOnNode<'_>, alloc: &AllocId, entry: &JournalledUse) -> Vec<NodeCall> {
    let mut calls = vec![NodeCall::Unpublish { target: entry.target.clone() }];
    if let Some(staging) = entry.staging.clone().filter(|_| !scene.has_others(alloc)) {
        calls.push(NodeCall::Unstage { staging });
    }
    calls
}

/// The journal and the mount table agree.
fn is_there(scene: VolumeOnNode<'_>, entry: &JournalledUse) -> bool {
    entry.state == UseState::Published && scene.mounts.has(&entry.target)
}

/// Another alloc that has it from there, or may have, as the one that arrives cannot.
fn find_differing<'a>(
    scene: VolumeOnNode<'a>,
    arrival: MountInput<'_>,
    staging: &Path,
) -> Option<&'a AllocId> {
    let MountInput { alloc, attachment, options, .. } = arrival;
    let differs = |entry: &JournalledUse| {
        // A block device is used without any.
        let is_mount = attachment == AttachmentMode::FileSystem;
        let others = entry.options.as_ref().is_some_and(|kept| !kept.are_same(options));
        entry.attachment != attachment || (is_mount && others)
    };
    let others = scene.journal.uses.iter().filter(|(other, _)| *other != alloc);
    let mut sharing = others.filter(|(_, entry)| entry.staging.as_deref() == Some(staging));
    sharing.find(|(_, entry)| differs(entry)).map(|(other, _)| other)
}

/// Another alloc has it published from there now. A mount at the staging path proves nothing either
/// way: it may be half staged, and many plugins mount nothing there.
fn is_staged(scene: VolumeOnNode<'_>, alloc: &AllocId, staging: &PathBuf) -> bool {
    let mut others = scene.journal.uses.iter().filter(|(other, _)| *other != alloc);
    others.any(|(_, entry)| entry.staging.as_ref() == Some(staging) && is_there(scene, entry))
}
