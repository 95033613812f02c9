//! The harness does what the tests that stand on it take for granted.

#![expect(clippy::unwrap_used, reason = "what a test needs to go on is there, or it fails")]

mod dirs;
mod failure;
mod nats;
mod ports;
mod process;
mod proxy;
mod wait;
