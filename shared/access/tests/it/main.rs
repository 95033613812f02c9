//! Identities, TLS and revocation, tried on real nats-servers.
//!
//! The client here is written from the protocol: what a server accepts is judged by its answers to
//! bytes, not by the code that made the tokens.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test must stop where its footing fails")]

mod admission;
mod boundary;
mod check_access;
mod client;
mod directory;
mod local;
mod page;
mod replies;
mod revocation;
mod server;
