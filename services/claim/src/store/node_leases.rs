//! The nodes whose lease is held, as far as this replica knows.
//!
//! **Promises** that a key counts only with the value that an agent writes for its node.

use std::collections::BTreeSet;

use berth_bus::Fold;
use berth_contract::key;
use berth_contract::lease::Holder;
use berth_domain::NodeId;
use berth_service::projection::Nodes;

/// The nodes whose lease is held.
#[derive(Debug, Default)]
pub struct NodeLeases(BTreeSet<NodeId>);

impl NodeLeases {
    /// The leases of nodes. The bucket also has those of owners and leaders.
    pub const FILTER: &str = "node.>";

    /// The nodes that hold a lease and have no record.
    pub fn without_record(&self, nodes: &Nodes) -> Vec<NodeId> {
        let is_unrecorded =
            |node: &&NodeId| nodes.get(node).is_none() && !nodes.unreadable().contains_key(*node);
        self.0.iter().filter(is_unrecorded).cloned().collect()
    }
}

impl Fold for NodeLeases {
    fn put(&mut self, key: &str, _revision: u64, value: &[u8]) {
        let Some(node) = key::parse_node_lease(key) else { return };
        // A key that was written by hand never expires, and its node may not exist.
        let holder = serde_json::from_slice::<Holder>(value);
        if holder.is_ok_and(|holder| holder.node == node) {
            self.0.insert(node);
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        if let Some(node) = key::parse_node_lease(key) {
            self.0.remove(&node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lease_without_a_record_is_found_and_a_key_written_by_hand_is_not() {
        let holder = br#"{"node":"n1","agent":"a","pid":1,"since":"2026-01-01T00:00:00Z"}"#;
        let (mut leases, mut nodes) = (NodeLeases::default(), Nodes::default());
        leases.put("node.n1", 1, holder);
        leases.put("node.n2", 2, holder);
        leases.put("node.n3", 3, b"by hand");
        assert_eq!(leases.without_record(&nodes), [NodeId::new("n1").unwrap()]);
        nodes.put("n1", 1, br#"{"since":"2026-01-01T00:00:00Z"}"#);
        assert!(leases.without_record(&nodes).is_empty(), "it is on record");
        nodes.delete("n1", 2);
        leases.delete("node.n1", 4);
        assert!(leases.without_record(&nodes).is_empty(), "its lease has ended");
    }
}
