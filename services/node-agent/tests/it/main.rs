//! The agent's own process against a real nats-server and the real development driver over its
//! socket, with real mounts.
//!
//! The claim service and the registry are not part of these tests: the test itself answers
//! `claim.take`, `node.report` and more on the bus, by the contract ([`others`], [`claims`]).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test must stop where its footing fails")]

mod block;
mod claims;
mod comeback;
mod dead;
mod detach;
mod endpoint;
mod enforced;
mod executor;
mod foreign;
mod health;
mod holders;
mod hosting;
mod hung;
mod journal;
mod lease;
mod life;
mod mounting;
mod others;
mod places;
mod plugins;
mod readings;
mod reboot;
mod secrets;
mod trusted;
mod unclaimed;
mod unstaged;
mod world;
