//! The volumes bucket, as volumes.
//!
//! **Owns** what the keys of a volume amount to: its spec, claims and snapshots, and the indexes
//! over all volumes (load, handles, copies, classes).
//!
//! **Promises** that the indexes agree with the volumes after each change, and that a record which
//! cannot be read is known as unreadable, and not as absent.
//!
//! **Never** writes to the bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use berth_bus::Fold;
use berth_contract::key::{VolumeEntry, parse_volume};
use berth_contract::record::{self, RecordError, UnreadableRecord};
use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_domain::volume::storage::{Operation, Snapshot};
use berth_domain::volume::{
    Attempt, Claim, Handle, HandleUse, OtherClaim, State, Volume, VolumeSpec, name_in,
};
use berth_domain::{AllocId, NodeId, PluginId, SnapshotId, VolumeKey, limits};

use super::change_log::ChangeLog;
use super::classes::Classes;
use super::copies::Copies;
use super::handles::Handles;
use super::load::{Load, NodeChange};
use crate::clock;

/// All volumes, sorted: a page of a list reads only the volumes that it shows. Each subtree is
/// boxed: a node of the tree has room for more entries than it holds.
#[derive(Debug, Default)]
pub struct Volumes {
    subtrees: BTreeMap<VolumeKey, Box<Subtree>>,
    /// The volumes with a record that cannot be read.
    unreadable: BTreeSet<VolumeKey>,
    load: Load,
    handles: Handles,
    copies: Copies,
    classes: Classes,
    call_timeout: Option<Duration>,
    changes: ChangeLog<VolumeChange>,
}

/// A volume that changed: its spec, or one of its claims.
#[derive(Debug)]
pub struct VolumeChange {
    /// The volume.
    pub volume: VolumeKey,
    /// Its plugin, as far as it was known before or is since.
    pub plugin: Option<PluginId>,
    /// The claim; none when it is the spec.
    pub claim: Option<ClaimChange>,
}

/// A claim that changed.
#[derive(Debug)]
pub struct ClaimChange {
    /// The alloc.
    pub alloc: AllocId,
    /// Its node and state before, as far as it was there and could be read.
    pub before: Option<(NodeId, State)>,
    /// Its node and state since.
    pub after: Option<(NodeId, State)>,
}

impl ClaimChange {
    /// Whether the claim is of this kind, or was.
    pub fn touches(&self, is_meant: impl Fn(&NodeId, State) -> bool) -> bool {
        let sides = [&self.before, &self.after].into_iter().flatten();
        let mut sides = sides.map(|(node, state)| is_meant(node, *state));
        sides.any(|is_meant| is_meant)
    }
}

/// One volume's subtree.
#[derive(Debug, Default, Clone)]
pub struct Subtree {
    /// The newest revision seen below the volume. It guards writes.
    pub head: u64,
    /// The volume.
    pub volume: Volume,
    /// The trace of each claim, as far as it is recorded.
    traces: BTreeMap<AllocId, Box<Traced>>,
    /// The trace of the last change of the spec (`None`), and of each snapshot that is not at rest.
    storage_traces: BTreeMap<Option<SnapshotId>, String>,
    /// Records of the volume that this version cannot read, by key. While there are any, the volume
    /// is read-only.
    pub unreadable: BTreeMap<String, UnreadableRecord>,
}

/// How a claim can be followed.
#[derive(Debug, Clone)]
enum Traced {
    /// By the spans of the whole claim.
    Trail(Trail),
    /// By the trace of its last change, if no spans are recorded.
    Change(String),
}

impl Volumes {
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
    ) -> impl Iterator<Item = (&VolumeKey, &Subtree)> {
        let first = first.map_or(Bound::Unbounded, Bound::Included);
        let range = self.subtrees.range((first, Bound::Unbounded));
        range.map(|(key, subtree)| (key, subtree.as_ref()))
    }

    /// The volumes with a record that cannot be read.
    pub fn iter_unreadable(&self) -> impl Iterator<Item = (&VolumeKey, &Subtree)> {
        self.unreadable.iter().filter_map(|key| self.get_key_value(key))
    }

    /// The last changes.
    pub fn changes(&self) -> &ChangeLog<VolumeChange> {
        &self.changes
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

    /// The other users of a handle that a volume has, or is to be registered with.
    pub fn handle_use(&self, volume: &VolumeKey, handle: &Handle) -> HandleUse {
        let registered = self.handles.get(handle).map_or(&[][..], |entry| &entry.registered);
        let others = || registered.iter().filter(|other| *other != volume);
        let claims = others().filter_map(|other| Some((other, self.get(other)?)));
        let claims = claims.flat_map(|(other, subtree)| {
            let claims = subtree.volume.claims.iter();
            claims.filter_map(move |(alloc, claim)| OtherClaim::from_claim(other, alloc, claim))
        });
        let named = others().map(|other| name_in(&volume.namespace, other));
        HandleUse { others: named.collect(), claims: claims.collect() }
    }

    /// Bounds the deadlines of attempts by `call_timeout`. The default is [`limits::CALL_TIMEOUT`].
    #[must_use]
    pub fn with_call_timeout(mut self, call_timeout: Duration) -> Self {
        self.call_timeout = Some(call_timeout);
        self
    }

    /// How many volumes there are.
    pub fn len(&self) -> usize {
        self.subtrees.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.subtrees.is_empty()
    }

    fn change(
        &mut self,
        volume: VolumeKey,
        claim: Option<AllocId>,
        revision: u64,
        change: impl FnOnce(&mut Subtree) -> NodeChange,
    ) {
        let subtree = self.subtrees.entry(volume.clone()).or_default();
        let before = subtree.plugin().cloned();
        let facts = |subtree: &Subtree| {
            let claim = subtree.volume.claims.get(claim.as_ref()?)?;
            Some((claim.node.clone(), claim.state))
        };
        let claim_before = facts(subtree);
        let handle = |subtree: &Subtree| {
            subtree.volume.spec.as_ref().and_then(|spec| spec.handle(&volume.volume))
        };
        let known_as = handle(subtree);
        let copied = Copies::source_of(&volume, subtree);
        let moved = change(subtree);
        let claim_after = facts(subtree);
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
        self.handles.record_change(&volume, known_as, handle(subtree));
        self.copies.record_change(&volume, copied, Copies::source_of(&volume, subtree));
        self.load.record_change((before, subtree.plugin()), moved, &subtree.volume.claims);
        subtree.head = subtree.head.max(revision);
        if subtree.unreadable.is_empty() {
            self.unreadable.remove(&volume);
        } else {
            self.unreadable.insert(volume.clone());
        }
        let gone = subtree.volume.spec.is_none()
            && subtree.volume.claims.is_empty()
            && subtree.volume.snapshots.is_empty()
            && subtree.unreadable.is_empty();
        if gone {
            self.subtrees.remove(&volume);
        }
    }
}

impl Fold for Volumes {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        match parse_volume(key) {
            Some(VolumeEntry::Spec(volume)) => {
                let read = record::read::<VolumeSpec>(value);
                let call_timeout = self.call_timeout.unwrap_or(limits::CALL_TIMEOUT);
                self.change(volume, None, revision, |subtree| {
                    let Some(record) = subtree.readable(key, read) else {
                        return NodeChange::default();
                    };
                    let mut spec = record.body;
                    if spec.create_index == 0 {
                        spec.create_index = revision;
                    }
                    let is_busy = spec.operation().is_some();
                    subtree.keep_trace(None, record.trace.filter(|_| is_busy));
                    let operation =
                        spec.storage.as_mut().and_then(|storage| storage.operation.as_mut());
                    bound(operation.and_then(attempt_of_operation), call_timeout);
                    subtree.volume.spec = Some(spec);
                    NodeChange::default()
                });
            }
            Some(VolumeEntry::Claim(volume, alloc)) => {
                let read = record::read::<Claim>(value);
                let call_timeout = self.call_timeout.unwrap_or(limits::CALL_TIMEOUT);
                self.change(volume, Some(alloc.clone()), revision, |subtree| {
                    let Some(record) = subtree.readable(key, read) else {
                        return NodeChange::default();
                    };
                    let mut claim = record.body;
                    if claim.epoch == 0 {
                        claim.epoch = revision;
                    }
                    assign_unknown_node(&mut claim, &alloc);
                    bound(claim.attempt.as_mut(), call_timeout);
                    let trail = record.trail.map(Traced::Trail);
                    match trail.or(record.trace.map(Traced::Change)) {
                        Some(traced) => subtree.traces.insert(alloc.clone(), Box::new(traced)),
                        None => subtree.traces.remove(&alloc),
                    };
                    NodeChange::by(&mut subtree.volume.claims, alloc, Some(claim))
                });
            }
            Some(VolumeEntry::Snapshot(volume, id)) => {
                let read = record::read::<Snapshot>(value);
                let call_timeout = self.call_timeout.unwrap_or(limits::CALL_TIMEOUT);
                self.change(volume, None, revision, |subtree| {
                    let Some(record) = subtree.readable(key, read) else {
                        return NodeChange::default();
                    };
                    let mut snapshot = record.body;
                    if snapshot.create_index == 0 {
                        snapshot.create_index = revision;
                    }
                    bound(snapshot.progress.attempt.as_mut(), call_timeout);
                    let is_busy = snapshot.call().is_some();
                    subtree.keep_trace(Some(id.clone()), record.trace.filter(|_| is_busy));
                    subtree.volume.snapshots.insert(id, Box::new(snapshot));
                    NodeChange::default()
                });
            }
            Some(VolumeEntry::Handle(handle)) => self.handles.put(key, handle, revision, value),
            Some(VolumeEntry::Class(class)) => self.classes.put(key, class, revision, value),
            Some(VolumeEntry::Quota(class, namespace)) => {
                self.classes.put_quota(class, namespace, revision);
            }
            None => tracing::warn!(key, "the volumes bucket has a key that is not Berth's"),
        }
    }

    fn delete(&mut self, key: &str, revision: u64) {
        match parse_volume(key) {
            Some(VolumeEntry::Spec(volume)) => self.change(volume, None, revision, |subtree| {
                subtree.unreadable.remove(key);
                subtree.keep_trace(None, None);
                subtree.volume.spec = None;
                NodeChange::default()
            }),
            Some(VolumeEntry::Claim(volume, alloc)) => {
                self.change(volume, Some(alloc.clone()), revision, |subtree| {
                    subtree.unreadable.remove(key);
                    subtree.traces.remove(&alloc);
                    NodeChange::by(&mut subtree.volume.claims, alloc, None)
                });
            }
            Some(VolumeEntry::Snapshot(volume, id)) => {
                self.change(volume, None, revision, |subtree| {
                    subtree.unreadable.remove(key);
                    subtree.keep_trace(Some(id.clone()), None);
                    subtree.volume.snapshots.remove(&id);
                    NodeChange::default()
                });
            }
            Some(VolumeEntry::Handle(handle)) => self.handles.delete(handle),
            Some(VolumeEntry::Class(class)) => self.classes.delete(&class),
            Some(VolumeEntry::Quota(class, namespace)) => {
                self.classes.put_quota(class, namespace, revision);
            }
            None => {}
        }
    }
}

impl Subtree {
    /// The trace of a claim's last change.
    pub fn trace(&self, alloc: &AllocId) -> Option<String> {
        Some(match self.traces.get(alloc)?.as_ref() {
            Traced::Trail(trail) => trail.now().trace_id(),
            Traced::Change(trace) => trace.clone(),
        })
    }

    /// The spans of a claim, as far as they are recorded.
    pub fn trail(&self, alloc: &AllocId) -> Option<Trail> {
        match self.traces.get(alloc)?.as_ref() {
            Traced::Trail(trail) => Some(*trail),
            Traced::Change(_) => None,
        }
    }

    /// A context within the trace of the volume's operation, or of a snapshot's calls.
    pub fn storage_trace(&self, snapshot: Option<&SnapshotId>) -> Option<TraceContext> {
        TraceContext::resume(self.storage_traces.get(&snapshot.cloned())?)
    }

    fn keep_trace(&mut self, of: Option<SnapshotId>, trace: Option<String>) {
        match trace {
            Some(trace) => drop(self.storage_traces.insert(of, trace)),
            None => drop(self.storage_traces.remove(&of)),
        }
    }

    /// The unreadable record that makes the volume read-only here, if there is one.
    pub fn first_unreadable(&self) -> Option<&UnreadableRecord> {
        self.unreadable.values().next()
    }

    fn plugin(&self) -> Option<&PluginId> {
        self.volume.spec.as_ref().map(|spec| &spec.plugin)
    }

    fn readable<T>(
        &mut self,
        key: &str,
        read: Result<record::Record<T>, RecordError>,
    ) -> Option<record::Record<T>> {
        match read {
            Ok(record) => {
                self.unreadable.remove(key);
                Some(record)
            }
            Err(error) => {
                let unreadable = error.unreadable_at(key);
                tracing::error!(key, error = unreadable.error, "the volume is read-only here");
                self.unreadable.insert(key.to_owned(), unreadable);
                None
            }
        }
    }
}

/// Bounds a deadline that a wrong clock wrote.
fn bound(attempt: Option<&mut Attempt>, call_timeout: Duration) {
    if let Some(attempt) = attempt {
        attempt.bound_deadline(clock::now(), call_timeout);
    }
}

fn attempt_of_operation(operation: &mut Operation) -> Option<&mut Attempt> {
    operation.progress.attempt.as_mut()
}

/// Gives a claim on an unknown node a node of its own. Two such claims must not count as claims on
/// one node: one claim would leave its node to the other (rule 9).
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
mod tests {
    use berth_domain::access::Mode;
    use berth_domain::volume::State;

    use super::*;

    const SPEC: &[u8] = br#"{"plugin":"p","capabilities":[{"access":"single-node-writer",
        "attachment":"file-system"}],"schema":1}"#;
    const CLAIM: &[u8] = br#"{"state":"taken","node":"n1","mode":"write",
        "since":"2026-01-01T00:00:00Z","access":"single-node-writer","attachment":"file-system",
        "controller":false,"trace":"t1","schema":1}"#;

    fn volume() -> VolumeKey {
        match parse_volume("default.data.spec") {
            Some(VolumeEntry::Spec(volume)) => volume,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_fold_into_volumes_and_epochs_are_filled_in() {
        let mut volumes = Volumes::default();
        volumes.put("default.data.spec", 3, SPEC);
        volumes.put("default.data.claim.a", 7, CLAIM);
        let subtree = volumes.get(&volume()).unwrap();
        assert_eq!(subtree.head, 7);
        assert_eq!(subtree.volume.spec.as_ref().unwrap().create_index, 3);
        let claim = subtree.volume.claims.values().next().unwrap();
        assert_eq!(claim.epoch, 7);
        volumes.delete("default.data.claim.a", 9);
        assert_eq!(volumes.get(&volume()).unwrap().head, 9);
        volumes.delete("default.data.spec", 10);
        assert!(volumes.is_empty());
    }

    #[test]
    fn volumes_come_in_order_and_unreadable_ones_are_known_until_they_are_mended() {
        let mut volumes = Volumes::default();
        for key in ["other.a.spec", "default.b.spec", "default.data.spec"] {
            volumes.put(key, 1, SPEC);
        }
        let named = |keys: &mut dyn Iterator<Item = (&VolumeKey, &Subtree)>| {
            keys.map(|(key, _)| key.to_string()).collect::<Vec<_>>()
        };
        let all = ["default/b", "default/data", "other/a"];
        assert_eq!(named(&mut volumes.iter()), all);
        assert_eq!(named(&mut volumes.iter_from(Some(&volume()))), all[1..]);
        assert_eq!(named(&mut volumes.iter_unreadable()), [""; 0]);
        volumes.put("default.data.claim.a", 2, b"damaged");
        assert_eq!(named(&mut volumes.iter_unreadable()), ["default/data"]);
        volumes.put("default.data.claim.a", 3, CLAIM);
        assert_eq!(named(&mut volumes.iter_unreadable()), [""; 0]);
    }

    #[test]
    fn registrations_of_one_handle_know_of_each_other() {
        let spec = |external_id: &str| {
            let text = String::from_utf8(SPEC.to_vec()).unwrap();
            text.replace(r#""plugin""#, &format!(r#""external_id":"{external_id}","plugin""#))
        };
        let mut volumes = Volumes::default();
        // One is known by its own id, the other by the id it was given.
        volumes.put("default.data.spec", 1, SPEC);
        volumes.put("other.copy.spec", 2, spec("data").as_bytes());
        volumes.put("other.copy.claim.a", 3, CLAIM);
        let registered = volumes.get(&volume()).unwrap().volume.spec.as_ref().unwrap();
        let handle = registered.handle(&volume().volume).unwrap();
        let known = volumes.handle_use(&volume(), &handle);
        assert_eq!(known.others, ["a volume of another namespace"]);
        let copy = known.claims[0].volume.clone();
        assert_eq!((copy.to_string().as_str(), known.claims.len()), ("other/copy", 1));
        assert_eq!(volumes.handle_use(&copy, &handle).others.len(), 1);
        let sibling = VolumeKey::new(volume().namespace, copy.volume.clone());
        assert_eq!(volumes.handle_use(&sibling, &handle).others[0], "volume data");
        volumes.put("other.copy.spec", 4, spec("another").as_bytes());
        assert_eq!(volumes.handle_use(&volume(), &handle), HandleUse::default());
        // The key names the registered volume.
        let owner = br#"{"namespace":"default","volume":"data","schema":1}"#;
        volumes.put("=handle.p.data", 5, owner);
        let guard = volumes.handles().get(&handle).unwrap().guard.clone().unwrap();
        assert_eq!((guard.revision, guard.owner), (5, Ok(volume())));
        volumes.put("=handle.p.data", 6, br#"{"schema":99}"#);
        assert!(volumes.handles().get(&handle).unwrap().guard.as_ref().unwrap().owner.is_err());
        for key in ["=handle.p.data", "default.data.spec", "other.copy.spec", "other.copy.claim.a"]
        {
            volumes.delete(key, 7);
        }
        assert!(volumes.is_empty() && volumes.handles().iter().next().is_none());
    }

    #[test]
    fn a_newer_record_makes_its_volume_read_only() {
        let mut volumes = Volumes::default();
        volumes.put("default.data.spec", 3, SPEC);
        volumes.put("default.data.claim.a", 4, br#"{"schema":99}"#);
        assert_eq!(volumes.get(&volume()).unwrap().unreadable.len(), 1);
        volumes.put("default.data.claim.a", 5, CLAIM);
        assert!(volumes.get(&volume()).unwrap().unreadable.is_empty());
    }

    /// D9: what an older version did not write is taken for what holds most.
    #[test]
    fn claims_of_an_older_version_hold_their_volume_each_on_a_node_of_its_own() {
        let older = br#"{"since":"2026-01-01T00:00:00Z","access":"multi-node-multi-writer",
            "attachment":"file-system"}"#;
        let mut volumes = Volumes::default();
        volumes.put("default.data.spec", 3, SPEC);
        volumes.put("default.data.claim.a", 4, older);
        volumes.put("default.data.claim.b", 5, older);
        let subtree = volumes.get(&volume()).unwrap();
        assert!(subtree.unreadable.is_empty());
        let told: Vec<_> = subtree
            .volume
            .claims
            .values()
            .map(|claim| (claim.state, claim.mode, claim.controller, claim.node.as_str()))
            .collect();
        let held = |node| (State::Taken, Mode::Write, true, node);
        assert_eq!(told, [held("unknown/a"), held("unknown/b")]);
    }
}
