//! Plans the calls that stage and publish a volume for a grant.
//!
//! **Promises** to refuse a grant that a detach or a later claim of the alloc has overtaken, and a
//! grant that cannot share what is staged.

use std::path::{Path, PathBuf};

use berth_domain::AllocId;
use berth_domain::access::AttachmentMode;
use berth_domain::volume::MountOptions;
use thiserror::Error;

use super::{NodeCall, VolumeOnNode};
use crate::journal::{JournalledUse, UseState};

/// A grant that the agent acts on.
#[derive(Debug, Clone, Copy)]
pub struct MountInput<'a> {
    pub alloc: &'a AllocId,
    pub epoch: u64,
    /// Whether the plugin stages (`STAGE_UNSTAGE_VOLUME`).
    pub stages: bool,
    pub attachment: AttachmentMode,
    pub options: &'a MountOptions,
}

/// Why a grant leads to no call: it is outdated (rule 10), or it conflicts with another use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MountRefusal {
    #[error("the alloc was told to detach at epoch {told}, and the grant is of epoch {granted}")]
    Detached { told: u64, granted: u64 },
    #[error(
        "the alloc uses the volume by its claim of epoch {used}; the grant is of epoch {granted}"
    )]
    Superseded { used: u64, granted: u64 },
    /// Another alloc uses the same staging with other options. A volume is staged with one set of
    /// options. CSI does not say whether a plugin heeds other options when it publishes.
    #[error(
        "alloc {other} has the volume on this node with other mount options (fs_type, flags or \
         group) or another attachment, and what is staged there can have one only"
    )]
    Differs { other: AllocId },
}

/// The calls for a grant, in order. Empty if the volume is already published.
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
        Some(entry) if entry.epoch < epoch => {
            calls = calls_to_undo_earlier_claim(scene, alloc, entry);
        }
        Some(entry) if is_published(scene, entry) => return Ok(calls),
        _ => {}
    }
    let staging = stages.then(|| scene.place.staging.clone());
    if let Some(other) =
        staging.as_ref().and_then(|staging| find_alloc_with_other_options(scene, arrival, staging))
    {
        return Err(MountRefusal::Differs { other: other.clone() });
    }
    if let Some(staging) = staging.clone().filter(|staging| !is_staged(scene, alloc, staging)) {
        calls.push(NodeCall::Stage { staging });
    }
    calls.push(NodeCall::Publish { staging, target: scene.place.target.clone() });
    Ok(calls)
}

/// The calls that undo an earlier claim of the same alloc. Its proof of release did not come from
/// this node, so its mounts may be here. The new claim may differ in everything but the ids.
fn calls_to_undo_earlier_claim(
    scene: VolumeOnNode<'_>,
    alloc: &AllocId,
    entry: &JournalledUse,
) -> Vec<NodeCall> {
    let mut calls = vec![NodeCall::Unpublish { target: entry.target.clone() }];
    if let Some(staging) = entry.staging.clone().filter(|_| !scene.has_other_uses(alloc)) {
        calls.push(NodeCall::Unstage { staging });
    }
    calls
}

/// Whether the journal and the mount table both say that the use is published.
fn is_published(scene: VolumeOnNode<'_>, entry: &JournalledUse) -> bool {
    entry.state == UseState::Published && scene.mounts.has(&entry.target)
}

/// Another alloc that uses this staging with options or an attachment that the grant does not have.
fn find_alloc_with_other_options<'a>(
    scene: VolumeOnNode<'a>,
    arrival: MountInput<'_>,
    staging: &Path,
) -> Option<&'a AllocId> {
    let MountInput { alloc, attachment, options, .. } = arrival;
    let differs = |entry: &JournalledUse| {
        // A block device has no mount options.
        let is_mount = attachment == AttachmentMode::FileSystem;
        let others = entry.options.as_ref().is_some_and(|kept| !kept.matches(options));
        entry.attachment != attachment || (is_mount && others)
    };
    let others = scene.journal.uses.iter().filter(|(other, _)| *other != alloc);
    let mut sharing = others.filter(|(_, entry)| entry.staging.as_deref() == Some(staging));
    sharing.find(|(_, entry)| differs(entry)).map(|(other, _)| other)
}

/// Whether another alloc has the volume published from this staging. A mount at the staging path
/// proves nothing: staging may have failed midway, and many plugins mount nothing there.
fn is_staged(scene: VolumeOnNode<'_>, alloc: &AllocId, staging: &PathBuf) -> bool {
    let mut others = scene.journal.uses.iter().filter(|(other, _)| *other != alloc);
    others.any(|(_, entry)| entry.staging.as_ref() == Some(staging) && is_published(scene, entry))
}
