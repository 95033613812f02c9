//! The leases of nodes, as a set.

use std::collections::BTreeSet;

use berth_bus::Fold;
use berth_contract::key;
use berth_domain::NodeId;
use berth_telemetry::metric::LEASES;

/// The nodes whose agent holds its lease.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeSet<NodeId>,
}

impl Leases {
    /// What to mirror of the bucket: the leases of nodes, and not those of leaders.
    pub const FILTER: &str = "node.>";

    fn count(&self) {
        LEASES.set(self.held.len() as u64, ["node".into()]);
    }

    /// Whether the node's agent holds its lease.
    pub fn is_held(&self, node: &NodeId) -> bool {
        self.held.contains(node)
    }
}

impl Fold for Leases {
    fn put(&mut self, key: &str, _revision: u64, _value: &[u8]) {
        if let Some(node) = key::parse_node_lease(key) {
            self.held.insert(node);
            self.count();
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        if let Some(node) = key::parse_node_lease(key) {
            self.held.remove(&node);
            self.count();
        }
    }
}
