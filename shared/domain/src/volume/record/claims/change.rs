//! How a claim is counted: as one that comes, or as one that goes.

use std::collections::{BTreeMap, BTreeSet};

/// Whether a claim is added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Comes,
    Goes,
}

impl Change {
    pub fn count(self, count: &mut u32) {
        match self {
            Self::Comes => *count += 1,
            Self::Goes => *count -= 1,
        }
    }

    pub fn count_if(self, counts: bool, count: &mut u32) {
        if counts {
            self.count(count);
        }
    }

    /// Counts by key. A key with a count of zero is removed.
    pub fn entry<K: Ord + Clone>(self, counts: &mut BTreeMap<K, u32>, key: &K) {
        let count = counts.entry(key.clone()).or_default();
        self.count(count);
        if *count == 0 {
            counts.remove(key);
        }
    }

    pub fn member_if<T: Ord>(
        self,
        belongs: bool,
        set: &mut BTreeSet<T>,
        member: impl FnOnce() -> T,
    ) {
        match self {
            _ if !belongs => {}
            Self::Comes => drop(set.insert(member())),
            Self::Goes => drop(set.remove(&member())),
        }
    }
}
