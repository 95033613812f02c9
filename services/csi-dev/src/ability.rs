//! The optional abilities of a plugin.
//!
//! Owns: the list of abilities, and which of them need others. Promises: has no state. Never: knows
//! which ones are switched off; `driver::Profile` does.

use std::fmt;

use clap::ValueEnum;

/// An optional feature of a plugin. While it is on, it is advertised, and its calls are answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Ability {
    /// The plugin has a controller service; without one it is a node-only plugin
    Controller,
    /// `CreateVolume`, `DeleteVolume`
    Create,
    /// `ControllerPublishVolume`, `ControllerUnpublishVolume`
    Attach,
    /// `ControllerPublishVolume` with readonly
    PublishReadonly,
    /// `ListVolumes`
    List,
    /// The nodes that a volume is attached to, in `ListVolumes`
    PublishedNodes,
    /// `GetCapacity`
    Capacity,
    /// `CreateSnapshot`, `DeleteSnapshot`, and volumes made from snapshots
    Snapshot,
    /// `ListSnapshots`
    ListSnapshots,
    /// The group controller service: snapshots of several volumes at once
    GroupSnapshot,
    /// Volumes made from volumes
    Clone,
    /// `ControllerExpandVolume`
    Expand,
    /// `NodeExpandVolume`
    ExpandNode,
    /// Expansion of volumes in use
    OnlineExpand,
    /// `ControllerModifyVolume`, and `mutable_parameters` of `CreateVolume`
    Modify,
    /// `ControllerGetVolume`
    GetVolume,
    /// `GetSnapshot`
    GetSnapshot,
    /// The usage of a volume, in `NodeGetVolumeStats`
    Stats,
    /// Whether a volume is abnormal, as plugins of CSI 1.12 say it: in `ListVolumes`,
    /// `ControllerGetVolume` and `NodeGetVolumeStats`
    Condition,
    /// The health of volumes and of the storage: `ControllerGetVolumeHealth`,
    /// `NodeGetVolumeHealth`, `NodeGetStorageHealth`, and with `list` `ControllerListVolumeHealth`
    Health,
    /// The access modes `SINGLE_NODE_SINGLE_WRITER` and `SINGLE_NODE_MULTI_WRITER`
    SingleNodeMultiWriter,
    /// Accessibility constraints; needs --topology as well
    Topology,
    /// `NodeStageVolume`, `NodeUnstageVolume`
    Stage,
    /// `volume_mount_group`
    MountGroup,
}

impl Ability {
    /// The abilities that this one needs: it is off while one of them is.
    pub fn needs(self) -> &'static [Self] {
        match self {
            Self::Create
            | Self::Attach
            | Self::List
            | Self::Capacity
            | Self::Snapshot
            | Self::Expand
            | Self::Modify
            | Self::GetVolume => &[Self::Controller],
            Self::PublishReadonly => &[Self::Attach],
            Self::PublishedNodes => &[Self::Attach, Self::List],
            Self::ListSnapshots | Self::GroupSnapshot | Self::GetSnapshot => &[Self::Snapshot],
            Self::Clone => &[Self::Create],
            Self::Controller
            | Self::ExpandNode
            | Self::OnlineExpand
            | Self::Stats
            | Self::Condition
            | Self::Health
            | Self::SingleNodeMultiWriter
            | Self::Topology
            | Self::Stage
            | Self::MountGroup => &[],
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}
