//! Decides which node calls the agent makes for a volume. [`crate::mounts`] makes them.
//!
//! **Owns** the order of stage, publish, unpublish and unstage on this node. It also decides which
//! allocs share a staging (rules 10 and 11 of the claim protocol; CSI 1.13, volume lifecycle).
//!
//! **Promises**
//! - that a grant leads to no call once its alloc was detached at the same or a later epoch;
//! - that a volume is unstaged with its last use and not before;
//! - that a use by another alloc is found in the journal or in the mount table. A use whose state
//!   is unknown counts as a use.
//!
//! **Never** reads a clock, a disk or the mount table. The caller passes in all that is needed.

mod detach;
mod mount;
mod republish;

use std::path::PathBuf;

use berth_domain::AllocId;

use crate::host::paths::VolumePaths;
use crate::journal::VolumeUses;
use berth_host::MountTable;

pub use detach::{DetachInput, plan_detach};
pub use mount::{MountInput, MountRefusal, plan_mount};
pub use republish::{RepublishInput, plan_republish};

/// One call to a plugin's node service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeCall {
    /// `NodeStageVolume`.
    Stage { staging: PathBuf },
    /// `NodePublishVolume`.
    Publish {
        /// `staging_target_path`. `None` if the plugin does not stage.
        staging: Option<PathBuf>,
        target: PathBuf,
    },
    /// `NodeUnpublishVolume`.
    Unpublish { target: PathBuf },
    /// `NodeUnstageVolume`.
    Unstage { staging: PathBuf },
}

/// What the journal and the mount table say of a volume on this node.
#[derive(Debug, Clone, Copy)]
pub struct VolumeOnNode<'a> {
    pub journal: &'a VolumeUses,
    pub mounts: &'a MountTable,
    /// The paths of this alloc's use. They follow from the ids.
    pub place: &'a VolumePaths,
}

impl VolumeOnNode<'_> {
    /// Whether another alloc may use the volume on this node. A journal entry of any state counts,
    /// and so does a mount below the volume's directory that is not this alloc's.
    pub(super) fn has_other_uses(&self, alloc: &AllocId) -> bool {
        let journalled = self.journal.uses.keys().any(|other| other != alloc);
        let mut mounted = self.mounts.beneath(&self.place.volume_dir);
        journalled
            || mounted.any(|point| {
                !point.starts_with(&self.place.staging) && !point.starts_with(&self.place.alloc_dir)
            })
    }
}

#[cfg(test)]
mod tests;
