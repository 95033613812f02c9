//! The nodes on which a volume is mounted without a claim, found by what is mounted.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::plugin::UnaccountedMount;
use berth_domain::volume::Handle;
use berth_domain::{NodeId, VolumeKey};

/// The nodes that report mounts without a claim.
#[derive(Debug, Default)]
pub(super) struct UnaccountedIndex {
    nodes: BTreeSet<NodeId>,
    by_handle: BTreeMap<Handle, BTreeSet<NodeId>>,
    /// Mounts of which an older agent reported the name only.
    by_name: BTreeMap<VolumeKey, BTreeSet<NodeId>>,
}

impl UnaccountedIndex {
    /// All nodes with such mounts.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.nodes.iter()
    }

    /// The nodes with such mounts that may be of the volume, in order.
    pub(super) fn nodes_with(
        &self,
        volume: &VolumeKey,
        handle: Option<&Handle>,
    ) -> impl Iterator<Item = &NodeId> {
        let of_handle = handle.and_then(|handle| self.by_handle.get(handle));
        let named = self.by_name.get(volume);
        let nodes_found: BTreeSet<&NodeId> = of_handle.into_iter().chain(named).flatten().collect();
        nodes_found.into_iter()
    }

    /// Applies a change of the node's mounts.
    pub(super) fn record_change(
        &mut self,
        node: &NodeId,
        old: &[UnaccountedMount],
        new: &[UnaccountedMount],
    ) {
        for mount in old {
            match mount.handle() {
                Some(handle) => remove(&mut self.by_handle, &handle, node),
                None => remove(&mut self.by_name, &mount.volume_key(), node),
            }
        }
        for mount in new {
            let nodes = match mount.handle() {
                Some(handle) => self.by_handle.entry(handle).or_default(),
                None => self.by_name.entry(mount.volume_key()).or_default(),
            };
            nodes.insert(node.clone());
        }
        if new.is_empty() {
            self.nodes.remove(node);
        } else {
            self.nodes.insert(node.clone());
        }
    }
}

fn remove<K: Ord>(index: &mut BTreeMap<K, BTreeSet<NodeId>>, key: &K, node: &NodeId) {
    if let Some(nodes) = index.get_mut(key) {
        nodes.remove(node);
        if nodes.is_empty() {
            index.remove(key);
        }
    }
}
