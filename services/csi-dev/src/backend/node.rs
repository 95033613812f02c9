//! The nodes of a backend.
//!
//! Owns: what an instance records about its node for the other instances. Promises: has no logic.
//! Never: says whether a node is up.

use serde::{Deserialize, Serialize};

use crate::topology::Segments;

/// A node that an instance has served.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    pub node_id: String,
    /// The limit of attached volumes; 0 means no limit (CSI `max_volumes_per_node`).
    #[serde(default)]
    pub max_volumes: i64,
    /// Its topology segments; empty if it has no topology.
    #[serde(default, skip_serializing_if = "Segments::is_empty")]
    pub topology: Segments,
    /// Whether the storage is fenced from it; see [`Backend::fence`](super::Backend).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fenced: bool,
    /// What is wrong with the storage, seen from the node: the first word is `degraded` if the node
    /// still reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl NodeRecord {
    /// A node of which only the id is known.
    pub fn new(node_id: &str) -> Self {
        let (node_id, topology) = (node_id.to_owned(), Segments::new());
        Self { node_id, max_volumes: 0, topology, fenced: false, trouble: None }
    }
}
