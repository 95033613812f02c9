//! What changed last, in the order in which this process saw it.
//!
//! **Promises** that a reader misses no change: it is told when some may have been forgotten.
//! Unlike revisions, the numbers grow with each change that is applied: a mirror applies the writes
//! of its own process before older ones that come by the feed.

use std::collections::VecDeque;

/// Most changes that are kept.
const KEPT_MAX: usize = 4096;

/// The keys of the last changes.
#[derive(Debug)]
pub struct Arrivals<K> {
    last: VecDeque<K>,
    count: u64,
}

impl<K> Default for Arrivals<K> {
    fn default() -> Self {
        Self { last: VecDeque::new(), count: 0 }
    }
}

impl<K> Arrivals<K> {
    /// Adds a change.
    pub fn record(&mut self, key: K) {
        self.last.push_back(key);
        self.count += 1;
        if self.last.len() > KEPT_MAX {
            self.last.pop_front();
        }
    }

    /// How many changes there were.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The changes after so many; none if some of them were forgotten.
    pub fn list_after(&self, count: u64) -> Option<impl Iterator<Item = &K>> {
        let new = usize::try_from(self.count.saturating_sub(count)).ok()?;
        let known = self.last.len().checked_sub(new)?;
        Some(self.last.iter().skip(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_what_is_new_to_it_or_is_told_that_some_was_forgotten() {
        let mut arrivals = Arrivals::default();
        let list = |arrivals: &Arrivals<u64>, count| {
            arrivals.list_after(count).map(|new| new.copied().collect::<Vec<_>>())
        };
        assert_eq!(list(&arrivals, 0), Some(vec![]));
        (1..=5).for_each(|number| arrivals.record(number));
        assert_eq!((list(&arrivals, 3), list(&arrivals, 5)), (Some(vec![4, 5]), Some(vec![])));
        let end = 5 + KEPT_MAX as u64;
        (6..=end).for_each(|number| arrivals.record(number));
        assert_eq!(arrivals.count(), end);
        assert_eq!(list(&arrivals, 4), None);
        assert_eq!(list(&arrivals, 5).unwrap().len(), KEPT_MAX);
    }
}
