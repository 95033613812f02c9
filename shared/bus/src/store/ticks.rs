//! Ticks: writes that nobody waits for are held back for a moment, and go on together.
//!
//! **Owns** which of these writes are held back. A server that gets 25 writes a second, each at a
//! time of its own, works most of the time on waking up: four ticks a second cost it half as much,
//! also where each write is still stored alone.
//!
//! **Promises** that no write is held back for longer than one tick, and none while few such writes
//! come: a tick in which they were few is followed by one that holds nothing back. What is held
//! back is bounded in count and bytes: a full tick ends early.

use std::time::Duration;

/// How long a write is held back at most. An agent sends the request for its lease again after 700
/// ms.
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// From this many writes of a tick on, those of the next tick are held back.
const MANY: usize = 4;

/// The ticks of one bucket, and what the current one holds back.
pub(crate) struct Ticks<T> {
    /// Whether the ticks are counted. They stop after one without a write.
    runs: bool,
    /// Whether the current tick holds writes back.
    holds: bool,
    /// The writes of the current tick.
    arrived: usize,
    held: Vec<T>,
    held_bytes: usize,
}

/// What becomes of a write that arrives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The caller has to count the ticks from now on: [`Ticks::end`] after each.
    pub(crate) starts: bool,
    /// The caller has to hand the write over: [`Ticks::hold`].
    pub(crate) is_held: bool,
}

impl<T> Default for Ticks<T> {
    fn default() -> Self {
        Self { runs: false, holds: false, arrived: 0, held: Vec::new(), held_bytes: 0 }
    }
}

impl<T> Ticks<T> {
    /// Counts a write.
    pub(crate) fn arrive(&mut self) -> Arrival {
        self.arrived += 1;
        Arrival { starts: !std::mem::replace(&mut self.runs, true), is_held: self.holds }
    }

    /// Holds a write back. Returns what must go on now, because no more may be held back.
    pub(crate) fn hold(&mut self, write: T, bytes: usize, max: (usize, usize)) -> Vec<T> {
        self.held.push(write);
        self.held_bytes += bytes;
        let is_full = self.held.len() >= max.0 || self.held_bytes >= max.1;
        if is_full { self.release() } else { Vec::new() }
    }

    /// Ends the tick. Returns what it held back, and whether another tick follows.
    pub(crate) fn end(&mut self) -> (Vec<T>, bool) {
        let arrived = std::mem::take(&mut self.arrived);
        (self.runs, self.holds) = (arrived > 0, arrived >= MANY);
        (self.release(), self.runs)
    }

    fn release(&mut self) -> Vec<T> {
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: (usize, usize) = (6, 100);

    /// Lets writes arrive; returns what goes on at once.
    fn arrive(ticks: &mut Ticks<u32>, writes: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let mut on = Vec::new();
        for write in writes {
            if ticks.arrive().is_held {
                on.extend(ticks.hold(write, 10, MAX));
            } else {
                on.push(write);
            }
        }
        on
    }

    #[test]
    fn few_writes_go_on_at_once_and_many_at_the_end_of_their_tick() {
        let mut ticks = Ticks::default();
        assert_eq!(ticks.arrive(), Arrival { starts: true, is_held: false });
        assert_eq!(ticks.arrive(), Arrival { starts: false, is_held: false });
        assert_eq!(ticks.end(), (vec![], true));
        assert_eq!(arrive(&mut ticks, 1..=4), [1, 2, 3, 4], "they were few before");
        assert_eq!(ticks.end(), (vec![], true));
        assert_eq!(arrive(&mut ticks, 5..=6), [0; 0], "they were many before");
        assert_eq!(ticks.end(), (vec![5, 6], true));
        assert_eq!(arrive(&mut ticks, 7..=7), [7], "they were few again");
        assert_eq!(ticks.end(), (vec![], true));
        assert_eq!(ticks.end(), (vec![], false), "nothing came");
        assert_eq!(ticks.arrive(), Arrival { starts: true, is_held: false });
    }

    #[test]
    fn a_full_tick_ends_early() {
        let mut ticks = Ticks::default();
        arrive(&mut ticks, 1..=4);
        ticks.end();
        assert_eq!(arrive(&mut ticks, 1..=8), [1, 2, 3, 4, 5, 6], "as many as may be");
        assert_eq!(ticks.hold(9, 90, MAX), [7, 8, 9], "as many bytes as may be");
        assert_eq!(ticks.hold(10, 10, MAX), [0; 0], "the count of the next tick begins at none");
        assert_eq!(ticks.end().0, [10]);
    }
}
