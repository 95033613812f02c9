//! Allocs by what readers look for, so that no reader goes through all allocs.
//!
//! **Owns** the allocs of each owner and of each node, those that their owner may lose, and those
//! that have ended.
//!
//! **Promises** that it equals a fresh index of the same allocs after each change.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use berth_domain::alloc::Alloc;
use berth_domain::{AllocId, Namespace, NodeId, OwnerId, Timestamp};

/// An alloc in its namespace.
pub type AllocKey = (Namespace, AllocId);
/// An owner, by its namespace, its name, and the identity that its allocs were registered by.
pub type OwnerIdentity = (Namespace, OwnerId, Option<String>);

/// The index over all allocs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AllocIndex {
    owned: BTreeMap<OwnerId, BTreeSet<AllocKey>>,
    on_nodes: BTreeMap<NodeId, BTreeSet<AllocKey>>,
    leased: BTreeMap<OwnerIdentity, BTreeSet<AllocId>>,
    ended: BTreeSet<(Timestamp, AllocKey)>,
}

impl AllocIndex {
    /// The allocs of an owner after this one, live or not, in order.
    pub fn owned_by<'a>(
        &'a self,
        owner: &OwnerId,
        after: Option<&AllocKey>,
    ) -> impl Iterator<Item = &'a AllocKey> + use<'a> {
        list(self.owned.get(owner), after)
    }

    /// The allocs on a node after this one, live or not, in order.
    pub fn placed_on<'a>(
        &'a self,
        node: &NodeId,
        after: Option<&AllocKey>,
    ) -> impl Iterator<Item = &'a AllocKey> + use<'a> {
        list(self.on_nodes.get(node), after)
    }

    /// The live allocs that an owner has for as long as it holds its lease, by owner.
    pub fn leased(&self) -> impl Iterator<Item = (&OwnerIdentity, &BTreeSet<AllocId>)> {
        self.leased.iter()
    }

    /// The allocs that ended before the time, the earliest first.
    pub fn ended_before(&self, before: Timestamp) -> impl Iterator<Item = &AllocKey> {
        self.ended.iter().take_while(move |(at, _)| *at < before).map(|(_, key)| key)
    }

    /// Applies a change of one alloc.
    pub(super) fn record_change(
        &mut self,
        key: &AllocKey,
        before: Option<&Alloc>,
        after: Option<&Alloc>,
    ) {
        if let Some(alloc) = before {
            remove(&mut self.on_nodes, &alloc.node, key);
            if let Some(owner) = &alloc.owner {
                remove(&mut self.owned, &owner.name, key);
            }
            if let Some(owner) = leased_by(&key.0, alloc) {
                remove(&mut self.leased, &owner, &key.1);
            }
            self.ended.remove(&(alloc.since, key.clone()));
        }
        if let Some(alloc) = after {
            self.on_nodes.entry(alloc.node.clone()).or_default().insert(key.clone());
            if let Some(owner) = &alloc.owner {
                self.owned.entry(owner.name.clone()).or_default().insert(key.clone());
            }
            if let Some(owner) = leased_by(&key.0, alloc) {
                self.leased.entry(owner).or_default().insert(key.1.clone());
            }
            if alloc.state.is_terminal() {
                self.ended.insert((alloc.since, key.clone()));
            }
        }
    }
}

fn leased_by(namespace: &Namespace, alloc: &Alloc) -> Option<OwnerIdentity> {
    let owner = alloc.leased_owner()?;
    Some((namespace.clone(), owner.name.clone(), alloc.by.clone()))
}

fn list<'a>(
    keys: Option<&'a BTreeSet<AllocKey>>,
    after: Option<&AllocKey>,
) -> impl Iterator<Item = &'a AllocKey> + use<'a> {
    let after = after.cloned().map_or(Bound::Unbounded, Bound::Excluded);
    keys.into_iter().flat_map(move |keys| keys.range((after.clone(), Bound::Unbounded)))
}

fn remove<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, of: &K, value: &V) {
    if let Some(values) = index.get_mut(of) {
        values.remove(value);
        if values.is_empty() {
            index.remove(of);
        }
    }
}
