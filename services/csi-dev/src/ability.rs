//! What an instance can do, and how much of that is switched off.
//!
//! Owns: the list of abilities, and which of them need others. Promises: what is off takes with it
//! what makes no sense without it; nothing else goes. Never: knows a call.

use std::collections::BTreeSet;
use std::fmt;

use clap::ValueEnum;

/// Something optional that CSI lets a plugin do or leave out.
///
/// Each is advertised, and its calls answer, only while it is on.
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
    /// The nodes that a volume is attached to, in `ListVolumes` and `ControllerGetVolume`
    PublishedNodes,
    /// `ControllerGetVolume`
    Get,
    /// `GetCapacity`
    Capacity,
    /// `CreateSnapshot`, `DeleteSnapshot`, and volumes made from snapshots
    Snapshot,
    /// `ListSnapshots`
    ListSnapshots,
    /// `GetSnapshot`
    GetSnapshot,
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
    /// `ControllerModifyVolume`, and mutable parameters of `CreateVolume`
    Modify,
    /// Volume conditions, told by the controller and by the node
    Condition,
    /// The access modes `SINGLE_NODE_SINGLE_WRITER` and `SINGLE_NODE_MULTI_WRITER`
    SingleNodeMultiWriter,
    /// Accessibility constraints; needs --topology as well
    Topology,
    /// `NodeStageVolume`, `NodeUnstageVolume`
    Stage,
    /// Usage in `NodeGetVolumeStats`
    Stats,
    /// `volume_mount_group`
    MountGroup,
}

impl Ability {
    /// What it makes no sense without.
    fn needs(self) -> &'static [Self] {
        match self {
            Self::Create
            | Self::Attach
            | Self::List
            | Self::Get
            | Self::Capacity
            | Self::Snapshot
            | Self::Expand
            | Self::Modify => &[Self::Controller],
            Self::PublishReadonly => &[Self::Attach],
            Self::PublishedNodes => &[Self::Attach, Self::List],
            Self::ListSnapshots | Self::GetSnapshot | Self::GroupSnapshot => &[Self::Snapshot],
            Self::Clone => &[Self::Create],
            Self::Controller
            | Self::ExpandNode
            | Self::OnlineExpand
            | Self::Condition
            | Self::SingleNodeMultiWriter
            | Self::Topology
            | Self::Stage
            | Self::Stats
            | Self::MountGroup => &[],
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// The abilities that an instance has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abilities(BTreeSet<Ability>);

impl Abilities {
    /// All but those, and what needs them.
    pub fn without(off: impl IntoIterator<Item = Ability>) -> Self {
        let mut on: BTreeSet<_> = Ability::value_variants().iter().copied().collect();
        for ability in off {
            on.remove(&ability);
        }
        // As often as something went that something else needs.
        loop {
            let kept: BTreeSet<_> = on
                .iter()
                .copied()
                .filter(|ability| ability.needs().iter().all(|need| on.contains(need)))
                .collect();
            if kept == on {
                return Self(on);
            }
            on = kept;
        }
    }

    /// Whether this one is on.
    pub fn has(&self, ability: Ability) -> bool {
        self.0.contains(&ability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_takes_along_what_needs_it_and_no_more() {
        let all = Abilities::without([]);
        assert!(Ability::value_variants().iter().all(|ability| all.has(*ability)));

        let no_list = Abilities::without([Ability::List]);
        assert!(!no_list.has(Ability::List) && !no_list.has(Ability::PublishedNodes));
        assert!(no_list.has(Ability::Attach) && no_list.has(Ability::Get));

        let node_only = Abilities::without([Ability::Controller]);
        let left: Vec<_> = node_only.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            left.join(" "),
            "expand-node online-expand condition single-node-multi-writer topology stage stats \
             mount-group"
        );
    }
}
