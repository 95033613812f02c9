//! Volumes by what readers look for, so that no reader goes through all volumes.
//!
//! **Owns** the claims of each node, the volumes that allocs use, unfinished work, closing volumes,
//! and what is used of each class.
//!
//! **Promises** that it equals a fresh index of the same volumes after each change. A volume that
//! no alloc uses, and that nothing is done with, costs no memory here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use berth_domain::class::ClassUse;
use berth_domain::volume::{CallOwner, State, Volume, VolumeSpec};
use berth_domain::{AllocId, ClassId, Namespace, NodeId, VolumeKey};

/// A claim, by its volume and alloc.
pub type ClaimKey = (VolumeKey, AllocId);

/// The index over all volumes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VolumeIndex {
    on_nodes: BTreeMap<NodeId, BTreeSet<ClaimKey>>,
    used: BTreeSet<VolumeKey>,
    unfinished: BTreeSet<(VolumeKey, CallOwner)>,
    closing: BTreeSet<VolumeKey>,
    waiting: usize,
    storage_changes: usize,
    classes: BTreeMap<(ClassId, Namespace), Sum>,
}

/// The volumes of a class in a namespace. The sum of their bytes may be more than a quota can name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    volumes: u64,
    bytes: u128,
}

impl VolumeIndex {
    /// The nodes with claims, from this one on.
    pub(super) fn nodes_from(&self, first: &NodeId) -> impl Iterator<Item = &NodeId> + use<'_> {
        self.on_nodes.range(first..).map(|(node, _)| node)
    }

    /// The node's id as it is stored, which is shared by all its claims.
    pub(super) fn stored_node(&self, node: &NodeId) -> Option<&NodeId> {
        self.on_nodes.get_key_value(node).map(|(stored, _)| stored)
    }

    /// The claims on a node, in any state: those after this one, by volume and alloc.
    pub fn claims_on<'a>(
        &'a self,
        node: &NodeId,
        after: Option<&ClaimKey>,
    ) -> impl Iterator<Item = &'a ClaimKey> + use<'a> {
        let claims = self.on_nodes.get(node).into_iter();
        let after = after.cloned().map_or(Bound::Unbounded, Bound::Excluded);
        claims.flat_map(move |claims| claims.range((after.clone(), Bound::Unbounded)))
    }

    /// The volumes that allocs use, from this one on: those with a claim, and those that were
    /// created for an alloc.
    pub fn used_from(
        &self,
        first: Option<&VolumeKey>,
    ) -> impl Iterator<Item = &VolumeKey> + use<'_> {
        let first = first.map_or(Bound::Unbounded, Bound::Included);
        self.used.range((first, Bound::Unbounded))
    }

    /// The volumes with work that is unfinished by its own record: a claim that is not taken, a
    /// change of the storage, or a snapshot with a call.
    pub fn unfinished(&self) -> impl Iterator<Item = &VolumeKey> {
        let mut last = None;
        let volumes = self.unfinished.iter().map(|(volume, _)| volume);
        volumes.filter(move |volume| last.replace(*volume) != Some(*volume))
    }

    /// The volumes that are being deregistered.
    pub fn closing(&self) -> impl Iterator<Item = &VolumeKey> {
        self.closing.iter()
    }

    /// How many claims are in line.
    pub fn count_waiting(&self) -> usize {
        self.waiting
    }

    /// How many changes of the storage are under way, those of snapshots included.
    pub fn count_storage_changes(&self) -> usize {
        self.storage_changes
    }

    /// What a namespace has of a class.
    pub fn class_use(&self, class: &ClassId, namespace: &Namespace) -> ClassUse {
        let sum = self.classes.get(&(class.clone(), namespace.clone()));
        sum.map_or_else(ClassUse::default, Sum::to_use)
    }

    /// What a namespace has of each class; for `*`, what all have together.
    pub fn class_uses(&self, namespace: &Namespace) -> BTreeMap<ClassId, ClassUse> {
        let mut uses: BTreeMap<ClassId, ClassUse> = BTreeMap::new();
        for ((class, _), sum) in self.classes.iter().filter(|((_, of), _)| namespace.covers(of)) {
            let (of_class, more) = (uses.entry(class.clone()).or_default(), sum.to_use());
            of_class.volumes += more.volumes;
            of_class.bytes = of_class.bytes.saturating_add(more.bytes);
        }
        uses
    }

    /// Applies a change of one record of the volume.
    pub(super) fn record_change(
        &mut self,
        volume: &VolumeKey,
        owner: &CallOwner,
        before: &RecordFacts,
        after: &RecordFacts,
    ) {
        if before == after {
            return;
        }
        let key = || volume.clone();
        follow(&mut self.used, before.is_used, after.is_used, key);
        follow(&mut self.closing, before.is_closing, after.is_closing, key);
        let work = || (volume.clone(), owner.clone());
        follow(&mut self.unfinished, before.is_unfinished(), after.is_unfinished(), work);
        for (count, of) in [
            (&mut self.waiting, RecordFacts::is_waiting as fn(&RecordFacts) -> bool),
            (&mut self.storage_changes, |facts| facts.changes_storage),
        ] {
            *count = (*count + usize::from(of(after))).saturating_sub(usize::from(of(before)));
        }
        if before.node() != after.node() {
            self.move_claim(volume, before, after);
        }
        if before.class != after.class {
            self.change_class(&volume.namespace, before, after);
        }
    }

    fn move_claim(&mut self, volume: &VolumeKey, before: &RecordFacts, after: &RecordFacts) {
        if let Some((alloc, node, _)) = &before.claim
            && let Some(claims) = self.on_nodes.get_mut(node)
        {
            claims.remove(&(volume.clone(), alloc.clone()));
            if claims.is_empty() {
                self.on_nodes.remove(node);
            }
        }
        if let Some((alloc, node, _)) = &after.claim {
            let claims = self.on_nodes.entry(node.clone()).or_default();
            claims.insert((volume.clone(), alloc.clone()));
        }
    }

    fn change_class(&mut self, namespace: &Namespace, before: &RecordFacts, after: &RecordFacts) {
        if let Some((class, bytes)) = &before.class {
            let key = (class.clone(), namespace.clone());
            if let Some(sum) = self.classes.get_mut(&key) {
                sum.volumes -= 1;
                sum.bytes -= u128::from(*bytes);
                if sum.volumes == 0 {
                    self.classes.remove(&key);
                }
            }
        }
        if let Some((class, bytes)) = &after.class {
            let sum = self.classes.entry((class.clone(), namespace.clone())).or_default();
            sum.volumes += 1;
            sum.bytes += u128::from(*bytes);
        }
    }
}

impl Sum {
    fn to_use(&self) -> ClassUse {
        ClassUse { volumes: self.volumes, bytes: u64::try_from(self.bytes).unwrap_or(u64::MAX) }
    }
}

/// Keeps the key in the set while it belongs there.
fn follow<K: Ord>(set: &mut BTreeSet<K>, was: bool, is: bool, key: impl FnOnce() -> K) {
    match (was, is) {
        (false, true) => drop(set.insert(key())),
        (true, false) => drop(set.remove(&key())),
        _ => {}
    }
}

/// What the index has of one record, and of its volume.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RecordFacts {
    /// A claim's alloc, node and state.
    claim: Option<(AllocId, NodeId, State)>,
    /// The class of a spec, and the bytes that the volume counts for.
    class: Option<(ClassId, u64)>,
    changes_storage: bool,
    is_closing: bool,
    /// Of the volume: whether an alloc uses it.
    is_used: bool,
}

impl RecordFacts {
    pub(super) fn read(volume: &Volume, owner: &CallOwner) -> Self {
        let spec = volume.spec.as_ref();
        let made_for_run = |spec: &VolumeSpec| {
            spec.provision().is_some_and(|provision| provision.for_alloc.is_some())
        };
        let is_used = !volume.claims.is_empty() || spec.is_some_and(made_for_run);
        let facts = Self { is_used, ..Self::default() };
        match owner {
            CallOwner::Claim(alloc) => {
                let claim = volume.claims.get_key_value(alloc);
                let claim =
                    claim.map(|(alloc, claim)| (alloc.clone(), claim.node.clone(), claim.state));
                Self { claim, ..facts }
            }
            CallOwner::Volume => {
                let Some(spec) = spec else { return facts };
                let class = spec.provision().and_then(|provision| provision.class.clone());
                Self {
                    class: class.map(|class| (class, spec.counted_bytes())),
                    changes_storage: spec.operation().is_some(),
                    is_closing: spec.closing.is_some(),
                    ..facts
                }
            }
            CallOwner::Snapshot(id) => {
                let snapshot = volume.snapshots.get(id);
                let changes_storage = snapshot.is_some_and(|snapshot| snapshot.call().is_some());
                Self { changes_storage, ..facts }
            }
        }
    }

    fn state(&self) -> Option<State> {
        self.claim.as_ref().map(|(_, _, state)| *state)
    }

    fn node(&self) -> Option<&NodeId> {
        self.claim.as_ref().map(|(_, node, _)| node)
    }

    fn is_waiting(&self) -> bool {
        self.state() == Some(State::Waiting)
    }

    fn is_unfinished(&self) -> bool {
        self.changes_storage || self.state().is_some_and(|state| state != State::Taken)
    }
}
