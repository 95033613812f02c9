//! The registry's buckets, as plugins and nodes.

use std::collections::{BTreeMap, BTreeSet};

use berth_bus::Fold;
use berth_contract::key;
use berth_contract::record::{self, UnreadableRecord};
use berth_domain::plugin::{Instance, Job, Node, NodeState, Plugin, UnaccountedMount};
use berth_domain::{NodeId, PluginId, VolumeKey};

/// All plugin instances and the jobs that provide plugins, folded into plugins.
#[derive(Debug, Default)]
pub struct Instances {
    plugins: BTreeMap<PluginId, Plugin>,
    /// Records of instances and jobs that this version cannot read, by plugin and key.
    unreadable: BTreeMap<(PluginId, String), UnreadableRecord>,
}

impl Instances {
    /// A plugin; none when it has neither instance nor job.
    pub fn get(&self, plugin: &PluginId) -> Option<&Plugin> {
        self.plugins.get(plugin)
    }

    /// All plugins, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&PluginId, &Plugin)> {
        self.plugins.iter()
    }

    /// Records of the plugin that this version cannot read.
    pub fn unreadable_of(&self, plugin: &PluginId) -> impl Iterator<Item = &UnreadableRecord> {
        let from = (plugin.clone(), String::new());
        let all = self.unreadable.range(from..).take_while(move |((of, _), _)| of == plugin);
        all.map(|(_, record)| record)
    }

    /// All records that this version cannot read.
    pub fn unreadable(&self) -> impl Iterator<Item = &UnreadableRecord> {
        self.unreadable.values()
    }

    /// Reads the record at the key. If this version cannot read it, the earlier record stays.
    fn readable<T: record::Body>(&mut self, of: &PluginId, key: &str, value: &[u8]) -> Option<T> {
        let place = (of.clone(), key.to_owned());
        match readable(key, value) {
            Ok(body) => {
                self.unreadable.remove(&place);
                Some(body)
            }
            Err(unreadable) => {
                self.unreadable.insert(place, unreadable);
                None
            }
        }
    }
}

impl Instances {
    /// Changes a plugin, and removes it when it has no instance and no job (D4).
    fn change(&mut self, id: PluginId, change: impl FnOnce(&mut Plugin)) {
        let plugin = self.plugins.entry(id.clone()).or_default();
        change(plugin);
        if plugin.is_empty() {
            self.plugins.remove(&id);
        }
    }
}

impl Fold for Instances {
    fn put(&mut self, key: &str, _revision: u64, value: &[u8]) {
        if let Some((plugin, node, half)) = key::parse_instance(key) {
            if let Some(instance) = self.readable::<Instance>(&plugin, key, value) {
                self.change(plugin, |plugin| {
                    plugin.instances.insert((node, half), instance);
                });
            }
        } else if let Some((plugin, namespace, id)) = key::parse_job(key) {
            if let Some(job) = self.readable::<Job>(&plugin, key, value) {
                self.change(plugin, |plugin| {
                    plugin.jobs.insert((namespace, id), job);
                });
            }
        } else {
            tracing::warn!(key, "the plugins bucket has a key that is not Berth's");
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        if let Some((plugin, node, half)) = key::parse_instance(key) {
            self.unreadable.remove(&(plugin.clone(), key.to_owned()));
            self.change(plugin, |plugin| {
                plugin.instances.remove(&(node, half));
            });
        } else if let Some((plugin, namespace, id)) = key::parse_job(key) {
            self.unreadable.remove(&(plugin.clone(), key.to_owned()));
            self.change(plugin, |plugin| {
                plugin.jobs.remove(&(namespace, id));
            });
        }
    }
}

/// Reads the record at the key, if this version can.
fn readable<T: record::Body>(key: &str, value: &[u8]) -> Result<T, UnreadableRecord> {
    match record::read::<T>(value) {
        Ok(record) => Ok(record.body),
        Err(error) => {
            let unreadable = error.unreadable_at(key);
            tracing::error!(key, error = unreadable.error, "the record cannot be read");
            Err(unreadable)
        }
    }
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    all: BTreeMap<NodeId, (Node, u64)>,
    /// Nodes whose record this version cannot read. Each still counts as a node.
    unreadable: BTreeMap<NodeId, UnreadableRecord>,
    /// Nodes with mounts that no claim covers.
    unaccounted: BTreeSet<NodeId>,
}

impl Nodes {
    /// A node.
    pub fn get(&self, node: &NodeId) -> Option<&Node> {
        self.all.get(node).map(|(node, _)| node)
    }

    /// The revision of a node's record; 0 when it has none.
    pub fn revision(&self, node: &NodeId) -> u64 {
        self.all.get(node).map_or(0, |(_, revision)| *revision)
    }

    /// Whether the node's agent holds its lease.
    pub fn is_ready(&self, node: &NodeId) -> bool {
        self.get(node).is_some_and(|node| node.state == NodeState::Ready)
    }

    /// All nodes, by id, except those whose record this version cannot read.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.all.iter().map(|(id, (node, _))| (id, node))
    }

    /// Mounts that no claim covers, and their nodes. Nodes that count as gone are left out, since
    /// nothing there can write.
    pub fn unaccounted(&self) -> impl Iterator<Item = (&NodeId, &UnaccountedMount)> {
        let nodes = self.unaccounted.iter().filter_map(|id| Some((id, self.get(id)?)));
        let there = nodes.filter(|(_, node)| node.gone.is_none());
        there.flat_map(|(id, node)| node.unaccounted.iter().map(move |mount| (id, mount)))
    }

    /// As [`unaccounted`](Self::unaccounted), for one volume.
    pub fn unaccounted_of<'a>(
        &'a self,
        volume: &'a VolumeKey,
    ) -> impl Iterator<Item = (&'a NodeId, &'a UnaccountedMount)> {
        self.unaccounted().filter(|(_, mount)| mount.is_of(volume))
    }

    /// Nodes whose record this version cannot read.
    pub fn unreadable(&self) -> &BTreeMap<NodeId, UnreadableRecord> {
        &self.unreadable
    }
}

impl Fold for Nodes {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        let Some(id) = key::parse_node(key) else {
            tracing::warn!(key, "the nodes bucket has a key that is not Berth's");
            return;
        };
        match readable::<Node>(key, value) {
            Ok(node) => {
                self.unreadable.remove(&id);
                if node.unaccounted.is_empty() {
                    self.unaccounted.remove(&id);
                } else {
                    self.unaccounted.insert(id.clone());
                }
                self.all.insert(id, (node, revision));
            }
            // The earlier record may be outdated: the node may count as gone by now.
            Err(unreadable) => {
                self.all.remove(&id);
                self.unreadable.insert(id, unreadable);
            }
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        if let Some(id) = key::parse_node(key) {
            self.unreadable.remove(&id);
            self.unaccounted.remove(&id);
            self.all.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCE: &[u8] = br#"{"healthy":true,"description":"","provider":"p","version":"1",
        "since":"2026-01-01T00:00:00Z","schema":1}"#;
    const JOB: &[u8] = br#"{"controllers":2,"nodes":0,"since":"2026-01-01T00:00:00Z","schema":1}"#;

    #[test]
    fn a_plugin_is_there_while_an_instance_or_a_job_is() {
        let plugin = PluginId::new("p").unwrap();
        let mut plugins = Instances::default();
        plugins.put("p.instance.n1.node", 1, INSTANCE);
        plugins.put("p.job.default.csi", 2, JOB);
        plugins.delete("p.instance.n1.node", 3);
        assert!(plugins.get(&plugin).unwrap().has_controller());
        plugins.delete("p.job.default.csi", 4);
        plugins.delete("p.job.default.csi", 5);
        assert_eq!(plugins.iter().count(), 0);
    }

    /// D9: a newer record is kept as such, and an older one is read.
    #[test]
    fn what_a_newer_version_wrote_is_left_alone() {
        let (plugin, node) = (PluginId::new("p").unwrap(), NodeId::new("n1").unwrap());
        let (mut plugins, mut nodes) = (Instances::default(), Nodes::default());
        plugins.put("p.job.default.csi", 1, JOB);
        let before = plugins.get(&plugin).cloned();
        for key in ["p.job.default.csi", "p.instance.n1.node"] {
            plugins.put(key, 2, br#"{"schema":3}"#);
        }
        assert_eq!(plugins.get(&plugin), before.as_ref());
        nodes.put("n1", 1, br#"{"since":"2026-01-01T00:00:00Z"}"#);
        assert_eq!(nodes.get(&node).unwrap().state, NodeState::Down);
        nodes.put("n1", 2, br#"{"schema":3}"#);
        assert!(nodes.get(&node).is_none() && !nodes.is_ready(&node));
        assert_eq!(nodes.unreadable()[&node].key, "n1");
        assert_eq!(plugins.unreadable_of(&plugin).count(), 2);
        plugins.put("p.job.default.csi", 3, JOB);
        assert_eq!(plugins.unreadable().count(), 1);
    }
}
