//! Allocs: one placed run of a workload on one node, and the volumes it asks for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::{AccessMode, AttachmentMode, Mode};
use crate::volume::MountOptions;
use crate::{NodeId, Timestamp, VolumeId};

/// Where an alloc's run has got to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllocState {
    /// Placed; its volumes are being made ready, or it runs.
    Live,
    /// Ended by itself.
    Complete,
    /// Ended with an error, or its runner vanished.
    Failed,
    /// Ended because somebody said so.
    Stopped,
}

impl AllocState {
    /// Whether its workload has ended, so that its claims are no longer wanted.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Live)
    }

    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for AllocState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An alloc, as its scheduler or runner registered it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// Where its run has got to.
    pub state: AllocState,
    /// The node it is placed on.
    pub node: NodeId,
    /// The volumes it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeRequest>,
    /// Since when it is in this state.
    pub since: Timestamp,
    /// Why it ended, or what it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A volume that an alloc asks for (E8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRequest {
    /// The volume's id in the alloc's namespace.
    pub source: VolumeId,
    /// Whether the workload only reads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// How it is to be shared; with `attachment`, one of the volume's capabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessMode>,
    /// What it is to the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<AttachmentMode>,
    /// Replaces the volume's own options, field by field (A11).
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
}

impl VolumeRequest {
    /// What the claim for it may do.
    pub fn mode(&self) -> Mode {
        if self.read_only { Mode::Read } else { Mode::Write }
    }
}

/// An alloc registered again must ask for the same; what differs, by name.
pub fn differing_fields(current: &Alloc, again: &Alloc) -> Vec<&'static str> {
    [("node", current.node != again.node), ("volumes", current.volumes != again.volumes)]
        .into_iter()
        .filter_map(|(field, differs)| differs.then_some(field))
        .collect()
}
