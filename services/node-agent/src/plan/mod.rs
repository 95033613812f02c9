//! Which plugin calls to make: decided here, made elsewhere.
//!
//! **Owns** the order of stage, publish, unpublish and unstage on this node, and who shares a
//! staging (rules 10 and 11 of the claim protocol; CSI 1.12, volume lifecycle).
//!
//! **Promises** that a grant whose alloc was told to go makes no call, that a volume is unstaged
//! with its last use and not before, that another alloc's use is seen by value in the journal and
//! the mount table, and that unknown counts as in use.
//!
//! **Never** reads a clock, a disk or the mount table: all it needs is passed in.

mod detach;
mod mount;
mod republish;

use std::path::PathBuf;

use berth_domain::AllocId;

use crate::journal::VolumeUses;
use crate::paths::VolumePaths;
use berth_host::MountTable;

pub use detach::{DetachInput, plan_detach};
pub use mount::{MountInput, MountRefusal, plan_mount};
pub use republish::{RepublishInput, plan_republish};

/// One plugin call of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeCall {
    /// `NodeStageVolume`.
    Stage { staging: PathBuf },
    /// `NodePublishVolume`.
    Publish {
        /// `staging_target_path`; none when the plugin does not stage.
        staging: Option<PathBuf>,
        target: PathBuf,
    },
    /// `NodeUnpublishVolume`.
    Unpublish { target: PathBuf },
    /// `NodeUnstageVolume`.
    Unstage { staging: PathBuf },
}

/// What is known of a volume on this node.
#[derive(Debug, Clone, Copy)]
pub struct VolumeOnNode<'a> {
    pub journal: &'a VolumeUses,
    pub mounts: &'a MountTable,
    /// Where this alloc's use of the volume is, by the ids.
    pub place: &'a VolumePaths,
}

impl VolumeOnNode<'_> {
    /// Whether another alloc uses the volume here, or may: one that the journal names, whatever its
    /// state, or a mount where another's target would be.
    fn has_others(&self, alloc: &AllocId) -> bool {
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
