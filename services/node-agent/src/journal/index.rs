//! The journal's entries in memory, so that decisions do not wait for the disk.
//!
//! **Promises** to hold what is on the disk: [`super::Journal`] applies a change after its write.
//!
//! **Never** forgets a detach while a handler of this process may still receive an older grant.

use std::collections::BTreeMap;

use berth_domain::limits::WAIT_MAX;
use berth_domain::{AllocId, PluginId, VolumeKey};
use tokio::time::Instant;

use super::entry::{JournalChange, JournalledDetach, JournalledUse};

/// What the journal says of one volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeUses {
    /// The allocs that may use it.
    pub uses: BTreeMap<AllocId, JournalledUse>,
    /// The allocs that were detached.
    pub detached: BTreeMap<AllocId, JournalledDetach>,
}

#[derive(Debug, Default)]
pub(super) struct JournalIndex {
    volumes: BTreeMap<VolumeKey, IndexedUses>,
}

#[derive(Debug, Default)]
struct IndexedUses {
    uses: BTreeMap<AllocId, JournalledUse>,
    detaches: BTreeMap<AllocId, IndexedDetach>,
}

#[derive(Debug, Clone, Copy)]
struct IndexedDetach {
    detached: JournalledDetach,
    // When it was written. None if an earlier process wrote it: its grants have expired.
    written_at: Option<Instant>,
}

/// Entries to forget.
pub(super) type ForgottenDetaches = Vec<(VolumeKey, AllocId)>;

impl JournalIndex {
    /// Indexes the entries on the disk. `written_at` is the latest time at which this process can
    /// have written them.
    pub(super) fn from_entries(entries: Vec<JournalChange>, written_at: Option<Instant>) -> Self {
        let mut index = Self::default();
        for entry in entries {
            index.apply_change(entry, written_at);
        }
        index
    }

    pub(super) fn volume(&self, volume: &VolumeKey) -> VolumeUses {
        let Some(entries) = self.volumes.get(volume) else { return VolumeUses::default() };
        let detached =
            entries.detaches.iter().map(|(alloc, known)| (alloc.clone(), known.detached));
        VolumeUses { uses: entries.uses.clone(), detached: detached.collect() }
    }

    /// The uses of one volume of a plugin, under whatever names.
    pub(super) fn uses_of(
        &self,
        plugin: &PluginId,
        external_id: &str,
    ) -> Vec<(VolumeKey, AllocId, JournalledUse)> {
        let each = self.volumes.iter().flat_map(|(volume, entries)| {
            entries.uses.iter().map(move |(alloc, entry)| (volume, alloc, entry))
        });
        each.filter(|(.., entry)| entry.is_of(plugin, external_id))
            .map(|(volume, alloc, entry)| (volume.clone(), alloc.clone(), entry.clone()))
            .collect()
    }

    pub(super) fn uses(&self) -> Vec<(VolumeKey, AllocId, JournalledUse)> {
        let each = self.volumes.iter().flat_map(|(volume, entries)| {
            entries.uses.iter().map(move |(alloc, entry)| (volume, alloc, entry))
        });
        each.map(|(volume, alloc, entry)| (volume.clone(), alloc.clone(), entry.clone())).collect()
    }

    /// The change with the highest epoch at which the alloc was ever detached.
    pub(super) fn settle_change(&self, change: JournalChange) -> JournalChange {
        match change {
            JournalChange::Detached(volume, alloc, JournalledDetach { epoch, done }) => {
                let known =
                    self.volumes.get(&volume).and_then(|entries| entries.detaches.get(&alloc));
                let epoch = known.map_or(epoch, |known| known.detached.epoch.max(epoch));
                JournalChange::Detached(volume, alloc, JournalledDetach { epoch, done })
            }
            JournalChange::Use(..) => change,
        }
    }

    /// Applies a change that was written to the disk.
    pub(super) fn apply_change(&mut self, change: JournalChange, written_at: Option<Instant>) {
        match change {
            JournalChange::Use(volume, alloc, entry) => {
                self.volumes.entry(volume).or_default().uses.insert(alloc, entry);
            }
            JournalChange::Detached(volume, alloc, detached) => {
                let entries = self.volumes.entry(volume).or_default();
                if detached.done {
                    entries.uses.remove(&alloc);
                }
                entries.detaches.insert(alloc, IndexedDetach { detached, written_at });
            }
        }
    }

    /// The detaches to forget so that at most `max` are kept with `change`. `None` if there are too
    /// many and none may be forgotten.
    ///
    /// An eighth is forgotten at once, the oldest first. A detach may be forgotten once no handler
    /// of this process can still receive a grant of its epoch.
    pub(super) fn choose_forgotten(
        &self,
        change: &JournalChange,
        max: usize,
        now: Instant,
    ) -> Option<ForgottenDetaches> {
        let JournalChange::Detached(volume, alloc, _) = change else {
            return Some(ForgottenDetaches::new());
        };
        let known =
            self.volumes.get(volume).is_some_and(|known| known.detaches.contains_key(alloc));
        let count: usize = self.volumes.values().map(|entries| entries.detaches.len()).sum();
        if known || count < max {
            return Some(ForgottenDetaches::new());
        }
        let each = self.volumes.iter().flat_map(|(volume, entries)| {
            entries.detaches.iter().map(move |(alloc, known)| (known.written_at, volume, alloc))
        });
        let old = |at: Option<Instant>| at.is_none_or(|at| now.duration_since(at) > WAIT_MAX * 2);
        let mut oldest: Vec<_> = each.filter(|(at, ..)| old(*at)).collect();
        oldest.sort();
        oldest.truncate((max / 8).max(1));
        let forgotten =
            oldest.into_iter().map(|(_, volume, alloc)| (volume.clone(), alloc.clone()));
        Some(forgotten.collect()).filter(|forgotten: &ForgottenDetaches| !forgotten.is_empty())
    }

    pub(super) fn forget_detaches(&mut self, forgotten: &ForgottenDetaches) {
        for (volume, alloc) in forgotten {
            if let Some(entries) = self.volumes.get_mut(volume) {
                entries.detaches.remove(alloc);
                if entries.detaches.is_empty() && entries.uses.is_empty() {
                    self.volumes.remove(volume);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_domain::{Namespace, VolumeId};

    use super::*;

    fn finished_detach(alloc: usize, epoch: u64) -> JournalChange {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("v").unwrap());
        let alloc = AllocId::new(format!("a{alloc}")).unwrap();
        JournalChange::Detached(volume, alloc, JournalledDetach { epoch, done: true })
    }

    fn names(forgotten: Option<ForgottenDetaches>) -> Option<Vec<String>> {
        forgotten.map(|all| all.into_iter().map(|(_, alloc)| alloc.to_string()).collect())
    }

    #[test]
    fn the_oldest_detaches_are_forgotten_once_their_grants_have_expired() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut index = JournalIndex::default();
        index.apply_change(finished_detach(2, 1), Some(at(0)));
        index.apply_change(finished_detach(1, 1), Some(at(1)));
        index.apply_change(finished_detach(0, 1), Some(at(700)));
        assert_eq!(
            names(index.choose_forgotten(&finished_detach(9, 1), 4, at(710))),
            Some(vec![]),
            "there is room"
        );
        assert_eq!(
            names(index.choose_forgotten(&finished_detach(0, 2), 3, at(710))),
            Some(vec![]),
            "it is known"
        );
        assert_eq!(
            names(index.choose_forgotten(&finished_detach(9, 1), 3, at(30))),
            None,
            "all are young"
        );
        let forgotten = index.choose_forgotten(&finished_detach(9, 1), 3, at(710));
        assert_eq!(names(forgotten.clone()), Some(vec!["a2".to_owned()]));
        index.forget_detaches(&forgotten.unwrap());
        assert_eq!(names(index.choose_forgotten(&finished_detach(9, 1), 3, at(710))), Some(vec![]));
        // A detach that an earlier process wrote is forgotten first: no grant of it is on its way.
        index.apply_change(finished_detach(7, 1), None);
        assert_eq!(
            names(index.choose_forgotten(&finished_detach(9, 1), 3, at(30))),
            Some(vec!["a7".to_owned()])
        );
    }

    #[test]
    fn a_detach_keeps_the_highest_epoch() {
        let mut index = JournalIndex::default();
        index.apply_change(finished_detach(1, 7), None);
        assert_eq!(index.settle_change(finished_detach(1, 5)), finished_detach(1, 7));
        assert_eq!(index.settle_change(finished_detach(1, 9)), finished_detach(1, 9));
        assert_eq!(index.settle_change(finished_detach(2, 5)), finished_detach(2, 5));
    }
}
