//! `berth-claim`: registers volumes, grants claims, records every transition.
//!
//! **Owns** the buckets of volumes, allocs and secrets: nobody else writes them. Any number of
//! replicas may run: each write is guarded, and whoever loses a race looks again and decides anew.
//!
//! **Promises** that a claim is recorded before the controller is called (B5), that what it
//! answered as granted or released is stored, and that asking again is always safe: the same
//! request gives the same claim (B4).
//!
//! **Never** decides by itself: `domain::volume::step` does, and this service loads, commits,
//! calls, and feeds the outcome back. It never calls a node, and never detaches anything: releases
//! are the volumewatcher's, who asks for each step through `claim.checkpoint`.

mod again;
mod alloc;
mod checkpoint;
mod config;
mod deregister;
mod detach;
mod endpoints;
mod events;
mod forget;
pub mod handle;
mod handle_repair;
mod locate;
mod look;
mod measure;
mod observe;
mod plan;
mod proof;
mod refuse;
mod register;
mod running;
mod secrets;
mod state;
mod take;
mod trail;
mod transact;

use berth_service::process::{Fatal, Process};
use berth_service::purge;
use tokio::task::JoinHandle;

pub use config::Config;

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let shutdown = process.shutdown.clone();
    let state = process.prepare(state::State::open(&config, &process)).await?;
    let service = endpoints::serve(&state, &process).await?;
    berth_service::notify::ready();
    let chores = [
        tokio::spawn(handle_repair::repair(state.clone())),
        tokio::spawn(secrets::sweep(state.clone())),
        tokio::spawn(purge::deleted(state.volumes.clone())),
        tokio::spawn(purge::deleted(state.allocs.clone())),
        tokio::spawn(measure::waiting(state.clone())),
    ];
    shutdown.requested().await;
    chores.iter().for_each(JoinHandle::abort);
    service.stop(config.drain).await;
    Ok(())
}
