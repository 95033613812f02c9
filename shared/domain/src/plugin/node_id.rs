//! Nodes whose id at the plugin is of no use: it is missing where the plugin attaches volumes, or
//! another node has it, too. A unit file was copied, or a machine was cloned.
//!
//! **Promises** that the first node with an id keeps it, even while it is down: volumes may be
//! attached by that id. The plugin is unhealthy on the other nodes until their id changes, or the
//! first node leaves.
//!
//! Both are decided here, where the reports of all nodes meet: a node half does not know whether
//! the controller attaches, which may be another process on another host.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::{Half, Instance, Plugin};
use crate::{NodeId, Timestamp};

/// Why no volume can be attached to a node by the plugin's id of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeIdFault<'a> {
    /// The plugin attaches volumes to nodes, and gives this one no id.
    Missing,
    /// Another node had the id first. The storage cannot distinguish the two: a volume that is
    /// detached from one is detached from both.
    Shared {
        /// The id.
        external: &'a str,
        /// The node that had it first.
        first: &'a NodeId,
    },
}

impl fmt::Display for NodeIdFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "the plugin attaches volumes to nodes, and gives this one no id \
                 (NodeGetInfo.node_id): start the driver here with a node id of its own",
            ),
            Self::Shared { external, first } => write!(
                f,
                "the plugin calls this node {external:?}, as it calls node {first}, which had the \
                 id first: start the driver here with a node id of its own; if {first} is gone for \
                 good, say so with `berth node leave {first}`"
            ),
        }
    }
}

impl Plugin {
    /// The nodes with such a fault, where the plugin is unhealthy.
    pub fn node_id_faults(&self) -> BTreeMap<&NodeId, NodeIdFault<'_>> {
        let mut first: HashMap<&str, (Timestamp, &NodeId)> = HashMap::new();
        for (external, since, node) in self.external_nodes() {
            first
                .entry(external)
                .and_modify(|known| *known = (*known).min((since, node)))
                .or_insert((since, node));
        }
        let shared = self.external_nodes().filter_map(|(external, _, node)| {
            let (_, first) = first.get(external).filter(|(_, first)| *first != node)?;
            Some((node, NodeIdFault::Shared { external, first }))
        });
        let attaches = self.controller_attaches() == Some(true);
        let unnamed = self.instances.iter().filter_map(|((node, half), instance)| {
            let is_unnamed = attaches && *half == Half::Node && is_unnamed(instance);
            is_unnamed.then_some((node, NodeIdFault::Missing))
        });
        shared.chain(unnamed).collect()
    }

    /// The fault of one node, if it has one.
    pub fn node_id_fault(&self, node: &NodeId) -> Option<NodeIdFault<'_>> {
        let instance = self.instances.get(&(node.clone(), Half::Node))?;
        if is_unnamed(instance) && self.controller_attaches() == Some(true) {
            return Some(NodeIdFault::Missing);
        }
        let external = instance.external_node()?;
        let alike = self.external_nodes().filter(|(other, ..)| *other == external);
        let (_, first) = alike.map(|(_, since, node)| (since, node)).min()?;
        (first != node).then_some(NodeIdFault::Shared { external, first })
    }

    /// The nodes whose missing id is a fault by the controller on `host` alone: no other controller
    /// says that it attaches volumes.
    pub fn unnamed_by_controller(&self, host: &NodeId) -> Vec<&NodeId> {
        let attaches = |instance: &Instance| {
            instance.controller.is_some_and(|controller| controller.publish_unpublish_volume)
        };
        let mut hosts = self.instances.iter().filter_map(|((node, half), instance)| {
            (*half == Half::Controller && attaches(instance)).then_some(node)
        });
        if hosts.next() != Some(host) || hosts.next().is_some() {
            return Vec::new();
        }
        let nodes = self.instances.iter();
        let unnamed =
            nodes.filter(|((_, half), instance)| *half == Half::Node && is_unnamed(instance));
        unnamed.map(|((node, _), _)| node).collect()
    }

    /// The plugin's ids of its nodes, and when each node got its id.
    fn external_nodes(&self) -> impl Iterator<Item = (&str, Timestamp, &NodeId)> {
        self.instances.iter().filter_map(|((node, half), instance)| {
            let external = instance.external_node().filter(|_| *half == Half::Node)?;
            Some((external, instance.id_since.unwrap_or(instance.since), node))
        })
    }
}

/// Whether a node half that has a controller somewhere has no id for it.
fn is_unnamed(instance: &Instance) -> bool {
    let abilities = instance.node.as_ref();
    abilities.is_some_and(|node| node.controller_service && node.external_node.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tests::instance;
    use super::super::{ControllerAbilities, NodeAbilities};
    use super::*;

    #[test]
    fn of_two_nodes_with_one_id_the_first_keeps_it() {
        let nodes = ["h1", "h2", "h3"].map(|node| NodeId::new(node).unwrap());
        let [h1, h2, h3] = &nodes;
        let called = |external: &str, since: u64| {
            let abilities =
                NodeAbilities { external_node: external.to_owned(), ..NodeAbilities::default() };
            let id_since = Some(Timestamp::from_unix_ms(since));
            Instance { node: Some(abilities), id_since, ..instance(true) }
        };
        let shared = |instances: [(&NodeId, Instance); 3]| {
            let halves = instances.map(|(node, it)| ((node.clone(), Half::Node), it));
            let plugin = Plugin { instances: halves.into(), ..Plugin::default() };
            let all = plugin.node_id_faults();
            for node in &nodes {
                assert_eq!(plugin.node_id_fault(node), all.get(node).copied());
            }
            let healthy = plugin.count(Half::Node, |_| true).healthy;
            let well = plugin
                .instances
                .iter()
                .filter(|((node, _), instance)| instance.healthy && !all.contains_key(node));
            assert_eq!(healthy, well.count());
            let first = |fault: &NodeIdFault<'_>| match fault {
                NodeIdFault::Shared { first, .. } => first.to_string(),
                NodeIdFault::Missing => "none".to_owned(),
            };
            all.iter().map(|(node, fault)| (node.to_string(), first(fault))).collect::<Vec<_>>()
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

    /// The controller may be another process on another host, so no node half knows.
    #[test]
    fn a_node_without_an_id_is_faulty_only_where_the_controller_attaches() {
        let node = NodeId::new("h1").unwrap();
        let host = NodeId::new("h2").unwrap();
        for (external, controller_service, attaches, is_faulty) in [
            ("", true, Some(true), true),
            ("x", true, Some(true), false),
            ("", true, Some(false), false),
            ("", false, Some(true), false),
            // No controller has said yet whether it attaches.
            ("", true, None, false),
        ] {
            let external_node = external.to_owned();
            let abilities =
                NodeAbilities { external_node, controller_service, ..NodeAbilities::default() };
            let half = Instance { node: Some(abilities), ..instance(true) };
            let mut plugin = Plugin::default();
            plugin.instances.insert((node.clone(), Half::Node), half);
            if let Some(publish_unpublish_volume) = attaches {
                let abilities =
                    ControllerAbilities { publish_unpublish_volume, ..Default::default() };
                let half = Instance { controller: Some(abilities), ..instance(true) };
                plugin.instances.insert((host.clone(), Half::Controller), half);
            }
            let expected = is_faulty.then_some(NodeIdFault::Missing);
            assert_eq!(plugin.node_id_fault(&node), expected, "{plugin:?}");
            assert_eq!(plugin.node_id_faults().get(&node).copied(), expected);
            assert_eq!(plugin.count(Half::Node, |_| true).healthy, usize::from(!is_faulty));
        }
    }

    #[test]
    fn the_first_controller_that_attaches_makes_nodes_without_an_id_faulty() {
        let [h1, h2, h3] = ["h1", "h2", "h3"].map(|node| NodeId::new(node).unwrap());
        let half = |external: &str| {
            let external_node = external.to_owned();
            let abilities =
                NodeAbilities { external_node, controller_service: true, ..Default::default() };
            Instance { node: Some(abilities), ..instance(true) }
        };
        let controller = |publish_unpublish_volume| {
            let abilities = ControllerAbilities { publish_unpublish_volume, ..Default::default() };
            Instance { controller: Some(abilities), ..instance(true) }
        };
        let mut plugin = Plugin::default();
        plugin.instances.insert((h1.clone(), Half::Node), half(""));
        plugin.instances.insert((h2.clone(), Half::Node), half("x"));
        assert_eq!(plugin.unnamed_by_controller(&h3), [&h1; 0], "there is no controller");
        plugin.instances.insert((h3.clone(), Half::Controller), controller(false));
        assert_eq!(plugin.unnamed_by_controller(&h3), [&h1; 0], "it does not attach");
        plugin.instances.insert((h3.clone(), Half::Controller), controller(true));
        assert_eq!(plugin.unnamed_by_controller(&h3), [&h1]);
        plugin.instances.insert((h2.clone(), Half::Controller), controller(true));
        for host in [&h2, &h3] {
            assert_eq!(plugin.unnamed_by_controller(host), [&h1; 0], "it was told of before");
        }
    }
}
