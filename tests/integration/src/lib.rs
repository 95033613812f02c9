//! A whole Berth on one machine, for tests: the real binaries, each a process of its own.
//!
//! Owns: starting every process of the blueprint with real configuration, asking them over the bus
//! as a user would, and judging at the end by the drivers' own call logs.
//!
//! Promises: [`System::settle`] passes only when no claim, no mount and no attachment is left, and
//! the judge finds nothing a CO must never do.
//!
//! Never: reaches into a process, or replaces one.

#![expect(clippy::expect_used, clippy::panic, reason = "a test must stop where its footing fails")]

mod ask;
mod hold;
mod judge;
mod system;

pub use ask::RECOVERY;
pub use system::{Options, PLUGIN, Part, System};
