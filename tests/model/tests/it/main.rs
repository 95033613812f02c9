//! Searches the claim protocol: nothing goes wrong, and the search would find it if it did.

#![expect(clippy::print_stdout, reason = "how much was searched is half of what a search says")]
#![expect(clippy::panic, reason = "a breach fails the test, with its story")]

use berth_domain::access::{AccessMode, Mode};
use berth_model::{Attaches, Placed, Scenario};

mod crossed;
mod handles;
mod mutations;
mod pairs;
mod scenarios;
mod set_back;
mod storage;

/// An exclusive volume with a controller, in bad weather, whose callers do not wait in line.
const BASE: Scenario = Scenario {
    name: "",
    access: AccessMode::SingleNodeWriter,
    attaches: Attaches::Always,
    allocs: &[],
    wait: false,
    nodes_fail: true,
    loses_journal: false,
    troubles: &[],
    attempts: None,
    mutation: None,
};

/// An alloc that writes, on the first node.
const W1: Placed = Placed { node: 0, mode: Mode::Write };
/// An alloc that writes, on the second node.
const W2: Placed = Placed { node: 1, mode: Mode::Write };
/// An alloc that reads, on the first node.
const R1: Placed = Placed { node: 0, mode: Mode::Read };
