//! The real binary, as two nodes on one backend, with real mounts.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests stop where they fail"
)]

mod abilities;
mod changes;
mod cli;
mod codes;
mod copies;
mod crash;
mod faults;
mod forged;
mod health;
mod images;
mod kernel;
mod lenient;
mod life;
mod log;
mod made;
mod namespace;
mod order;
mod request;
mod storage_faults;
mod world;
