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
    changes: u64,
}

impl Leases {
    /// What to mirror of the bucket: the leases of nodes, and not those of leaders.
    pub const FILTER: &str = "node.>";

    /// How often a node's lease was gained or has ended; renewals, of which a fleet makes many each
    /// second, are neither.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many nodes have one.
    pub fn many(&self) -> usize {
        self.held.len()
    }

    fn changed(&mut self) {
        self.changes += 1;
        LEASES.set(self.held.len() as u64, ["node".into()]);
    }

    /// Whether the node's agent holds its lease.
    pub fn is_held(&self, node: &NodeId) -> bool {
        self.held.contains(node)
    }
}

impl Fold for Leases {
    fn put(&mut self, key: &str, _revision: u64, _value: &[u8]) {
        if key::parse_node_lease(key).is_some_and(|node| self.held.insert(node)) {
            self.changed();
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        if key::parse_node_lease(key).is_some_and(|node| self.held.remove(&node)) {
            self.changed();
        }
    }
}
