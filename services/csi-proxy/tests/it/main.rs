//! The real binary in front of the development driver, each a process of its own.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests stop where they fail")]

mod behind;
mod faults;
mod passes;
mod world;
