//! Two volumes and two allocs that want both: who waits for whom.
//!
//! **Owns** a small world of two exclusive volumes and the callers of two allocs. The decisions are
//! the claim service's own: `step`, [`take_order`] and [`Deadlock::find`].
//!
//! **Promises** of each state: no volume has two writers; an alloc that was refused and has undone
//! its steps holds nothing; of a circle of allocs one alone is refused; and from there, both allocs
//! come to their end, and both volumes are free, though no caller in line gives up by itself.
//!
//! **Never** models the controller or the node: a release needs one answer here. The great model
//! has these for one volume, and a volume's release asks for no other volume.
//!
//! [`take_order`]: berth_domain::volume::deadlock::take_order
//! [`Deadlock::find`]: berth_domain::volume::deadlock::Deadlock::find

mod world;

use std::collections::{BTreeMap, VecDeque};

pub use world::Breach;
use world::World;

/// How the volumes of an alloc are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// All in one request. They are taken in one order, and released again if one is refused.
    Together,
    /// One after the other in the alloc's own order. The two allocs have opposite orders.
    OneByOne,
}

/// A rule that is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The volumes are taken together, but in the alloc's own order, and circles are not looked
    /// for.
    OwnOrder,
    /// Circles are not looked for.
    NoSearch,
    /// Each alloc in a circle is refused.
    AllGiveUp,
    /// Volumes that were taken before a refusal stay taken.
    NoUndo,
    /// Volumes that were mounted before the request are released too.
    UndoAll,
}

/// The parameters of one search.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// How the volumes are asked for.
    pub asking: Asking,
    /// Whether callers wait in line.
    pub wait: bool,
    /// Whether each alloc has the first of its volumes mounted already.
    pub has_one: bool,
    /// The rule that is taken away.
    pub mutation: Option<Mutation>,
}

/// The size of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Searched {
    /// The states that were seen.
    pub states: usize,
}

impl Search {
    /// Sees every state that can be reached.
    pub fn run(self) -> Result<Searched, Breach> {
        let first = World::new(self);
        let mut numbers = BTreeMap::from([(first.print(), 0)]);
        let (mut worlds, mut queue) = (vec![first], VecDeque::from([0]));
        // Which states lead to a state.
        let mut before: Vec<Vec<usize>> = vec![Vec::new()];
        while let Some(at) = queue.pop_front() {
            for next in worlds[at].successors()? {
                let number = *numbers.entry(next.print()).or_insert_with(|| {
                    worlds.push(next);
                    before.push(Vec::new());
                    queue.push_back(worlds.len() - 1);
                    worlds.len() - 1
                });
                before[number].push(at);
            }
        }
        Self::check_rest(&worlds, &before)?;
        Ok(Searched { states: worlds.len() })
    }

    /// Checks that a state at rest is reachable from every state.
    fn check_rest(worlds: &[World], before: &[Vec<usize>]) -> Result<(), Breach> {
        let mut rests = vec![false; worlds.len()];
        let mut queue: VecDeque<usize> =
            (0..worlds.len()).filter(|at| worlds[*at].is_at_rest()).collect();
        while let Some(at) = queue.pop_front() {
            if !std::mem::replace(&mut rests[at], true) {
                queue.extend(&before[at]);
            }
        }
        match rests.iter().position(|rests| !rests) {
            Some(stuck) => Err(worlds[stuck].breach("nobody goes on from here")),
            None => Ok(()),
        }
    }
}
