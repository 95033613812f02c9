//! The change of a volume at its storage that is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::progress::StorageProgress;
use crate::volume::call::CallKind;
use crate::volume::mounted::MountDoubt;
use crate::{GrpcCode, NodeId, Timestamp};

/// A change under way: at most one of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The change.
    pub work: Work,
    /// When it was requested.
    pub since: Timestamp,
    /// How far its calls have come.
    #[serde(default)]
    pub progress: StorageProgress,
    /// The mount without a claim that its next call waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounted: Option<Box<MountDoubt>>,
}

/// What is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// `CreateVolume`, with what the volume's `Provision` says.
    Create {
        /// The volume is to be deleted as soon as its id is known (rule 20).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        doomed: bool,
    },
    /// `DeleteVolume`.
    Delete {
        /// The reason, for people.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// The change that it replaced. It goes on if the plugin refuses the deletion.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaced: Option<Box<Work>>,
    },
    /// `ControllerExpandVolume`, then `NodeExpandVolume` where it is needed.
    Expand(Expansion),
    /// `ControllerModifyVolume`.
    Modify {
        /// The mutable parameters to set.
        parameters: BTreeMap<String, String>,
        /// An expansion that waits for a mount. It goes on afterwards.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaced: Option<Box<Expansion>>,
    },
}

/// An expansion under way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Expansion {
    /// The smallest new size, in bytes.
    pub required_bytes: u64,
    /// The largest new size, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Whether the plugin expands only volumes that are not in use. The expansion waits until no
    /// claim holds the volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
    /// Whether the controller is done, and nodes have to expand the volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_nodes: bool,
    /// Whether the nodes do all of it: the plugin's controller expands no volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_only: bool,
    /// The smaller one that it replaced, which was acknowledged too. It goes on if the plugin
    /// refuses the larger size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Box<Expansion>>,
    /// The node that is called, or was called last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Nodes that have expanded it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub expanded: BTreeSet<NodeId>,
    /// Nodes that refused while the volume is staged there, each with the newest epoch of its
    /// claims then. CSI forbids a retry before the volume is staged again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<NodeId, u64>,
}

impl Expansion {
    /// Whether nodes expand the volume now. `node_only` is stored beside `at_nodes` and not with
    /// it: an older version asks the controller, which refuses, and says so. It would have nodes
    /// expand the volume to the size that it has.
    pub const fn is_at_nodes(&self) -> bool {
        self.at_nodes || self.node_only
    }

    /// Whether no node can ever expand the volume: the first one that was asked refused the size,
    /// or the call itself.
    pub(in crate::volume) fn is_impossible_for_nodes(&self, refused: Option<GrpcCode>) -> bool {
        let is_of_size = matches!(
            refused,
            Some(GrpcCode::OutOfRange | GrpcCode::InvalidArgument | GrpcCode::Unimplemented)
        );
        self.node_only && self.expanded.is_empty() && is_of_size
    }

    /// Those that it replaced, the newest first.
    pub fn all_replaced(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(self.replaced.as_deref(), |of| of.replaced.as_deref())
    }
}

/// Which change, without its details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// A volume is created.
    Create,
    /// A volume is deleted.
    Delete,
    /// A volume is expanded.
    Expand,
    /// A volume's mutable parameters are changed.
    Modify,
}

impl OperationKind {
    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Expand => "expand",
            Self::Modify => "modify",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Operation {
    /// A change that is requested now.
    pub(in crate::volume) fn new(work: Work, now: Timestamp) -> Self {
        Self { work, since: now, progress: StorageProgress::default(), mounted: None }
    }

    /// Whether its next call must not be made while the volume may be mounted.
    pub const fn needs_unmounted(&self) -> bool {
        match &self.work {
            Work::Delete { .. } => true,
            Work::Expand(expansion) => expansion.offline && !expansion.is_at_nodes(),
            Work::Create { .. } | Work::Modify { .. } => false,
        }
    }

    /// Which change it is.
    pub const fn kind(&self) -> OperationKind {
        match self.work {
            Work::Create { .. } => OperationKind::Create,
            Work::Delete { .. } => OperationKind::Delete,
            Work::Expand(_) => OperationKind::Expand,
            Work::Modify { .. } => OperationKind::Modify,
        }
    }

    /// The call that it makes next, or is making.
    pub const fn call(&self) -> CallKind {
        match &self.work {
            Work::Create { .. } => CallKind::VolumeCreate,
            Work::Delete { .. } => CallKind::VolumeDelete,
            Work::Expand(expansion) if expansion.is_at_nodes() => CallKind::NodeExpand,
            Work::Expand(_) => CallKind::VolumeExpand,
            Work::Modify { .. } => CallKind::VolumeModify,
        }
    }
}
