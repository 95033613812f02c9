//! One node's records: read in the mirrors or at the leader, written one key at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use berth_contract::key;
use berth_contract::trace::TraceContext;
use berth_domain::plugin::{Half, Instance, Node};
use berth_domain::{NodeId, PluginId};
use berth_service::record_table::StoreError;

use super::state::StateInner;

/// The key of an instance among those of its node.
pub type InstanceKey = (PluginId, Half);

/// The records of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRecords {
    pub node: Option<Node>,
    pub instances: BTreeMap<InstanceKey, Instance>,
}

/// A write of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Node(Node),
    /// A new or changed instance.
    Put(InstanceKey, Instance),
    /// An instance that the report does not name any more.
    Delete(InstanceKey),
}

/// A node's records as the leader had them, each with its revision.
#[derive(Debug, Default)]
pub struct RecordSnapshot {
    /// The node's own record, and those of its instances that were read.
    pub records: NodeRecords,
    revisions: HashMap<String, u64>,
}

impl RecordSnapshot {
    /// The revision that guards a write of the key; 0 for a key that was never written.
    pub fn revision(&self, key: &str) -> u64 {
        self.revisions.get(key).copied().unwrap_or(0)
    }
}

impl StateInner {
    /// The node's records as the mirrors have them.
    pub fn mirrored_records(&self, node: &NodeId) -> NodeRecords {
        let mut records = NodeRecords {
            node: self.nodes.mirror.read(|nodes| nodes.get(node).cloned()),
            ..NodeRecords::default()
        };
        self.plugins.mirror.read(|plugins| {
            for (id, plugin) in plugins.iter() {
                for half in [Half::Controller, Half::Node] {
                    if let Some(instance) = plugin.instances.get(&(node.clone(), half)) {
                        records.instances.insert((id.clone(), half), instance.clone());
                    }
                }
            }
        });
        records
    }

    /// Reads these instances of the node at the leader, and then the node's own record. A report
    /// writes the node's record before any instance (see `report::decide`), so a report that was
    /// stored between the two reads is seen in the second.
    pub async fn read_node_records(
        &self,
        node: &NodeId,
        instances: BTreeSet<InstanceKey>,
    ) -> Result<RecordSnapshot, StoreError> {
        let mut snapshot = RecordSnapshot::default();
        for instance in instances {
            let key = key::instance(&instance.0, node, instance.1);
            let (revision, record) = self.plugins.read(&key).await?;
            snapshot.revisions.insert(key, revision);
            snapshot.records.instances.extend(record.map(|record| (instance, record)));
        }
        let key = key::node(node);
        let (revision, record) = self.nodes.read(&key).await?;
        snapshot.revisions.insert(key, revision);
        snapshot.records.node = record;
        Ok(snapshot)
    }

    /// Writes one key, if it is still at the revision of the snapshot.
    pub async fn store(
        &self,
        node: &NodeId,
        snapshot: &RecordSnapshot,
        write: &Write,
        trace: TraceContext,
    ) -> Result<(), StoreError> {
        let key = match write {
            Write::Node(_) => key::node(node),
            Write::Put((plugin, half), _) | Write::Delete((plugin, half)) => {
                key::instance(plugin, node, *half)
            }
        };
        let revision = snapshot.revision(&key);
        match write {
            Write::Node(record) => self.nodes.put(&key, record, revision, trace).await.map(drop),
            Write::Put(_, record) => {
                self.plugins.put(&key, record, revision, trace).await.map(drop)
            }
            Write::Delete(_) => self.plugins.delete(&key, revision, trace).await,
        }
    }
}
