//! The plan: what is done when, as a pure function of the seed.
//!
//! Owns: which system is started ([`Shape`]), and every operation and fault with its moment.
//! Promises: the same seed gives the same plan; the plan of a longer run begins as that of a
//! shorter one; no two faults strike the same target at once; each fault ends by itself. Never:
//! says what the operations lead to. How the processes interleave depends on the machine and cannot
//! be repeated.

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
pub use operation::{Action, End, Late, Operation, Read, Sending, Workload};
pub use restore::{Restore, Tool, restore};
pub use shape::{CREATED_NUMBERS, Kind, PLUGINS, SCRATCH, Shape, VOLUMES, kind_of};
pub use storage::{SMALLEST, Source, StorageAction};

/// An operation or a fault with its moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// The time since the start of the run.
    pub at: Duration,
    /// The operation or the fault.
    pub kind: EventKind,
}

/// What an [`Event`] is.
#[derive(Clone, PartialEq, Debug)]
pub enum EventKind {
    /// An operation of a client.
    Operation(Operation),
    /// A fault strikes, and is mended.
    Strike(Strike),
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(operation) => write!(f, "{operation}"),
            Self::Strike(strike) => write!(f, "{strike}"),
        }
    }
}

/// The plan of a seed for a run of `length`, in the order of time.
pub fn plan(seed: u64, shape: Shape, length: Duration) -> Vec<Event> {
    let operations = operation::all(seed, shape).take_while(|event| event.at < length);
    let strikes = fault::all(seed, shape).take_while(|event| event.at < length);
    let mut events: Vec<Event> = operations.chain(strikes).collect();
    // The sort is stable, so events of the same moment keep their order.
    events.sort_by_key(|event| event.at);
    events
}
