//! The harness does what the tests that use it rely on.

#![expect(clippy::unwrap_used, reason = "a test must stop where its footing fails")]

mod dirs;
mod failure;
mod nats;
mod ports;
mod process;
mod proxy;
mod wait;
