//! Faults at every point: for each flow, before and after each write and each call, a fault hits
//! the sender. The flow must still end right.
//!
//! Nothing in the programs helps. Each process reaches the bus by a cable of its own, and a
//! tripwire lies across them all: it goes off at the n-th write or call of the flow. A run without
//! faults counts the points, so a new write or call is tried by itself. `BERTH_FAULTS=all` tries
//! also what takes long: every point where the fast run takes some.
//!
//! Crossed is every flow with every blow, as far as the time of a run allows. A kill hits the
//! sender at every point of every flow. Each other fault hits one in a few points of a claim and of
//! a release, and the turning points of the other flows, before and after a message. Three faults
//! hit another process: of three servers the leader is killed, and around a plugin's call the
//! driver, the agent or the caller.
//!
//! Not crossed, and why. Processes without a part in the message at hand: `kills` and `chaos` hurt
//! those. An agent by a second one: a node has one. Two faults at once: `chaos`. An agent's queries
//! of a plugin's identity and capabilities: they change nothing and are repeated. A plugin's calls
//! with a dead bus: the agent needs no bus meanwhile, and the writes before and after are points of
//! the flow.
//!
//! ```text
//! flow      what is done, and what is to be so at the end
//! sweep     the collector is made to sweep
//! blow      what happens at a point
//! points    points of flows, struck one after another
//! sender    whoever wrote or called is killed there
//! crossed   every other blow in every flow
//! calls     around each call of a plugin: the driver, the agent or the caller is killed
//! purged    what was deleted leaves the bus for good, whoever is killed meanwhile
//! replicas  one of two works in late what its caller has given up
//! ```

#![expect(clippy::print_stdout, reason = "what was done before it failed is half of a failure")]

mod blow;
mod calls;
mod crossed;
mod flow;
mod points;
mod purged;
mod replicas;
mod sender;
mod sweep;

use berth_integration::Options;
use points::Which;

/// The system that faults are tried on: quick to give up on a call and to ask again.
fn options() -> Options {
    Options { cables: true, call_timeout_ms: 1_500, patience_ms: 2_000, ..Options::default() }
}

/// One point in so many; every point where everything is to be tried, however long it takes.
fn some(step: usize) -> Which {
    unless_all(Which::OneIn(step))
}

/// Where flows turn; every point where everything is to be tried.
fn turns() -> Which {
    unless_all(Which::Turns)
}

fn unless_all(which: Which) -> Which {
    let all = std::env::var("BERTH_FAULTS").is_ok_and(|what| what == "all");
    if all { Which::Every } else { which }
}
