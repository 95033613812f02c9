//! Allocs: one placed run of a workload on one node, and the volumes it asks for.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::access::{AccessMode, AttachmentMode, Mode};
use crate::id::IdFault;
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
    /// Which of several alike it is, from 0: what `per_alloc` volumes are told apart by (A13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The volumes it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeRequest>,
    /// Since when it is in this state.
    pub since: Timestamp,
    /// Why it ended, or what it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What serves a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeType {
    /// A CSI plugin; there is nothing else so far.
    #[default]
    Csi,
}

/// A volume that an alloc asks for (E8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRequest {
    /// What the workload calls it; the source when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// What serves it.
    #[serde(rename = "type", default)]
    pub kind: VolumeType,
    /// The volume's id in the alloc's namespace; with `per_alloc`, what it begins with.
    pub source: VolumeId,
    /// Whether each alloc has a volume of its own: `data[0]` for source `data` and index 0 (A13).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_alloc: bool,
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
    /// A request for this volume, to write, as the volume itself says.
    pub fn of(source: VolumeId) -> Self {
        Self {
            alias: None,
            kind: VolumeType::Csi,
            source,
            per_alloc: false,
            read_only: false,
            access: None,
            attachment: None,
            mount: MountOptions::default(),
        }
    }

    /// What the workload calls the volume.
    pub fn name(&self) -> &str {
        self.alias.as_deref().unwrap_or(self.source.as_str())
    }

    /// What the claim for it may do.
    pub fn mode(&self) -> Mode {
        if self.read_only { Mode::Read } else { Mode::Write }
    }

    /// The volume that is meant for the alloc of this index.
    pub fn volume(&self, index: Option<u32>) -> Result<VolumeId, RequestFault> {
        if !self.per_alloc {
            return Ok(self.source.clone());
        }
        let index = index.ok_or(RequestFault::NoIndex)?;
        VolumeId::new(format!("{}[{index}]", self.source)).map_err(RequestFault::Id)
    }
}

/// Why a request names no volume.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestFault {
    /// Each alloc has its own volume, and this one has no number.
    #[error("needs the alloc's `index`: it stands for `SOURCE[INDEX]`")]
    NoIndex,
    /// The id that results is none.
    #[error("with the alloc's index {0}")]
    Id(IdFault),
}

impl Alloc {
    /// The volumes it asks for, each with its request. What names no volume was refused when it was
    /// registered.
    pub fn requests(&self) -> impl Iterator<Item = (VolumeId, &VolumeRequest)> {
        let volume = |request: &VolumeRequest| request.volume(self.index).ok();
        self.volumes.iter().filter_map(move |request| Some((volume(request)?, request)))
    }

    /// Its request for this volume.
    pub fn request_for(&self, volume: &VolumeId) -> Option<&VolumeRequest> {
        self.requests().find(|(asked, _)| asked == volume).map(|(_, request)| request)
    }
}

/// An alloc registered again must ask for the same; what differs, by name.
pub fn differing_fields(current: &Alloc, again: &Alloc) -> Vec<&'static str> {
    [
        ("node", current.node != again.node),
        ("index", current.index != again.index),
        ("volumes", current.volumes != again.volumes),
    ]
    .into_iter()
    .filter_map(|(field, differs)| differs.then_some(field))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_per_alloc_is_named_by_its_index() {
        let shared = VolumeRequest::of(VolumeId::new("data").unwrap());
        let own = VolumeRequest { per_alloc: true, ..shared.clone() };
        let id = |id: &str| VolumeId::new(id).map_err(RequestFault::Id);
        assert_eq!(own.volume(Some(0)), id("data[0]"));
        assert_eq!(own.volume(Some(12)), id("data[12]"));
        assert_eq!(own.volume(None), Err(RequestFault::NoIndex));
        assert_eq!(shared.volume(Some(3)), id("data"));
        let long = VolumeRequest { source: VolumeId::new("x".repeat(254)).unwrap(), ..own };
        assert!(matches!(long.volume(Some(0)), Err(RequestFault::Id(_))));
    }

    #[test]
    fn a_request_of_before_there_were_types_is_read() {
        let request: VolumeRequest = serde_json::from_str(r#"{"source":"data"}"#).unwrap();
        assert_eq!(request, VolumeRequest::of(VolumeId::new("data").unwrap()));
        assert_eq!(request.name(), "data");
    }
}
