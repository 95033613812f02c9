//! The registry's buckets, as plugins and nodes.

use std::collections::BTreeMap;

use berth_bus::Fold;
use berth_contract::{key, record};
use berth_domain::plugin::{Instance, Node, NodeState, Plugin};
use berth_domain::{NodeId, PluginId};

/// All plugin instances, folded into plugins.
#[derive(Debug, Default)]
pub struct Instances {
    plugins: BTreeMap<PluginId, Plugin>,
}

impl Instances {
    /// A plugin; none when it has no instance.
    pub fn get(&self, plugin: &PluginId) -> Option<&Plugin> {
        self.plugins.get(plugin)
    }

    /// All plugins, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&PluginId, &Plugin)> {
        self.plugins.iter()
    }
}

impl Fold for Instances {
    fn put(&mut self, key: &str, _revision: u64, value: &[u8]) {
        let Some((plugin, node, half)) = key::parse_instance(key) else {
            tracing::warn!(key, "a key that is none of ours is in the plugins bucket");
            return;
        };
        match record::read::<Instance>(value) {
            Ok(record) => {
                let instances = &mut self.plugins.entry(plugin).or_default().instances;
                instances.insert((node, half), record.body);
            }
            Err(error) => tracing::error!(key, error = crate::process::chain(&error), "not read"),
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        let Some((plugin, node, half)) = key::parse_instance(key) else { return };
        if let Some(found) = self.plugins.get_mut(&plugin) {
            found.instances.remove(&(node, half));
            if found.instances.is_empty() {
                self.plugins.remove(&plugin);
            }
        }
    }
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    nodes: BTreeMap<NodeId, Node>,
}

impl Nodes {
    /// A node.
    pub fn get(&self, node: &NodeId) -> Option<&Node> {
        self.nodes.get(node)
    }

    /// Whether the node's agent holds its lease.
    pub fn is_ready(&self, node: &NodeId) -> bool {
        self.get(node).is_some_and(|node| node.state == NodeState::Ready)
    }

    /// All nodes, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.nodes.iter()
    }
}

impl Fold for Nodes {
    fn put(&mut self, key: &str, _revision: u64, value: &[u8]) {
        let Some(id) = key::parse_node(key) else {
            tracing::warn!(key, "a key that is none of ours is in the nodes bucket");
            return;
        };
        match record::read::<Node>(value) {
            Ok(record) => {
                self.nodes.insert(id, record.body);
            }
            Err(error) => tracing::error!(key, error = crate::process::chain(&error), "not read"),
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        if let Some(id) = key::parse_node(key) {
            self.nodes.remove(&id);
        }
    }
}
