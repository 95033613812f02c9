//! Slots: they bound the calls that are in progress at once in each lane.
//!
//! **Owns** two counts for each lane: slots taken, and keys that wait for a slot.
//!
//! **Promises** that a full lane delays no other lane, and that a caller never gets a slot ahead of
//! keys that wait in the lane. An unused lane takes no memory.
//!
//! **Never** blocks: a caller that finds no slot tries again when [`Slots::freed`] returns.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// A bounded number of slots in each lane. Cheap to clone.
pub struct Slots<L> {
    shared: Arc<SlotsShared<L>>,
}

struct SlotsShared<L> {
    each: usize,
    lanes: Mutex<HashMap<L, LaneCount>>,
    freed: Notify,
}

#[derive(Debug, Default, Clone, Copy)]
struct LaneCount {
    taken: usize,
    waiting: usize,
}

/// One slot of a lane. It is given back when it is dropped.
pub struct Slot<L: Eq + Hash> {
    lane: L,
    shared: Arc<SlotsShared<L>>,
}

impl<L> Clone for Slots<L> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<L> fmt::Debug for Slots<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("each", &self.shared.each).finish_non_exhaustive()
    }
}

impl<L: fmt::Debug + Eq + Hash> fmt::Debug for Slot<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.lane).finish()
    }
}

impl<L: Clone + Eq + Hash> Slots<L> {
    /// `each` slots in each lane, at least one.
    pub fn new(each: usize) -> Self {
        let (lanes, freed) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(SlotsShared { each: each.max(1), lanes, freed }) }
    }

    /// A slot, if one is free and no key waits for it.
    pub fn try_take(&self, lane: &L) -> Option<Slot<L>> {
        self.change(lane, |each, lane| {
            let free = lane.taken < each && lane.waiting == 0;
            lane.taken += usize::from(free);
            free
        })
        .then(|| self.slot(lane))
    }

    /// A slot even if none is free: for work that has begun already and cannot wait.
    pub fn take_beyond(&self, lane: &L) -> Slot<L> {
        self.change(lane, |_, lane| lane.taken += 1);
        self.slot(lane)
    }

    /// Counts a key that waits in the lane, until [`Self::take_waiting`].
    pub(crate) fn wait(&self, lane: &L) {
        self.change(lane, |_, lane| lane.waiting += 1);
    }

    /// A slot for a key that waits.
    pub(crate) fn take_waiting(&self, lane: &L) -> Option<Slot<L>> {
        self.change(lane, |each, lane| {
            let free = lane.taken < each && lane.waiting > 0;
            lane.taken += usize::from(free);
            lane.waiting -= usize::from(free);
            free
        })
        .then(|| self.slot(lane))
    }

    /// Returns when a slot was given back for which a key waits.
    pub(crate) async fn freed(&self) {
        self.shared.freed.notified().await;
    }

    fn slot(&self, lane: &L) -> Slot<L> {
        Slot { lane: lane.clone(), shared: Arc::clone(&self.shared) }
    }

    fn change<T>(&self, lane: &L, change: impl FnOnce(usize, &mut LaneCount) -> T) -> T {
        let mut lanes = self.shared.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane_slots = lanes.entry(lane.clone()).or_default();
        let changed = change(self.shared.each, lane_slots);
        if lane_slots.taken == 0 && lane_slots.waiting == 0 {
            lanes.remove(lane);
        }
        changed
    }
}

impl<L: Eq + Hash> Slot<L> {
    /// The slot's lane.
    pub fn lane(&self) -> &L {
        &self.lane
    }
}

impl<L: Eq + Hash> Drop for Slot<L> {
    fn drop(&mut self) {
        let mut lanes = self.shared.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lane) = lanes.get_mut(&self.lane) else { return };
        lane.taken = lane.taken.saturating_sub(1);
        if lane.waiting > 0 {
            self.shared.freed.notify_one();
        } else if lane.taken == 0 {
            lanes.remove(&self.lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_delays_no_other_and_waiting_keys_come_first() {
        let slots = Slots::new(2);
        let (first, second) = (slots.try_take(&"a").unwrap(), slots.try_take(&"a").unwrap());
        assert!(slots.try_take(&"a").is_none() && slots.try_take(&"b").is_some());
        slots.wait(&"a");
        drop(first);
        assert!(slots.try_take(&"a").is_none(), "somebody waits for it");
        let three = slots.take_waiting(&"a").unwrap();
        assert!(slots.take_waiting(&"a").is_none());
        let beyond = slots.take_beyond(&"a");
        drop((second, three));
        assert!(slots.try_take(&"a").is_some_and(|slot| *slot.lane() == "a"));
        drop(beyond);
        assert!(slots.shared.lanes.lock().unwrap().is_empty(), "what nobody uses is forgotten");
    }
}
