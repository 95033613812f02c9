//! What an instance is, and can do.

use std::collections::BTreeSet;

use clap::ValueEnum;

use crate::ability::{Abilities, Ability};
use crate::topology::Segments;

/// Which of the plugin's services an instance serves. What the plugin can do is the same for all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum Serves {
    /// Controller and node
    #[default]
    All,
    /// The controller only: nothing is mounted here
    Controller,
    /// The node only: another instance is the controller
    Node,
}

/// What a careless plugin leaves out of a publish, and answers OK.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Ignored {
    /// `readonly` of `NodePublishVolume`
    Readonly,
    /// `mount_flags`
    MountFlags,
    /// `fs_type`
    FsType,
}

/// What an instance is, and can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The plugin's name (CSI `GetPluginInfoResponse.name`).
    pub driver_name: String,
    /// Its version (CSI `GetPluginInfoResponse.vendor_version`).
    pub vendor_version: String,
    /// The node it serves.
    pub node_id: String,
    /// How many volumes can be attached to the node; 0 means no limit.
    pub max_volumes: i64,
    /// What the plugin can do.
    pub abilities: Abilities,
    /// Where the node is; empty means that the plugin knows no topology.
    pub topology: Segments,
    /// Which services it serves.
    pub serves: Serves,
    /// Whether each instance is a storage system of its own: what one node made, others do not
    /// know.
    pub bound: bool,
    /// Whether attaching answers with a `publish_context`, which the calls on the node have to
    /// bring along.
    pub publish_context: bool,
    /// How many bytes all volumes and snapshots may have together; `None` is what the file system
    /// has.
    pub pool_bytes: Option<i64>,
    /// What it leaves out of a publish; nothing by default.
    pub ignores: BTreeSet<Ignored>,
    /// What must be among the secrets of each call that takes some; nothing by default.
    pub secret: Option<String>,
}

impl Profile {
    /// Whether the plugin has this ability.
    pub fn has(&self, ability: Ability) -> bool {
        let is_known = ability != Ability::Topology || !self.topology.is_empty();
        is_known && self.abilities.has(ability)
    }

    /// Whether this instance serves the controller.
    pub fn is_controller(&self) -> bool {
        self.has(Ability::Controller) && self.serves != Serves::Node
    }

    /// Whether this instance serves a node.
    pub fn is_node(&self) -> bool {
        self.serves != Serves::Controller
    }
}
