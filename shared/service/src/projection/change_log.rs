//! The last changes of a bucket, so that a reader of one part is woken by changes of that part
//! only.
//!
//! **Promises** that no change is missed: if a change may have been forgotten, it counts as one
//! that concerns the reader.

use std::collections::BTreeMap;

/// Most changes that are kept. A reader that is further behind is answered at once.
const KEPT_MAX: usize = 4096;

/// The last changes, by revision.
#[derive(Debug)]
pub struct ChangeLog<C> {
    changes: BTreeMap<u64, C>,
    /// The newest revision that was forgotten.
    forgotten: u64,
}

impl<C> Default for ChangeLog<C> {
    fn default() -> Self {
        Self { changes: BTreeMap::new(), forgotten: 0 }
    }
}

impl<C> ChangeLog<C> {
    /// Adds what changed at a revision.
    pub(super) fn record(&mut self, revision: u64, change: C) {
        self.changes.insert(revision, change);
        if self.changes.len() > KEPT_MAX
            && let Some((oldest, _)) = self.changes.pop_first()
        {
            self.forgotten = self.forgotten.max(oldest);
        }
    }

    /// Whether a change after the revision concerns a reader, or may have been forgotten.
    pub fn has_since(&self, revision: u64, concerns: impl Fn(&C) -> bool) -> bool {
        revision < self.forgotten
            || self.changes.range(revision.saturating_add(1)..).any(|(_, change)| concerns(change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_may_have_concerned_the_reader() {
        let mut log = ChangeLog::default();
        for revision in 1..=10 {
            log.record(revision, revision % 3 == 0);
        }
        assert!(log.has_since(8, |concerns| *concerns));
        assert!(!log.has_since(9, |concerns| *concerns));
        for revision in 11..=(10 + KEPT_MAX as u64) {
            log.record(revision, false);
        }
        assert!(log.has_since(9, |concerns| *concerns));
        assert!(!log.has_since(10, |concerns| *concerns));
    }
}
