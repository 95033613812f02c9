//! The journal in memory, for decisions that wait for no disk.

use std::collections::BTreeMap;

use berth_domain::limits::WAIT_MAX;
use berth_domain::{AllocId, VolumeKey};
use tokio::time::Instant;

use super::entry::{JournalChange, JournalledDetach, JournalledUse};

/// What the journal says of one volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeUses {
    /// Who uses it, or may.
    pub uses: BTreeMap<AllocId, JournalledUse>,
    /// Who was told to go.
    pub detached: BTreeMap<AllocId, JournalledDetach>,
}

#[derive(Debug, Default)]
pub(super) struct JournalIndex {
    volumes: BTreeMap<VolumeKey, IndexedUses>,
}

#[derive(Debug, Default)]
struct IndexedUses {
    uses: BTreeMap<AllocId, JournalledUse>,
    told: BTreeMap<AllocId, IndexedDetach>,
}

#[derive(Debug, Clone, Copy)]
struct IndexedDetach {
    detached: JournalledDetach,
    // None when it was told to an earlier process: no grant of that time is on its way any more.
    at: Option<Instant>,
}

/// Entries to forget.
pub(super) type ForgottenDetaches = Vec<(VolumeKey, AllocId)>;

impl JournalIndex {
    /// Of all entries on the disk; `at` is when those who were told to go may have been told.
    pub(super) fn from_entries(entries: Vec<JournalChange>, at: Option<Instant>) -> Self {
        let mut index = Self::default();
        for entry in entries {
            index.apply(entry, at);
        }
        index
    }

    pub(super) fn volume(&self, volume: &VolumeKey) -> VolumeUses {
        let Some(entries) = self.volumes.get(volume) else { return VolumeUses::default() };
        let detached = entries.told.iter().map(|(alloc, told)| (alloc.clone(), told.detached));
        VolumeUses { uses: entries.uses.clone(), detached: detached.collect() }
    }

    pub(super) fn uses(&self) -> Vec<(VolumeKey, AllocId, JournalledUse)> {
        let each = self.volumes.iter().flat_map(|(volume, entries)| {
            entries.uses.iter().map(move |(alloc, entry)| (volume, alloc, entry))
        });
        each.map(|(volume, alloc, entry)| (volume.clone(), alloc.clone(), entry.clone())).collect()
    }

    /// The change as it is to be made: an alloc stays told to go at the highest epoch it ever was.
    pub(super) fn settle_change(&self, change: JournalChange) -> JournalChange {
        match change {
            JournalChange::Detached(volume, alloc, JournalledDetach { epoch, done }) => {
                let known = self.volumes.get(&volume).and_then(|entries| entries.told.get(&alloc));
                let epoch = known.map_or(epoch, |told| told.detached.epoch.max(epoch));
                JournalChange::Detached(volume, alloc, JournalledDetach { epoch, done })
            }
            JournalChange::Use(..) => change,
        }
    }

    /// Takes in a change that is on the disk.
    pub(super) fn apply(&mut self, change: JournalChange, at: Option<Instant>) {
        match change {
            JournalChange::Use(volume, alloc, entry) => {
                self.volumes.entry(volume).or_default().uses.insert(alloc, entry);
            }
            JournalChange::Detached(volume, alloc, detached) => {
                let entries = self.volumes.entry(volume).or_default();
                if detached.done {
                    entries.uses.remove(&alloc);
                }
                entries.told.insert(alloc, IndexedDetach { detached, at });
            }
        }
    }

    /// What must be forgotten so that `change` keeps within `max`; none when nothing may be.
    ///
    /// The oldest go first, an eighth of them at once, and only those of which no handler of this
    /// process can still expect a grant.
    pub(super) fn to_forget(
        &self,
        change: &JournalChange,
        max: usize,
        now: Instant,
    ) -> Option<ForgottenDetaches> {
        let JournalChange::Detached(volume, alloc, _) = change else {
            return Some(ForgottenDetaches::new());
        };
        let known = self.volumes.get(volume).is_some_and(|known| known.told.contains_key(alloc));
        let count: usize = self.volumes.values().map(|entries| entries.told.len()).sum();
        if known || count < max {
            return Some(ForgottenDetaches::new());
        }
        let each = self.volumes.iter().flat_map(|(volume, entries)| {
            entries.told.iter().map(move |(alloc, told)| (told.at, volume, alloc))
        });
        let old = |at: Option<Instant>| at.is_none_or(|at| now.duration_since(at) > WAIT_MAX * 2);
        let mut oldest: Vec<_> = each.filter(|(at, ..)| old(*at)).collect();
        oldest.sort();
        oldest.truncate((max / 8).max(1));
        let forgotten =
            oldest.into_iter().map(|(_, volume, alloc)| (volume.clone(), alloc.clone()));
        Some(forgotten.collect()).filter(|forgotten: &ForgottenDetaches| !forgotten.is_empty())
    }

    pub(super) fn forget(&mut self, forgotten: &ForgottenDetaches) {
        for (volume, alloc) in forgotten {
            if let Some(entries) = self.volumes.get_mut(volume) {
                entries.told.remove(alloc);
                if entries.told.is_empty() && entries.uses.is_empty() {
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

    fn told(alloc: usize, epoch: u64) -> JournalChange {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("v").unwrap());
        let alloc = AllocId::new(format!("a{alloc}")).unwrap();
        JournalChange::Detached(volume, alloc, JournalledDetach { epoch, done: true })
    }

    fn names(forgotten: Option<ForgottenDetaches>) -> Option<Vec<String>> {
        forgotten.map(|all| all.into_iter().map(|(_, alloc)| alloc.to_string()).collect())
    }

    #[test]
    fn the_oldest_are_forgotten_once_no_grant_of_theirs_can_be_on_its_way() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut index = JournalIndex::default();
        index.apply(told(2, 1), Some(at(0)));
        index.apply(told(1, 1), Some(at(1)));
        index.apply(told(0, 1), Some(at(700)));
        assert_eq!(names(index.to_forget(&told(9, 1), 4, at(710))), Some(vec![]), "there is room");
        assert_eq!(names(index.to_forget(&told(0, 2), 3, at(710))), Some(vec![]), "it is known");
        assert_eq!(names(index.to_forget(&told(9, 1), 3, at(30))), None, "all are young");
        let forgotten = index.to_forget(&told(9, 1), 3, at(710));
        assert_eq!(names(forgotten.clone()), Some(vec!["a2".to_owned()]));
        index.forget(&forgotten.unwrap());
        assert_eq!(names(index.to_forget(&told(9, 1), 3, at(710))), Some(vec![]));
        // Of an earlier process none is awaited any more, and it goes before the others.
        index.apply(told(7, 1), None);
        assert_eq!(names(index.to_forget(&told(9, 1), 3, at(30))), Some(vec!["a7".to_owned()]));
    }

    #[test]
    fn an_alloc_stays_told_at_the_highest_epoch() {
        let mut index = JournalIndex::default();
        index.apply(told(1, 7), None);
        assert_eq!(index.settle_change(told(1, 5)), told(1, 7));
        assert_eq!(index.settle_change(told(1, 9)), told(1, 9));
        assert_eq!(index.settle_change(told(2, 5)), told(2, 5));
    }
}
