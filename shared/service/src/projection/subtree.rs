//! One volume's keys, as the volume.
//!
//! **Owns** what is kept of a volume beside its records: its head, traces, and unreadable records.

use std::collections::BTreeMap;

use berth_contract::record::{self, RecordError, UnreadableRecord};
use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_domain::volume::{Handle, Volume, VolumeSpec};
use berth_domain::{AllocId, Blank, PluginId, SnapshotId};

/// One volume's subtree.
#[derive(Debug, Default, Clone)]
pub struct Subtree {
    /// The newest revision seen below the volume. It guards writes.
    pub head: u64,
    /// The volume.
    pub volume: Volume,
    /// What is kept beside the volume. Most volumes have none: then it is a null pointer.
    beside: Option<Box<Beside>>,
}

/// What is kept beside a volume at rest: of its claims, of changes of the storage, and records that
/// cannot be read.
#[derive(Debug, Default, Clone)]
struct Beside {
    /// The trace of each claim that has one on record.
    traces: BTreeMap<AllocId, Box<Traced>>,
    /// The trace of the last change of the spec (`None`), and of each snapshot that is not at rest.
    storage_traces: BTreeMap<Option<SnapshotId>, String>,
    /// How many claims that hold the volume were granted for each handle. It is one, the volume's
    /// own, unless its registration was lost.
    claimed: BTreeMap<Handle, usize>,
    unreadable: BTreeMap<String, UnreadableRecord>,
}

/// How the trace of a claim is known.
#[derive(Debug, Clone)]
pub(super) enum Traced {
    /// By the spans of the whole claim.
    Trail(Trail),
    /// By the trace of its last change, if no spans are recorded.
    Change(String),
}

impl Subtree {
    /// The number of its records that older versions cannot read.
    pub(super) fn count_newer(&self) -> usize {
        let is_newer = |spec: &VolumeSpec| record::schema_of_spec(spec) > record::SCHEMA;
        let spec = self.volume.spec.as_ref().is_some_and(is_newer);
        usize::from(spec) + self.volume.snapshots.len()
    }

    /// The trace of a claim's last change.
    pub fn trace(&self, alloc: &AllocId) -> Option<String> {
        Some(match self.beside.as_ref()?.traces.get(alloc)?.as_ref() {
            Traced::Trail(trail) => trail.now().trace_id(),
            Traced::Change(trace) => trace.clone(),
        })
    }

    /// The spans of a claim that are on record.
    pub fn trail(&self, alloc: &AllocId) -> Option<Trail> {
        match self.beside.as_ref()?.traces.get(alloc)?.as_ref() {
            Traced::Trail(trail) => Some(*trail),
            Traced::Change(_) => None,
        }
    }

    /// A context within the trace of the volume's operation, or of a snapshot's calls.
    pub fn storage_trace(&self, snapshot: Option<&SnapshotId>) -> Option<TraceContext> {
        TraceContext::resume(self.beside.as_ref()?.storage_traces.get(&snapshot.cloned())?)
    }

    pub(super) fn keep_trace(&mut self, of: Option<SnapshotId>, trace: Option<String>) {
        self.change_beside(|beside| match trace {
            Some(trace) => drop(beside.storage_traces.insert(of, trace)),
            None => drop(beside.storage_traces.remove(&of)),
        });
    }

    pub(super) fn keep_claim_trace(&mut self, alloc: &AllocId, traced: Option<Traced>) {
        self.change_beside(|beside| match traced {
            Some(traced) => drop(beside.traces.insert(alloc.clone(), Box::new(traced))),
            None => drop(beside.traces.remove(alloc)),
        });
    }

    fn change_beside(&mut self, change: impl FnOnce(&mut Beside)) {
        let beside = self.beside.get_or_insert_default();
        change(beside);
        let Beside { traces, storage_traces, claimed, unreadable } = beside.as_ref();
        let is_traced = !(traces.is_empty() && storage_traces.is_empty());
        if !is_traced && claimed.is_empty() && unreadable.is_empty() {
            self.beside = None;
        }
    }

    /// Records of the volume that this version cannot read, by key. While there are any, the volume
    /// is read-only.
    pub fn unreadable(&self) -> &BTreeMap<String, UnreadableRecord> {
        self.beside.as_ref().map_or(Blank::BLANK, |beside| &beside.unreadable)
    }

    pub(super) fn forget_unreadable(&mut self, key: &str) {
        if !self.unreadable().is_empty() {
            self.change_beside(|beside| drop(beside.unreadable.remove(key)));
        }
    }

    /// The unreadable record that makes the volume read-only here, if there is one.
    pub fn first_unreadable(&self) -> Option<&UnreadableRecord> {
        self.unreadable().values().next()
    }

    /// The handle that the alloc's claim was granted for, while it holds the volume.
    pub(super) fn claimed_handle(&self, alloc: Option<&AllocId>) -> Option<Handle> {
        self.volume.claims.get(alloc?).filter(|claim| claim.is_held())?.handle()
    }

    pub(super) fn count_claimed(&mut self, before: Option<Handle>, after: Option<Handle>) {
        if before == after {
            return;
        }
        self.change_beside(|Beside { claimed, .. }| {
            if let Some(before) = before
                && let Some(count) = claimed.get_mut(&before)
            {
                *count -= 1;
                if *count == 0 {
                    claimed.remove(&before);
                }
            }
            if let Some(after) = after {
                *claimed.entry(after).or_default() += 1;
            }
        });
    }

    /// The handles that claims were granted for and the volume does not have.
    pub(super) fn stray_handles(&self, own: Option<&Handle>) -> Vec<Handle> {
        let claimed = self.beside.iter().flat_map(|beside| beside.claimed.keys());
        claimed.filter(|handle| Some(*handle) != own).cloned().collect()
    }

    pub(super) fn plugin(&self) -> Option<&PluginId> {
        self.volume.spec.as_ref().map(|spec| &spec.plugin)
    }

    pub(super) fn readable<T>(
        &mut self,
        key: &str,
        read: Result<record::Record<T>, RecordError>,
    ) -> Option<record::Record<T>> {
        match read {
            Ok(record) => {
                self.forget_unreadable(key);
                Some(record)
            }
            Err(error) => {
                let unreadable = error.unreadable_at(key);
                tracing::error!(key, error = unreadable.error, "the volume is read-only here");
                self.change_beside(|beside| {
                    beside.unreadable.insert(key.to_owned(), unreadable);
                });
                None
            }
        }
    }
}
