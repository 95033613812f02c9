//! The set of nodes whose agents hold their leases.

use std::collections::BTreeMap;

use berth_bus::Fold;
use berth_contract::key;
use berth_contract::lease::Holder;
use berth_domain::NodeId;
use berth_service::projection::Arrivals;
use berth_telemetry::metric::LEASES;

/// The nodes whose agents hold their leases.
#[derive(Debug, Default)]
pub struct HeldLeases {
    /// Each with the agent that holds it; none if no agent of that node wrote the value.
    held: BTreeMap<NodeId, Option<Holder>>,
    changes: Arrivals<NodeId>,
}

impl HeldLeases {
    /// The leases of nodes. The bucket also has those of leaders.
    pub const FILTER: &str = "node.>";

    /// The nodes whose leases were gained, overwritten or ended last. Renewals do not count: a
    /// fleet makes many of them per second.
    pub fn changes(&self) -> &Arrivals<NodeId> {
        &self.changes
    }

    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Whether the value was not written by an agent of that node. The lease still counts as held:
    /// the agent whose lease was overwritten may not have noticed yet.
    pub fn is_junk(&self, node: &NodeId) -> bool {
        matches!(self.held.get(node), Some(None))
    }

    /// Whether this process of the node's agent holds the lease.
    pub fn is_held_by(&self, holder: &Holder) -> bool {
        self.held.get(&holder.node).is_some_and(|held| held.as_ref() == Some(holder))
    }

    fn record_change(&mut self, node: NodeId) {
        self.changes.record(node);
        LEASES.set(self.held.len() as u64, ["node".into()]);
    }

    /// Whether the node's agent holds its lease.
    pub fn is_held(&self, node: &NodeId) -> bool {
        self.held.contains_key(node)
    }
}

impl Fold for HeldLeases {
    fn put(&mut self, key: &str, _revision: u64, value: &[u8]) {
        let Some(node) = key::parse_node_lease(key) else { return };
        let holder = serde_json::from_slice::<Holder>(value);
        let holder = holder.ok().filter(|holder| holder.node == node);
        let is_junk = holder.is_none();
        let before = self.held.insert(node.clone(), holder);
        if is_junk && before != Some(None) {
            tracing::warn!(key, "the value was not written by this node's agent");
            self.record_change(node.clone());
        }
        if before.is_none() {
            self.record_change(node);
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        let Some(node) = key::parse_node_lease(key) else { return };
        if self.held.remove(&node).is_some() {
            self.record_change(node);
        }
    }
}
