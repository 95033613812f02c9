//! The real service on a real nats-server: what its agents, its operators and its crashes do to it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops where its footing fails")]

mod account;
mod cluster;
mod crash;
mod gone;
mod hold;
mod input;
mod listed;
mod plugins;
mod presence;
mod process;
mod renewals;
mod replicas;
mod report;
mod shared_id;
mod site;
