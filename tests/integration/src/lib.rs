//! A complete Berth on one machine, for tests: the real binaries, each in its own process.
//!
//! Owns: starting every process of the blueprint with real configuration, sending requests over the
//! bus as a user would, and judging at the end by the drivers' own call logs.
//!
//! Promises: [`System::settle`] passes only when no claim, no mount and no attachment is left, and
//! the judge finds no breach of CSI.
//!
//! Never: reaches into a process, or replaces one.

#![expect(clippy::expect_used, clippy::panic, reason = "a test must stop where its footing fails")]

mod ask;
mod hold;
mod judge;
mod store;
mod system;

pub use ask::RECOVERY;
pub use system::{Options, PLUGIN, Part, System, Version};
