//! The nodes of a backend.
//!
//! Owns: what one instance tells the others about the node it serves. Promises: values only.
//! Never: says whether a node is up.

use serde::{Deserialize, Serialize};

use crate::topology::Segments;

/// A node that an instance has served.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    /// As `NodeGetInfo` gives it.
    pub node_id: String,
    /// How many volumes can be attached to it; 0 means no limit (CSI `max_volumes_per_node`).
    #[serde(default)]
    pub max_volumes: i64,
    /// Where it is; empty where no topology is known.
    #[serde(default, skip_serializing_if = "Segments::is_empty")]
    pub topology: Segments,
    /// Whether the storage takes nothing from it any more; see [`Backend::fence`](super::Backend).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fenced: bool,
}

impl NodeRecord {
    /// A node of which nothing more is known.
    pub fn new(node_id: &str) -> Self {
        let (node_id, topology) = (node_id.to_owned(), Segments::new());
        Self { node_id, max_volumes: 0, topology, fenced: false }
    }
}
