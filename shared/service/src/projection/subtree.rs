//! One volume's keys, as the volume.
//!
//! **Owns** what is kept of a volume beside its records: its head, traces, and unreadable records.

use std::collections::BTreeMap;

use berth_contract::record::{self, RecordError, UnreadableRecord};
use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_domain::volume::{Handle, Volume, VolumeSpec};
use berth_domain::{AllocId, PluginId, SnapshotId};

/// One volume's subtree.
#[derive(Debug, Default, Clone)]
pub struct Subtree {
    /// The newest revision seen below the volume. It guards writes.
    pub head: u64,
    /// The volume.
    pub volume: Volume,
    /// What is kept of claims and changes of the storage. Most volumes have none: then it is a null
    /// pointer.
    activity: Option<Box<Activity>>,
    /// Records of the volume that this version cannot read, by key. While there are any, the volume
    /// is read-only.
    pub unreadable: BTreeMap<String, UnreadableRecord>,
}

/// What is kept of a volume's claims and changes of the storage beside their records.
#[derive(Debug, Default, Clone)]
struct Activity {
    /// The trace of each claim that has one on record.
    traces: BTreeMap<AllocId, Box<Traced>>,
    /// The trace of the last change of the spec (`None`), and of each snapshot that is not at rest.
    storage_traces: BTreeMap<Option<SnapshotId>, String>,
    /// How many claims that hold the volume were granted for each handle. It is one, the volume's
    /// own, unless its registration was lost.
    claimed: BTreeMap<Handle, usize>,
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
        Some(match self.activity.as_ref()?.traces.get(alloc)?.as_ref() {
            Traced::Trail(trail) => trail.now().trace_id(),
            Traced::Change(trace) => trace.clone(),
        })
    }

    /// The spans of a claim that are on record.
    pub fn trail(&self, alloc: &AllocId) -> Option<Trail> {
        match self.activity.as_ref()?.traces.get(alloc)?.as_ref() {
            Traced::Trail(trail) => Some(*trail),
            Traced::Change(_) => None,
        }
    }

    /// A context within the trace of the volume's operation, or of a snapshot's calls.
    pub fn storage_trace(&self, snapshot: Option<&SnapshotId>) -> Option<TraceContext> {
        TraceContext::resume(self.activity.as_ref()?.storage_traces.get(&snapshot.cloned())?)
    }

    pub(super) fn keep_trace(&mut self, of: Option<SnapshotId>, trace: Option<String>) {
        self.change_activity(|activity| match trace {
            Some(trace) => drop(activity.storage_traces.insert(of, trace)),
            None => drop(activity.storage_traces.remove(&of)),
        });
    }

    pub(super) fn keep_claim_trace(&mut self, alloc: &AllocId, traced: Option<Traced>) {
        self.change_activity(|activity| match traced {
            Some(traced) => drop(activity.traces.insert(alloc.clone(), Box::new(traced))),
            None => drop(activity.traces.remove(alloc)),
        });
    }

    fn change_activity(&mut self, change: impl FnOnce(&mut Activity)) {
        let activity = self.activity.get_or_insert_default();
        change(activity);
        let Activity { traces, storage_traces, claimed } = activity.as_ref();
        if traces.is_empty() && storage_traces.is_empty() && claimed.is_empty() {
            self.activity = None;
        }
    }

    /// The unreadable record that makes the volume read-only here, if there is one.
    pub fn first_unreadable(&self) -> Option<&UnreadableRecord> {
        self.unreadable.values().next()
    }

    /// The handle that the alloc's claim was granted for, while it holds the volume.
    pub(super) fn claimed_handle(&self, alloc: Option<&AllocId>) -> Option<Handle> {
        self.volume.claims.get(alloc?).filter(|claim| claim.is_held())?.handle()
    }

    pub(super) fn count_claimed(&mut self, before: Option<Handle>, after: Option<Handle>) {
        if before == after {
            return;
        }
        self.change_activity(|Activity { claimed, .. }| {
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
        let claimed = self.activity.iter().flat_map(|activity| activity.claimed.keys());
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
