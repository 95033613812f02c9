//! Faults at every point: for each flow, before and after each write and each call, whoever makes
//! it, something bad happens there; the flow is to end right all the same.
//!
//! Nothing in the programs helps. Each process reaches the bus by a cable of its own, and a
//! tripwire lies across them all: it goes off at the n-th write or call of the flow. A run without
//! faults counts the points, so a new write or call is tried by itself. `BERTH_FAULTS=all` tries
//! also what takes long: every point where the fast run takes some.
//!
//! ```text
//! flow      what is done, and what is to be so at the end
//! blow      what happens at a point
//! points    every point of a flow
//! sender    whoever wrote or called is killed there
//! bus       the bus is killed there, or the way to it breaks, or goes deaf
//! replicas  two of each: one is killed or paused there, and the other carries on
//! calls     around each call of a plugin: the driver, the agent or the caller is killed
//! ```

#![expect(clippy::print_stdout, reason = "what was done before it failed is half of a failure")]

mod blow;
mod bus;
mod calls;
mod flow;
mod points;
mod replicas;
mod sender;

use berth_integration::Options;
use points::Which;

/// The system that faults are tried on: quick to give up on a call and to ask again.
fn options() -> Options {
    Options { cables: true, call_timeout_ms: 1_500, patience_ms: 2_000, ..Options::default() }
}

/// One point in so many; every point where everything is to be tried, however long it takes.
fn some(step: usize) -> Which {
    let all = std::env::var("BERTH_FAULTS").is_ok_and(|what| what == "all");
    if all { Which::Every } else { Which::OneIn(step) }
}
