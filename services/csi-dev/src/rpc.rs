//! The names of CSI's calls.
//!
//! Owns: one name per RPC of CSI 1.12, and which of them must not overlap for one volume.
//! Promises: a name is written in logs and fault files exactly as in the protocol.
//! Never: knows what a call does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One RPC of CSI 1.12.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum Rpc {
    GetPluginInfo,
    GetPluginCapabilities,
    Probe,
    CreateVolume,
    DeleteVolume,
    ControllerPublishVolume,
    ControllerUnpublishVolume,
    ValidateVolumeCapabilities,
    ListVolumes,
    GetCapacity,
    ControllerGetCapabilities,
    CreateSnapshot,
    DeleteSnapshot,
    ListSnapshots,
    GetSnapshot,
    ControllerExpandVolume,
    ControllerGetVolume,
    ControllerModifyVolume,
    GroupControllerGetCapabilities,
    CreateVolumeGroupSnapshot,
    DeleteVolumeGroupSnapshot,
    GetVolumeGroupSnapshot,
    GetMetadataAllocated,
    GetMetadataDelta,
    NodeStageVolume,
    NodeUnstageVolume,
    NodePublishVolume,
    NodeUnpublishVolume,
    NodeGetVolumeStats,
    NodeExpandVolume,
    NodeGetCapabilities,
    NodeGetInfo,
}

/// What calls of one kind must not overlap on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// One call per volume, whichever instance of the plugin serves it.
    Volume,
    /// One call per volume and node.
    VolumeOnNode,
}

impl Rpc {
    /// What two calls of this kind must not overlap on; `None` where they may overlap freely.
    ///
    /// CSI makes the CO responsible for at most one call in flight per volume. Calls on different
    /// nodes of a shared volume go to different instances and are independent of each other.
    pub fn scope(self) -> Option<Scope> {
        match self {
            Self::DeleteVolume
            | Self::ControllerPublishVolume
            | Self::ControllerUnpublishVolume
            | Self::ValidateVolumeCapabilities
            | Self::CreateSnapshot
            | Self::ControllerExpandVolume
            | Self::ControllerGetVolume
            | Self::ControllerModifyVolume => Some(Scope::Volume),
            Self::NodeStageVolume
            | Self::NodeUnstageVolume
            | Self::NodePublishVolume
            | Self::NodeUnpublishVolume
            | Self::NodeGetVolumeStats
            | Self::NodeExpandVolume => Some(Scope::VolumeOnNode),
            Self::GetPluginInfo
            | Self::GetPluginCapabilities
            | Self::Probe
            | Self::CreateVolume
            | Self::ListVolumes
            | Self::GetCapacity
            | Self::ControllerGetCapabilities
            | Self::DeleteSnapshot
            | Self::ListSnapshots
            | Self::GetSnapshot
            | Self::GroupControllerGetCapabilities
            | Self::CreateVolumeGroupSnapshot
            | Self::DeleteVolumeGroupSnapshot
            | Self::GetVolumeGroupSnapshot
            | Self::GetMetadataAllocated
            | Self::GetMetadataDelta
            | Self::NodeGetCapabilities
            | Self::NodeGetInfo => None,
        }
    }
}

impl fmt::Display for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names of the variants are the names of the calls.
        fmt::Debug::fmt(self, f)
    }
}
