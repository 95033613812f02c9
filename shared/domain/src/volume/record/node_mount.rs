//! What the node does with a claim after the grant, as its agent reports it.
//!
//! **Never** part of a decision: the claim's state says what may be mounted. A report is for people
//! and programs that look at the claim, and may be seconds old.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::volume::call::is_zero;

/// How far the node has got with a granted claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeMountState {
    /// The agent prepares the mount, or `NodeStageVolume` is under way.
    Staging,
    /// `NodePublishVolume` is under way.
    Publishing,
    /// The volume is mounted for the alloc.
    Mounted,
    /// The last try failed. The caller of `agent.mount` tries again.
    Failing,
    /// A plugin call was not answered by its deadline, or the mount does not answer.
    Hung,
    /// The volume was published, and the mount table does not show it.
    Missing,
    /// The mount is there, and every access to it fails.
    Dead,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

impl NodeMountState {
    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Staging => "staging",
            Self::Publishing => "publishing",
            Self::Mounted => "mounted",
            Self::Failing => "failing",
            Self::Hung => "hung",
            Self::Missing => "missing",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the operator, or the operator of the plugin, has to act.
    pub const fn is_trouble(self) -> bool {
        matches!(self, Self::Failing | Self::Hung | Self::Missing | Self::Dead)
    }
}

impl fmt::Display for NodeMountState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A report of a claim's mount on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMount {
    /// How far the node has got.
    pub state: NodeMountState,
    /// Since when, by the node's clock.
    pub since: Timestamp,
    /// The CSI call that is under way, or that is not answered, such as `NodeStageVolume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpc: Option<String>,
    /// Tries that failed in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// What the last of them said, or what is wrong with the mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl NodeMount {
    /// What the plugin calls abnormal (CSI's volume condition), in its words. A mount that is well
    /// has no other trouble.
    pub fn condition(&self) -> Option<&str> {
        self.error.as_deref().filter(|_| self.state == NodeMountState::Mounted)
    }
}
