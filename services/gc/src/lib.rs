//! `berth-gc`: finds what was left behind, and asks its owner to remove it.
//!
//! **Owns** nothing but its lease. At an interval it asks the claim service for what may be left
//! behind, page by page, reads the records of nodes and plugins, and finds
//! - claims of allocs that have ended or do not exist (F1);
//! - volumes that are closing and have no claim left;
//! - records that are of no use any more (F2, D4): of allocs that have ended, of nodes that are
//!   down with nothing on them, of plugin instances on nodes without a record.
//!
//! What should go and cannot yet, it names with the reason.
//!
//! **Promises** that one replica collects at a time, and another takes over when its lease ends
//! (F3). Each request rests on evidence that was read at the stream's leader just before, by this
//! service or by the one that is asked. A thing that cannot be collected stops no other.
//!
//! **Never** frees anything: it asks for the ordinary release of a claim, and asking twice, or by
//! two collectors, is harmless. It removes a record only when no claim depends on it; age alone
//! removes nothing.

mod collect;
mod collector;
mod config;
mod evidence;
mod find;
mod lead;
mod plan;
mod sweep;
mod view;

use std::sync::Arc;

use berth_service::process::{Fatal, Process};

pub use config::Config;

/// Runs until shutdown.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let collector = process.prepare(collector::Collector::open(config, &process)).await?;
    lead::stand_by(&Arc::new(collector), &process).await
}
