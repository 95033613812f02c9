//! Faults at every point: for each flow, before and after each write and each call, a fault hits
//! the sender. The flow must still end correctly.
//!
//! The programs contain no test hooks. Each process reaches the bus by its own cable. A tripwire
//! across all cables trips at the n-th write or call of the flow. A run without faults counts the
//! points, so a new write or call is included. `BERTH_FAULTS=all` tries every point where the fast
//! run takes a sample.
//!
//! Each flow is combined with each fault, as far as the time of a run allows. A kill hits the
//! sender at every point of every flow. Each other fault hits one in a few points of a claim and of
//! a release, and the turning points of the other flows, before and after a message. Three faults
//! hit another process: the leader of three servers; and around a plugin's call the driver, the
//! agent or the caller.
//!
//! Left out, and why. Processes that neither send nor receive the message: `kills` and `chaos` hit
//! those. A second agent on a node: a node has one. Two faults at once: `chaos`. An agent's queries
//! of a plugin's identity and capabilities: they change nothing and are repeated. A plugin's calls
//! while the bus is down: the agent needs no bus during a call, and the writes before and after are
//! points of the flow.
//!
//! ```text
//! flow      what each flow does, and the state it must reach; storage_flow those of the storage
//! sweep     runs the collector's sweeps
//! blow      the faults
//! points    runs faults at points of flows, one after another
//! sender    the sender of a write or call is killed
//! crossed   every other fault in every flow
//! calls     around each call of a plugin: the driver, the agent or the caller is killed
//! storage_calls  around each call that changes the storage: also each code of gRPC
//! purged    deleted records leave the bus for good, whichever process is killed
//! replicas  one of two replicas completes a request after its caller has given up
//! ```

#![expect(clippy::print_stdout, reason = "a failed run must show which points passed before")]

mod blow;
mod calls;
mod crossed;
mod flow;
mod points;
mod purged;
mod replicas;
mod sender;
mod storage_calls;
mod storage_flow;
pub mod sweep;

use berth_integration::Options;
use points::PointChoice;

/// The system of the fault tests, with short deadlines and retry delays.
fn options() -> Options {
    Options { cables: true, call_timeout_ms: 1_500, patience_ms: 2_000, ..Options::default() }
}

/// Every `step`-th point; with `BERTH_FAULTS=all` every point.
fn one_in(step: usize) -> PointChoice {
    or_every(PointChoice::OneIn(step))
}

/// Turning points of flows; with `BERTH_FAULTS=all` every point.
fn turning_points() -> PointChoice {
    or_every(PointChoice::Turns)
}

fn or_every(choice: PointChoice) -> PointChoice {
    let all = std::env::var("BERTH_FAULTS").is_ok_and(|value| value == "all");
    if all { PointChoice::Every } else { choice }
}
