//! The real binary, as two nodes on one backend, with real mounts.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests stop where they fail"
)]

mod abilities;
mod cli;
mod codes;
mod crash;
mod faults;
mod life;
mod log;
mod namespace;
mod order;
mod request;
mod world;
