//! The volumes bucket, as volumes.
//!
//! **Owns** how the keys of a volume combine into its spec, claims and snapshots, and the indexes
//! over all volumes (what is used and unfinished, load, handles, copies, classes).
//!
//! **Promises** that the indexes agree with the volumes after each change, and that an unreadable
//! record counts as unreadable, and not as absent.
//!
//! **Never** writes to the bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use berth_bus::Fold;
use berth_contract::key::{VolumeEntry, parse_volume};
use berth_contract::level::Level;
use berth_contract::record;
use berth_domain::volume::storage::{Operation, Snapshot};
use berth_domain::volume::{
    CallOwner, Claim, Handle, HandleUse, OtherClaim, Policy, State, Volume, VolumeSpec, name_in,
};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, Timestamp, VolumeKey, limits};

use super::change_log::ChangeLog;
use super::classes::Classes;
use super::copies::Copies;
use super::handles::Handles;
use super::listed;
use super::load::{Load, NodeChange};
use super::lost::LostClaims;
use super::subtree::{Subtree, Traced};
use super::time_bounds::TimeBounds;
use super::volume_index::{ClaimKey, RecordFacts, VolumeIndex};
use crate::clock;
use crate::process::chain;

/// All volumes, sorted: a page of a list reads only the volumes that it shows. Each subtree is
/// boxed: a node of the tree has room for more entries than it holds.
#[derive(Debug, Default)]
pub struct Volumes {
    subtrees: BTreeMap<VolumeKey, Box<Subtree>>,
    /// The volumes with a record that cannot be read.
    unreadable: BTreeSet<VolumeKey>,
    index: VolumeIndex,
    /// The plugins that records name, so that the text of each is there once.
    plugins: BTreeSet<PluginId>,
    load: Load,
    handles: Handles,
    copies: Copies,
    classes: Classes,
    bounds: TimeBounds,
    changes: ChangeLog<VolumeChange>,
    lost: LostClaims,
    level: Level,
    /// The number of records with a schema that older versions cannot read.
    newer: usize,
}

/// A volume that changed: its spec, or one of its claims.
#[derive(Debug)]
pub struct VolumeChange {
    /// The volume.
    pub volume: VolumeKey,
    /// Its plugin, before or after the change.
    pub plugin: Option<PluginId>,
    /// The claim that changed; none if the spec changed.
    pub claim: Option<ClaimChange>,
}

/// A claim that changed.
#[derive(Debug)]
pub struct ClaimChange {
    /// The alloc.
    pub alloc: AllocId,
    /// Its node and state before the change; none if it did not exist, or could not be read.
    pub before: Option<(NodeId, State)>,
    /// Its node and state after the change; none if it is gone, or cannot be read.
    pub after: Option<(NodeId, State)>,
}

impl ClaimChange {
    /// Whether the claim matches before or after the change.
    pub fn touches(&self, is_meant: impl Fn(&NodeId, State) -> bool) -> bool {
        let sides = [&self.before, &self.after].into_iter().flatten();
        let mut sides = sides.map(|(node, state)| is_meant(node, *state));
        sides.any(|is_meant| is_meant)
    }
}

impl Volumes {
    /// The claims that were deleted by hand.
    pub fn lost(&self) -> &LostClaims {
        &self.lost
    }

    /// A volume's subtree; none when nothing is below it.
    pub fn get(&self, volume: &VolumeKey) -> Option<&Subtree> {
        self.subtrees.get(volume).map(Box::as_ref)
    }

    /// As [`get`](Self::get), with the stored key.
    pub fn get_key_value(&self, volume: &VolumeKey) -> Option<(&VolumeKey, &Subtree)> {
        self.subtrees.get_key_value(volume).map(|(key, subtree)| (key, subtree.as_ref()))
    }

    /// All subtrees, by namespace and volume.
    pub fn iter(&self) -> impl Iterator<Item = (&VolumeKey, &Subtree)> {
        self.iter_from(None)
    }

    /// The subtrees from this volume on, in the same order; all if `None`.
    pub fn iter_from(
        &self,
        first: Option<&VolumeKey>,
    ) -> impl Iterator<Item = (&VolumeKey, &Subtree)> + use<'_> {
        let first = first.map_or(Bound::Unbounded, Bound::Included);
        let range = self.subtrees.range((first, Bound::Unbounded));
        range.map(|(key, subtree)| (key, subtree.as_ref()))
    }

    /// The subtrees of a namespace, of all for `*`, whose ids begin with the prefix, from this
    /// volume on. Others are not read.
    pub fn iter_listed<'a>(
        &'a self,
        namespace: &'a Namespace,
        prefix: &'a str,
        first: Option<&VolumeKey>,
    ) -> impl Iterator<Item = (&'a VolumeKey, &'a Subtree)> {
        let start = listed::start(namespace, prefix, first);
        listed::cut(namespace, prefix, self.iter_from(start.as_ref()))
    }

    /// As [`iter_listed`](Self::iter_listed), only the volumes that allocs use.
    pub fn iter_used<'a>(
        &'a self,
        namespace: &'a Namespace,
        prefix: &'a str,
        first: Option<&VolumeKey>,
    ) -> impl Iterator<Item = (&'a VolumeKey, &'a Subtree)> {
        let start = listed::start(namespace, prefix, first);
        let used = self.index.used_from(start.as_ref());
        listed::cut(namespace, prefix, used.filter_map(|key| self.get_key_value(key)))
    }

    /// The volumes with a record that cannot be read.
    pub fn iter_unreadable(&self) -> impl Iterator<Item = (&VolumeKey, &Subtree)> {
        self.unreadable.iter().filter_map(|key| self.get_key_value(key))
    }

    /// The claims whose record names no node: an older version wrote them.
    pub fn claims_without_node(&self) -> impl Iterator<Item = &ClaimKey> {
        let first = NodeId::new(record::NODE_UNKNOWN).ok();
        let nodes = first.into_iter().flat_map(|first| self.index.nodes_from(&first));
        let alike = nodes.take_while(|node| node.as_str().starts_with(record::NODE_UNKNOWN));
        let unknown = alike.filter(|node| record::is_node_unknown(node));
        unknown.flat_map(|node| self.index.claims_on(node, None))
    }

    /// The volumes by what a reader looks for.
    pub fn index(&self) -> &VolumeIndex {
        &self.index
    }

    /// The last changes.
    pub fn changes(&self) -> &ChangeLog<VolumeChange> {
        &self.changes
    }

    /// The stored level of records; the first level if none is stored.
    pub fn level(&self) -> &Level {
        &self.level
    }

    /// The newest schema of the records that are there.
    pub fn newest_schema(&self) -> u32 {
        if self.newer > 0 { record::SCHEMA_STORAGE } else { record::SCHEMA }
    }

    /// How many volumes each node has.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// Which volumes are registered for which handle.
    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Which volumes are being created as copies of which.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The classes, and the guards of their quotas.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// The other uses of the handle that a volume has, or is to be registered with. `claims` also
    /// has the other handles that claims of the volume were granted for.
    pub fn handle_use(&self, volume: &VolumeKey, handle: Option<&Handle>) -> HandleUse {
        let strays = self.get(volume).map(|subtree| subtree.stray_handles(handle));
        let strays = strays.unwrap_or_default();
        let others = handle.into_iter().flat_map(|handle| self.other_names(volume, handle));
        let claims = handle.into_iter().chain(&strays);
        HandleUse {
            own: handle.cloned(),
            others: others.map(|other| name_in(&volume.namespace, other)).collect(),
            claims: claims.flat_map(|handle| self.claims_elsewhere(volume, handle)).collect(),
        }
    }

    /// The other volumes that are registered with the handle, and those with claims of it.
    fn other_names<'a>(
        &'a self,
        volume: &'a VolumeKey,
        handle: &Handle,
    ) -> impl Iterator<Item = &'a VolumeKey> + use<'a> {
        let entry = self.handles.get(handle);
        let named =
            entry.into_iter().flat_map(|entry| entry.registered().iter().chain(entry.strays()));
        named.filter(move |other| *other != volume)
    }

    /// The claims of the handle on volumes with other names.
    fn claims_elsewhere<'a>(
        &'a self,
        volume: &'a VolumeKey,
        handle: &'a Handle,
    ) -> impl Iterator<Item = OtherClaim> + 'a {
        let others = self.other_names(volume, handle);
        let others = others.filter_map(|other| Some((other, self.get(other)?)));
        others.flat_map(move |(other, subtree)| {
            let claims = subtree.volume.claims.iter();
            let claims = claims.filter(|(_, claim)| !claim.is_of_other_than(Some(handle)));
            claims.filter_map(|(alloc, claim)| OtherClaim::from_claim(other, handle, alloc, claim))
        })
    }

    /// Bounds the times on records by this policy instead of the default one.
    #[must_use]
    pub fn with_policy(mut self, policy: &Policy) -> Self {
        self.bounds = TimeBounds::of_policy(policy);
        self
    }

    /// Bounds the times of all records by the present time of this host's clock.
    fn bound_times(&mut self, now: Timestamp) {
        for subtree in self.subtrees.values_mut() {
            let Volume { spec, claims, snapshots, .. } = &mut subtree.volume;
            if let Some(operation) = spec.as_mut().and_then(operation_of) {
                self.bounds.bound_progress(&mut operation.progress.calls, now);
            }
            snapshots.change(|snapshots| {
                for snapshot in snapshots.values_mut() {
                    self.bounds.bound_progress(&mut snapshot.progress.calls, now);
                }
            });
            let timed = claims.iter().filter(|(_, claim)| {
                claim.progress.attempt.is_some()
                    || claim.progress.next_try.is_some()
                    || claim.place_until.is_some()
            });
            let timed: Vec<_> = timed.map(|(alloc, one)| (alloc.clone(), one.clone())).collect();
            for (alloc, mut claim) in timed {
                self.bounds.bound_claim(&mut claim, now);
                claims.insert(alloc, claim);
            }
        }
    }

    /// How many volumes there are.
    pub fn len(&self) -> usize {
        self.subtrees.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.subtrees.is_empty()
    }

    /// Has the id share the text of those before it.
    fn share_plugin(&mut self, plugin: &mut PluginId) {
        match self.plugins.get(plugin) {
            Some(known) => *plugin = known.clone(),
            None => drop(self.plugins.insert(plugin.clone())),
        }
    }

    /// Has the spec share what it has in common with others: its plugin, and what is equal in the
    /// volume before it. Volumes of one class or of one use often have names of one kind.
    fn share_with_neighbour(&mut self, volume: &VolumeKey, spec: &mut VolumeSpec) {
        self.share_plugin(&mut spec.plugin);
        let neighbour = self.subtrees.range(..volume).next_back();
        if let Some(known) = neighbour.and_then(|(_, before)| before.volume.spec.as_ref()) {
            spec.share_with(known);
        }
    }

    /// Has the claim share the texts of its node and its plugin with others.
    fn share_texts(&mut self, claim: &mut Claim, alloc: &AllocId) {
        assign_unknown_node(claim, alloc);
        if let Some(node) = self.index.stored_node(&claim.node) {
            claim.node = node.clone();
        }
        if let Some(plugin) = &mut claim.plugin {
            self.share_plugin(plugin);
        }
    }

    /// The volume's id as it is stored, so that its text is there once.
    fn stored_key(&self, volume: VolumeKey) -> VolumeKey {
        if let Some((stored, _)) = self.subtrees.get_key_value(&volume) {
            return stored.clone();
        }
        let before = self.subtrees.range(..&volume).next_back();
        match before.filter(|(before, _)| before.namespace == volume.namespace) {
            Some((before, _)) => VolumeKey::new(before.namespace.clone(), volume.volume),
            None => volume,
        }
    }

    fn change(
        &mut self,
        volume: VolumeKey,
        owner: CallOwner,
        revision: u64,
        change: impl FnOnce(&mut Subtree) -> NodeChange,
    ) {
        let volume = self.stored_key(volume);
        let subtree = self.subtrees.entry(volume.clone()).or_default();
        let indexed_before = RecordFacts::read(&subtree.volume, &owner);
        let before = subtree.plugin().cloned();
        let claim = match &owner {
            CallOwner::Claim(alloc) => Some(alloc.clone()),
            CallOwner::Volume | CallOwner::Snapshot(_) => None,
        };
        let facts = |subtree: &Subtree| {
            let claim = subtree.volume.claims.get(claim.as_ref()?)?;
            Some((claim.node.clone(), claim.state))
        };
        let claim_before = facts(subtree);
        let handle = |subtree: &Subtree| {
            subtree.volume.spec.as_ref().and_then(|spec| spec.handle(&volume.volume))
        };
        let known_as = handle(subtree);
        let strays_before = subtree.stray_handles(known_as.as_ref());
        let claimed_before = subtree.claimed_handle(claim.as_ref());
        let copied = Copies::source_of(&volume, &subtree.volume);
        let newer_before = subtree.count_newer();
        let moved = change(subtree);
        self.newer = (self.newer + subtree.count_newer()).saturating_sub(newer_before);
        let changed_claim = claim.clone();
        let claim_after = facts(subtree);
        let indexed = RecordFacts::read(&subtree.volume, &owner);
        self.index.record_change(&volume, &owner, &indexed_before, &indexed);
        let changed = VolumeChange {
            volume: volume.clone(),
            plugin: before.clone().or_else(|| subtree.plugin().cloned()),
            claim: claim.map(|alloc| ClaimChange {
                alloc,
                before: claim_before,
                after: claim_after,
            }),
        };
        self.changes.record(revision, changed);
        let claimed_after = subtree.claimed_handle(changed_claim.as_ref());
        subtree.count_claimed(claimed_before, claimed_after);
        let is_known_as = handle(subtree);
        let strays = subtree.stray_handles(is_known_as.as_ref());
        self.handles.record_strays(&volume, strays_before, strays);
        self.handles.record_change(&volume, known_as, is_known_as);
        self.copies.record_change(&volume, copied, Copies::source_of(&volume, &subtree.volume));
        self.load.record_change((before, subtree.plugin()), moved, &subtree.volume.claims);
        subtree.head = subtree.head.max(revision);
        if subtree.unreadable().is_empty() {
            self.unreadable.remove(&volume);
        } else {
            self.unreadable.insert(volume.clone());
        }
        let gone = subtree.volume.spec.is_none()
            && subtree.volume.claims.is_empty()
            && subtree.volume.snapshots.is_empty()
            && subtree.unreadable().is_empty();
        if gone {
            self.subtrees.remove(&volume);
        }
    }
}

impl Fold for Volumes {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        match parse_volume(key) {
            Some(VolumeEntry::Spec(volume)) => {
                let mut read = record::read::<VolumeSpec>(value);
                if let Ok(record) = &mut read {
                    self.share_with_neighbour(&volume, &mut record.body);
                }
                let bounds = self.bounds;
                self.change(volume, CallOwner::Volume, revision, |subtree| {
                    let Some(record) = subtree.readable(key, read) else {
                        return NodeChange::default();
                    };
                    let mut spec = record.body;
                    if spec.create_index == 0 {
                        spec.create_index = revision;
                    }
                    let is_busy = spec.operation().is_some();
                    subtree.keep_trace(None, record.trace.filter(|_| is_busy));
                    if let Some(operation) = operation_of(&mut spec) {
                        bounds.bound_progress(&mut operation.progress.calls, clock::now());
                    }
                    subtree.volume.spec = Some(spec);
                    NodeChange::default()
                });
            }
            Some(VolumeEntry::Claim(volume, alloc)) => {
                self.lost.record_claim(&volume, &alloc);
                let mut read = record::read::<Claim>(value);
                if let Ok(record) = &mut read {
                    self.share_texts(&mut record.body, &alloc);
                }
                let (bounds, owner) = (self.bounds, CallOwner::Claim(alloc.clone()));
                self.change(volume, owner, revision, |subtree| {
                    let Some(record) = subtree.readable(key, read) else {
                        return NodeChange::default();
                    };
                    let mut claim = record.body;
                    if claim.epoch == 0 {
                        claim.epoch = revision;
                    }
                    bounds.bound_claim(&mut claim, clock::now());
                    let trail = record.trail.map(Traced::Trail);
                    let traced = trail.or(record.trace.map(Traced::Change));
                    subtree.keep_claim_trace(&alloc, traced);
                    NodeChange::by(&mut subtree.volume.claims, alloc, Some(claim))
                });
            }
            Some(VolumeEntry::Snapshot(volume, id)) => {
                let read = record::read::<Snapshot>(value);
                let bounds = self.bounds;
                let owner = CallOwner::Snapshot(id.clone());
                self.change(volume, owner, revision, |subtree| {
                    let Some(record) = subtree.readable(key, read) else {
                        return NodeChange::default();
                    };
                    let mut snapshot = record.body;
                    if snapshot.create_index == 0 {
                        snapshot.create_index = revision;
                    }
                    bounds.bound_progress(&mut snapshot.progress.calls, clock::now());
                    let is_busy = snapshot.call().is_some();
                    subtree.keep_trace(Some(id.clone()), record.trace.filter(|_| is_busy));
                    subtree.volume.snapshots.change(|all| all.insert(id, Box::new(snapshot)));
                    NodeChange::default()
                });
            }
            Some(VolumeEntry::Handle(mut handle)) => {
                self.share_plugin(&mut handle.plugin);
                self.handles.put(key, handle, revision, value);
            }
            Some(VolumeEntry::Class(class)) => self.classes.put(key, class, revision, value),
            Some(VolumeEntry::Quota(class, namespace)) => {
                self.classes.put_quota(class, namespace, revision);
            }
            Some(VolumeEntry::Level) => match record::read::<Level>(value) {
                Ok(record) => self.level = record.body,
                // Without a readable level, the claim service does not raise the level.
                Err(error) => {
                    let error = chain(&error);
                    tracing::error!(key, error, "the level of records cannot be read");
                }
            },
            None => tracing::warn!(key, "the volumes bucket has a key that is not Berth's"),
        }
    }

    fn delete(&mut self, key: &str, revision: u64) {
        match parse_volume(key) {
            Some(VolumeEntry::Spec(volume)) => {
                self.change(volume, CallOwner::Volume, revision, |subtree| {
                    subtree.forget_unreadable(key);
                    subtree.keep_trace(None, None);
                    subtree.volume.spec = None;
                    NodeChange::default()
                });
            }
            Some(VolumeEntry::Claim(volume, alloc)) => {
                let (lost, name) = (self.lost.clone(), volume.clone());
                let owner = CallOwner::Claim(alloc.clone());
                self.change(volume, owner, revision, |subtree| {
                    if let Some(claim) = subtree.volume.claims.get(&alloc) {
                        lost.record_deletion(&name, &alloc, claim);
                    }
                    subtree.forget_unreadable(key);
                    subtree.keep_claim_trace(&alloc, None);
                    NodeChange::by(&mut subtree.volume.claims, alloc, None)
                });
            }
            Some(VolumeEntry::Snapshot(volume, id)) => {
                let owner = CallOwner::Snapshot(id.clone());
                self.change(volume, owner, revision, |subtree| {
                    subtree.forget_unreadable(key);
                    subtree.keep_trace(Some(id.clone()), None);
                    subtree.volume.snapshots.change(|all| all.remove(&id));
                    NodeChange::default()
                });
            }
            Some(VolumeEntry::Handle(handle)) => self.handles.delete(handle),
            Some(VolumeEntry::Class(class)) => self.classes.delete(&class),
            Some(VolumeEntry::Quota(class, namespace)) => {
                self.classes.put_quota(class, namespace, revision);
            }
            Some(VolumeEntry::Level) => self.level = Level::default(),
            None => {}
        }
    }

    fn clock_set_back(&mut self) {
        self.bound_times(clock::now());
    }
}

fn operation_of(spec: &mut VolumeSpec) -> Option<&mut Operation> {
    spec.storage.as_mut()?.operation.as_mut()
}

/// Gives a claim on an unknown node a node of its own. Two such claims must not count as claims on
/// one node, because then one of them would be deleted without a call (rule 9).
fn assign_unknown_node(claim: &mut Claim, alloc: &AllocId) {
    if claim.node.as_str() == record::NODE_UNKNOWN {
        let (unknown, mut alloc) = (record::NODE_UNKNOWN, alloc.to_string());
        while unknown.len() + 1 + alloc.len() > limits::ID_BYTES_MAX {
            alloc.pop();
        }
        if let Ok(node) = NodeId::new(format!("{unknown}/{alloc}")) {
            claim.node = node;
        }
    }
}

#[cfg(test)]
mod indexes;
#[cfg(test)]
mod tests;
