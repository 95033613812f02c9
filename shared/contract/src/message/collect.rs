//! The messages of `gc.force`.
//!
//! **Owns** the request for a sweep, and the lists of what it collected and of what it kept, and
//! why.

use serde::{Deserialize, Serialize};

use crate::{decode_leaf, decode_struct};

/// What a sweep looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Claims without a running alloc, and volumes that are to go with their last claim.
    Claims,
    /// Records of allocs that have ended and have no claim left.
    Allocs,
    /// Nodes that are down, with nothing on them that anybody may still need, and their plugin
    /// instances.
    Nodes,
    /// Plugin instances on nodes that are not known any more.
    Plugins,
}
decode_leaf!(Kind);

impl Kind {
    /// Every kind, in the order in which one makes room for the next.
    pub const ALL: [Self; 4] = [Self::Claims, Self::Allocs, Self::Nodes, Self::Plugins];

    /// The name in messages and configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::Allocs => "allocs",
            Self::Nodes => "nodes",
            Self::Plugins => "plugins",
        }
    }
}

/// `gc.force`: collect now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Force {
    /// Only these kinds; all when there are none.
    #[serde(default)]
    pub kinds: Vec<Kind>,
    /// Minimum age of what is collected, in milliseconds, in place of the configured ages. Without
    /// it, claims are collected at any age, and records at the configured age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}
decode_struct!(Force { kinds, grace_ms });

/// What a sweep did, and on what evidence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sweep {
    /// One line per thing collected: what, and why it was safe.
    pub collected: Vec<String>,
    /// One line per thing that should go and could not yet.
    pub kept: Vec<String>,
}
