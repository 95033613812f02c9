//! The base of every crate's tests: real servers, real binaries, and waiting for conditions.
//!
//! Owns: starting, killing and pausing processes ([`process`], [`nats`]), the directories and ports
//! they use ([`dirs`], [`ports`]), a cable that can be cut between them ([`proxy`]), a collector of
//! their spans and metrics ([`otlp`]), waiting ([`wait`]), programs in mount namespaces
//! ([`namespace`]), the judge of call logs ([`judge`]), what the storage has in use ([`storage`]),
//! a file system that hangs ([`fuse`]), and what a failing test prints ([`failure`]).
//!
//! Promises: nothing outlives the test. Processes, mounts and directories go when their owner is
//! dropped, and also when the test is killed. Any number of tests run side by side.
//!
//! Never: replaces a part that a user would run, sleeps for luck, or runs a test again. Where a
//! test could only unwrap, it panics with all it knows.

#![expect(clippy::expect_used, clippy::panic, reason = "a test must stop where its footing fails")]

pub mod dirs;
pub mod failure;
pub mod fuse;
pub mod judge;
pub mod namespace;
pub mod nats;
pub mod otlp;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod root;
pub mod storage;
pub mod wait;

use std::path::{Path, PathBuf};

/// The root of the repository that the tests were built from.
pub fn repository() -> PathBuf {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.ancestors().nth(2).expect("tests/harness lies two levels deep").to_path_buf()
}
