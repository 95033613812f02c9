//! The life of a volume at its storage, as far as Berth had a hand in it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::operation::{Operation, OperationKind};
use super::provision::Provision;
use crate::volume::call::CallFailure;
use crate::{NodeId, Timestamp};

/// What Berth did to the volume at its storage, and is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StorageLife {
    /// The change under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// The size that the last expansion required, in bytes. The plugin may have made it larger: the
    /// same request again changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expanded_for: Option<u64>,
    /// The last change that was refused, until another succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<StorageFailure>,
    /// What the plugin did otherwise than CSI wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Whether the volume is at the storage, and cannot be used: only its deletion is left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unusable: bool,
    /// How Berth created the volume. None for a volume that was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<Provision>,
    /// The mutable parameters in effect (`ControllerModifyVolume`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable: BTreeMap<String, String>,
    /// The node whose controller created the volume, if no other was to be called; of a volume that
    /// was registered, the node whose controller alone knew it. While its agent reports that
    /// controller, no other one is called, whatever topologies the nodes report later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<NodeId>,
}

/// A change of the storage that was refused for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFailure {
    /// What was refused.
    pub operation: OperationKind,
    /// When.
    pub at: Timestamp,
    /// Why.
    #[serde(flatten)]
    pub failure: CallFailure,
}

/// How far a volume's life at its storage has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is created when the first claim says where (`first-use`).
    Unused,
    /// It is being created.
    Creating,
    /// It was not created: the plugin refused, and nothing is at the storage. Or the plugin says
    /// that it created it, with an answer that Berth cannot use: the volume is to be deleted, or
    /// its id is not known.
    Failed,
    /// It can be claimed.
    Ready,
    /// It is being deleted.
    Deleting,
}

impl Stage {
    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unused => "unused",
            Self::Creating => "creating",
            Self::Failed => "failed",
            Self::Ready => "ready",
            Self::Deleting => "deleting",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
