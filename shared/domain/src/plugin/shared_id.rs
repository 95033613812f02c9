//! Nodes with the same plugin's id: a unit file was copied, or a machine was cloned.
//!
//! **Promises** that the first node with an id keeps it, even while it is down: volumes may be
//! attached by that id. The plugin is unhealthy on the other nodes until their id changes, or the
//! first node leaves.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::{Half, Plugin};
use crate::{NodeId, Timestamp};

/// A node with a plugin's id that another node had first. The storage cannot distinguish the two: a
/// volume that is detached from one is detached from both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedId<'a> {
    /// The id.
    pub external: &'a str,
    /// The node that had it first.
    pub first: &'a NodeId,
}

impl fmt::Display for SharedId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { external, first } = self;
        write!(
            f,
            "the plugin calls this node {external:?}, as it calls node {first}, which had the id \
             first: start the driver here with a node id of its own; if {first} is gone for good, \
             say so with `berth node leave {first}`"
        )
    }
}

impl Plugin {
    /// The nodes with a plugin's id that another node had first, where the plugin is unhealthy.
    pub fn shared_ids(&self) -> BTreeMap<&NodeId, SharedId<'_>> {
        let mut first: HashMap<&str, (Timestamp, &NodeId)> = HashMap::new();
        let mut shared = BTreeMap::new();
        for (external, since, node) in self.external_nodes() {
            first
                .entry(external)
                .and_modify(|known| *known = (*known).min((since, node)))
                .or_insert((since, node));
        }
        for (external, _, node) in self.external_nodes() {
            if let Some((_, first)) = first.get(external).filter(|(_, first)| *first != node) {
                shared.insert(node, SharedId { external, first });
            }
        }
        shared
    }

    /// The shared id of one node, if another node had it first.
    pub fn shared_id(&self, node: &NodeId) -> Option<SharedId<'_>> {
        let instance = self.instances.get(&(node.clone(), Half::Node))?;
        let external = instance.external_node()?;
        let alike = self.external_nodes().filter(|(other, ..)| *other == external);
        let (_, first) = alike.map(|(_, since, node)| (since, node)).min()?;
        (first != node).then_some(SharedId { external, first })
    }

    /// The plugin's ids of its nodes, and when each node got its id.
    fn external_nodes(&self) -> impl Iterator<Item = (&str, Timestamp, &NodeId)> {
        self.instances.iter().filter_map(|((node, half), instance)| {
            let external = instance.external_node().filter(|_| *half == Half::Node)?;
            Some((external, instance.id_since.unwrap_or(instance.since), node))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Instance, NodeAbilities};
    use super::*;

    fn instance() -> Instance {
        Instance {
            healthy: true,
            description: String::new(),
            provider: "csi.example".to_owned(),
            version: "1".to_owned(),
            since: Timestamp::from_unix_ms(0),
            controller: None,
            node: None,
            id_since: None,
        }
    }

    #[test]
    fn of_two_nodes_with_one_id_the_first_keeps_it() {
        let nodes = ["h1", "h2", "h3"].map(|node| NodeId::new(node).unwrap());
        let [h1, h2, h3] = &nodes;
        let called = |external: &str, since: u64| {
            let abilities =
                NodeAbilities { external_node: external.to_owned(), ..NodeAbilities::default() };
            let id_since = Some(Timestamp::from_unix_ms(since));
            Instance { node: Some(abilities), id_since, ..instance() }
        };
        let shared = |instances: [(&NodeId, Instance); 3]| {
            let halves = instances.map(|(node, it)| ((node.clone(), Half::Node), it));
            let plugin = Plugin { instances: halves.into(), ..Plugin::default() };
            let all = plugin.shared_ids();
            for node in &nodes {
                assert_eq!(plugin.shared_id(node), all.get(node).copied());
            }
            let healthy = plugin.count(Half::Node, |_| true).healthy;
            let well = plugin
                .instances
                .iter()
                .filter(|((node, _), instance)| instance.healthy && !all.contains_key(node));
            assert_eq!(healthy, well.count());
            all.iter()
                .map(|(node, id)| (node.to_string(), id.first.to_string()))
                .collect::<Vec<_>>()
        };
        let second = |node: &NodeId, first: &NodeId| (node.to_string(), first.to_string());
        // The first owner keeps it, whatever the names and the health.
        let down = Instance { healthy: false, ..called("x", 1) };
        assert_eq!(
            shared([(h1, called("x", 5)), (h2, down), (h3, called("x", 5))]),
            [second(h1, h2), second(h3, h2)]
        );
        assert_eq!(
            shared([(h1, called("x", 5)), (h2, called("y", 1)), (h3, called("x", 5))]),
            [second(h3, h1)]
        );
        // A plugin without a reported id shares none.
        assert_eq!(shared([(h1, called("", 5)), (h2, called("", 1)), (h3, called("x", 5))]), []);
    }
}
