//! The crate's promises, tested on real sockets and against the contract.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod client;
mod fingerprint;
mod outcome;
mod plugin;
mod redaction;
mod replaced;
mod spans;
mod wire;
