//! What will be done, and when: a pure function of the seed.
//!
//! Owns: which system is started ([`Shape`]), every operation and fault, and the moment of each.
//! Promises: the same seed gives the same plan; a longer run begins as a shorter one does; no two
//! faults of a plan strike the same target at once, and each ends by itself. Never: says what comes
//! of it. How processes interleave is the machine's own affair and cannot be repeated.

mod fault;
mod operation;
mod restore;
mod shape;
mod storage;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

pub use fault::{Absence, Fault, Planted, Strike, Target};
pub use operation::{Deed, End, Late, Operation, Read, Sending, Workload};
pub use restore::{Restore, Tool, restore};
pub use shape::{CREATED_NUMBERS, Kind, PLUGINS, SCRATCH, Shape, VOLUMES, kind_of};
pub use storage::{SMALLEST, Source, StorageDeed};

/// What happens at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// When, counted from the start.
    pub at: Duration,
    /// What.
    pub what: What,
}

/// An operation or a fault.
#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// A client's operation.
    Operation(Operation),
    /// Something breaks, and mends.
    Strike(Strike),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(operation) => write!(f, "{operation}"),
            Self::Strike(strike) => write!(f, "{strike}"),
        }
    }
}

/// The plan of a seed for so long, in the order of time.
pub fn plan(seed: u64, shape: Shape, length: Duration) -> Vec<Event> {
    let operations = operation::all(seed, shape).take_while(|event| event.at < length);
    let strikes = fault::all(seed, shape).take_while(|event| event.at < length);
    let mut events: Vec<Event> = operations.chain(strikes).collect();
    // Stable, so that what falls on one moment keeps its order.
    events.sort_by_key(|event| event.at);
    events
}
