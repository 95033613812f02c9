//! The registry's buckets, as plugins and nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use berth_bus::Fold;
use berth_contract::key;
use berth_contract::record::{self, UnreadableRecord};
use berth_domain::plugin::{Instance, Job, Node, NodeState, Plugin, UnaccountedMount};
use berth_domain::volume::Handle;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeKey};

use super::arrivals::Arrivals;
use super::unaccounted::UnaccountedIndex;

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
        let first_key = (plugin.clone(), String::new());
        let records =
            self.unreadable.range(first_key..).take_while(move |((of, _), _)| of == plugin);
        records.map(|(_, record)| record)
    }

    /// All records that this version cannot read.
    pub fn unreadable(&self) -> impl Iterator<Item = &UnreadableRecord> {
        self.unreadable.values()
    }

    /// Reads the record at the key. If this version cannot read it, the earlier record stays.
    fn readable<T: record::Body>(&mut self, of: &PluginId, key: &str, value: &[u8]) -> Option<T> {
        let record_key = (of.clone(), key.to_owned());
        match readable(key, value) {
            Ok(body) => {
                self.unreadable.remove(&record_key);
                Some(body)
            }
            Err(unreadable) => {
                self.unreadable.insert(record_key, unreadable);
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
    /// Where mounts are that no claim covers.
    unaccounted: UnaccountedIndex,
    /// Nodes whose agents have not compared their mounts with the claims since they started.
    uncompared: BTreeSet<NodeId>,
    /// Nodes that do not count as gone, by the incarnation with which they compared their mounts; 0
    /// before they did.
    compared: BTreeMap<u64, BTreeSet<NodeId>>,
    arrivals: Arrivals<NodeId>,
}

impl Nodes {
    /// The nodes whose records changed last.
    pub fn arrivals(&self) -> &Arrivals<NodeId> {
        &self.arrivals
    }

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

    /// The same from this node on; all if `None`.
    pub fn iter_from(&self, first: Option<&NodeId>) -> impl Iterator<Item = (&NodeId, &Node)> {
        let first = first.map_or(Bound::Unbounded, Bound::Included);
        self.all.range((first, Bound::Unbounded)).map(|(id, (node, _))| (id, node))
    }

    /// The nodes whose record this version cannot read, from this node on; all if `None`.
    pub fn iter_unreadable_from(&self, first: Option<&NodeId>) -> impl Iterator<Item = &NodeId> {
        let first = first.map_or(Bound::Unbounded, Bound::Included);
        self.unreadable.range((first, Bound::Unbounded)).map(|(id, _)| id)
    }

    /// Mounts that no claim covers, and their nodes. Nodes that count as gone are left out, since
    /// nothing there can write.
    pub fn unaccounted(&self) -> impl Iterator<Item = (&NodeId, &UnaccountedMount)> {
        self.mounts_on(self.unaccounted.nodes())
    }

    /// The unaccounted mounts that may be of the volume with this name and this handle.
    pub fn unaccounted_of<'a>(
        &'a self,
        volume: &'a VolumeKey,
        handle: Option<&'a Handle>,
    ) -> impl Iterator<Item = (&'a NodeId, &'a UnaccountedMount)> {
        let nodes = self.unaccounted.nodes_with(volume, handle);
        self.mounts_on(nodes).filter(move |(_, mount)| mount.may_be_of(volume, handle))
    }

    fn mounts_on<'a>(
        &'a self,
        nodes: impl Iterator<Item = &'a NodeId>,
    ) -> impl Iterator<Item = (&'a NodeId, &'a UnaccountedMount)> {
        let nodes = nodes.filter_map(|id| Some((id, self.get(id)?)));
        let there = nodes.filter(|(_, node)| node.gone.is_none());
        there.flat_map(|(id, node)| node.unaccounted.iter().map(move |mount| (id, mount)))
    }

    /// Nodes whose mounts are not known: their agents have not reported them since they started, or
    /// their record cannot be read. Nodes that count as gone are left out.
    pub fn silent(&self) -> impl Iterator<Item = &NodeId> {
        let is_gone = |id: &&NodeId| self.get(id).is_some_and(|node| node.gone.is_some());
        self.uncompared.iter().filter(move |id| !is_gone(id)).chain(self.unreadable.keys())
    }

    /// Whether the node may have a mount of the alloc that no claim covers: it has reported one, or
    /// its mounts are not known. A node without a record has none.
    pub fn may_have_mounts(&self, id: &NodeId, namespace: &Namespace, alloc: &AllocId) -> bool {
        let Some(node) = self.get(id) else { return self.unreadable.contains_key(id) };
        let is_of =
            |mount: &UnaccountedMount| (&mount.namespace, &mount.alloc) == (namespace, alloc);
        let is_silent = node.gone.is_some() || node.uncompared || node.state == NodeState::Down;
        is_silent || node.unaccounted.iter().any(is_of)
    }

    /// Nodes that have not compared their mounts with this incarnation of the bucket of claims. A
    /// node whose record cannot be read may not have compared them.
    pub fn unreported(&self, incarnation: u64) -> impl Iterator<Item = &NodeId> {
        let others = self.compared.iter().filter(move |(compared, _)| **compared != incarnation);
        others.flat_map(|(_, nodes)| nodes).chain(self.unreadable.keys())
    }

    fn forget_compared(&mut self, id: &NodeId) {
        let before = self.get(id).and_then(Node::compared_incarnation).unwrap_or(0);
        if let Some(nodes) = self.compared.get_mut(&before) {
            nodes.remove(id);
            if nodes.is_empty() {
                self.compared.remove(&before);
            }
        }
    }

    /// Nodes whose record this version cannot read.
    pub fn unreadable(&self) -> &BTreeMap<NodeId, UnreadableRecord> {
        &self.unreadable
    }
}

impl Nodes {
    fn forget(&mut self, id: &NodeId) {
        if let Some((known, _)) = self.all.remove(id) {
            self.unaccounted.record_change(id, &known.unaccounted, &[]);
        }
        self.uncompared.remove(id);
    }
}

impl Fold for Nodes {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        let Some(id) = key::parse_node(key) else {
            tracing::warn!(key, "the nodes bucket has a key that is not Berth's");
            return;
        };
        self.forget_compared(&id);
        self.arrivals.record(id.clone());
        match readable::<Node>(key, value) {
            Ok(node) => {
                if node.gone.is_none() {
                    let compared = node.compared_incarnation().unwrap_or(0);
                    self.compared.entry(compared).or_default().insert(id.clone());
                }
                self.unreadable.remove(&id);
                let known = self.all.get(&id).map_or(&[][..], |(known, _)| &known.unaccounted);
                self.unaccounted.record_change(&id, known, &node.unaccounted);
                if node.uncompared {
                    self.uncompared.insert(id.clone());
                } else {
                    self.uncompared.remove(&id);
                }
                self.all.insert(id, (node, revision));
            }
            // The earlier record may be outdated: the node may count as gone by now.
            Err(unreadable) => {
                self.forget(&id);
                self.unreadable.insert(id, unreadable);
            }
        }
    }

    fn delete(&mut self, key: &str, _revision: u64) {
        if let Some(id) = key::parse_node(key) {
            self.unreadable.remove(&id);
            self.forget_compared(&id);
            self.forget(&id);
            self.arrivals.record(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::{Namespace, VolumeId};

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

    #[test]
    fn a_node_has_reported_when_it_compared_with_this_incarnation_or_is_gone() {
        let unreported = |nodes: &Nodes, incarnation| -> Vec<String> {
            nodes.unreported(incarnation).map(ToString::to_string).collect()
        };
        let compared = |number: u64| {
            let attributes = format!(r#"{{"compared-incarnation":"{number}"}}"#);
            format!(r#"{{"since":"2026-01-01T00:00:00Z","attributes":{attributes}}}"#)
        };
        let mut nodes = Nodes::default();
        nodes.put("n1", 1, br#"{"since":"2026-01-01T00:00:00Z"}"#);
        nodes.put("n2", 2, compared(7).as_bytes());
        nodes.put("n3", 3, br#"{"schema":3}"#);
        nodes.put(
            "n4",
            4,
            br#"{"since":"2026-01-01T00:00:00Z","gone":{"kind":"powered-off","by":"x",
                "at":"2026-01-01T00:00:00Z"}}"#,
        );
        assert_eq!(unreported(&nodes, 7), ["n1", "n3"]);
        assert_eq!(unreported(&nodes, 8), ["n1", "n2", "n3"]);
        nodes.put("n1", 5, compared(8).as_bytes());
        nodes.put("n2", 6, compared(8).as_bytes());
        nodes.delete("n3", 7);
        assert_eq!(unreported(&nodes, 8), [""; 0]);
        assert_eq!(unreported(&nodes, 7), ["n1", "n2"]);
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

    /// A name may be given again, so a mount is found by what is mounted.
    #[test]
    fn a_mount_without_a_claim_is_found_by_its_handle_and_an_older_one_by_its_name() {
        let key = |id: &str| VolumeKey::new(Namespace::default(), VolumeId::new(id).unwrap());
        let handle = |external_id: &str| Handle {
            plugin: PluginId::new("p").unwrap(),
            external_id: external_id.to_owned(),
        };
        let record = |mounts: &str, more: &str| {
            let mounts = format!(r#""unaccounted":[{mounts}]"#);
            format!(
                r#"{{"since":"2026-01-01T00:00:00Z",{mounts}{more},"schema":1,"state":"ready"}}"#
            )
        };
        let shared = r#"{"namespace":"default","volume":"d","alloc":"a","path":"/p","plugin":"p",
            "external_id":"x"}"#;
        let older = r#"{"namespace":"default","volume":"d","alloc":"a","path":"/p"}"#;
        let mut nodes = Nodes::default();
        nodes.put("n1", 1, record(shared, "").as_bytes());
        nodes.put("n2", 2, record(older, r#","uncompared":true"#).as_bytes());
        let nodes_found = |nodes: &Nodes, id: &str, handle: &Handle| {
            let (key, mut on) = (key(id), Vec::new());
            on.extend(nodes.unaccounted_of(&key, Some(handle)).map(|(node, _)| node.to_string()));
            on
        };
        assert_eq!(nodes_found(&nodes, "d", &handle("x")), ["n1", "n2"]);
        assert_eq!(nodes_found(&nodes, "renamed", &handle("x")), ["n1"]);
        assert_eq!(nodes_found(&nodes, "d", &handle("y")), ["n2"]);
        let silent = |nodes: &Nodes| nodes.silent().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(silent(&nodes), ["n2"]);
        nodes.put("n3", 3, br#"{"schema":99}"#);
        assert_eq!(silent(&nodes), ["n2", "n3"], "a record that cannot be read says nothing");
        // Nothing can write on a node that is gone.
        let gone = r#","uncompared":true,"gone":{"kind":"powered-off","by":"me",
            "at":"2026-01-01T00:00:00Z"}"#;
        nodes.put("n2", 4, record(older, gone).as_bytes());
        nodes.delete("n3", 5);
        assert_eq!((nodes_found(&nodes, "d", &handle("y")).len(), silent(&nodes).len()), (0, 0));
        nodes.put("n1", 6, record("", "").as_bytes());
        assert_eq!(nodes_found(&nodes, "d", &handle("x")), [""; 0]);
        assert_eq!(nodes.unaccounted().count(), 0);
    }
}
