//! One node's records: read at the leader, written one key at a time.

use std::collections::{BTreeSet, HashMap};

use berth_contract::key;
use berth_contract::trace::TraceContext;
use berth_domain::NodeId;
use berth_service::record_table::StoreError;

use crate::decide::{InstanceKey, NodeRecords, Write};
use crate::state::StateInner;

/// A node's records as the leader had them, each with its revision.
#[derive(Debug, Default)]
pub struct RecordSnapshot {
    /// The node's own record and those of its instances that were read.
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
    /// Reads these instances of the node at the leader, and then the node's own record. In this
    /// order, because a report writes the node's record before any instance (see
    /// [`crate::decide`]): a report that was stored between the two reads is seen in the second.
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
