//! `berth-gc`: finds what nobody else saw.
//!
//! **Owns** nothing but its lease. It reads everything now and then, and asks whoever owns it to
//! take away what is left behind: claims of allocs that have ended or do not exist (F1), volumes
//! that were to go with their last claim, and records that are of no use any more: of allocs that
//! have ended, of nodes that are down with nothing on them, of plugin instances of nodes that
//! nobody knows (F2, D4). What should go and cannot yet, it names with the reason.
//!
//! **Promises** that one replica collects at a time and another takes over when its lease ends
//! (F3); that nothing is asked for without evidence read at the leader just before, there or by the
//! service that is asked; and that one thing that cannot be collected stops no other.
//!
//! **Never** frees anything, by time or otherwise: it starts the one way in which claims are
//! released, and asking for that twice, or by two collectors at once, is harmless. A record is
//! removed only when no claim rests on it; how old it is decides nothing else.

mod collect;
mod collector;
mod config;
mod evidence;
mod lead;
mod plan;
mod sweep;
mod view;

use std::sync::Arc;

use berth_service::process::{Fatal, Process};

pub use config::Config;

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let collector = process.prepare(collector::Collector::open(config, &process)).await?;
    lead::stand_by(&Arc::new(collector), &process).await
}
