//! `berth-plugin-registry`: knows plugins and nodes.
//!
//! **Owns** the buckets of plugins and nodes: nobody else writes them. Any number of replicas may
//! run: each key is written under the guard of its own revision, and whoever loses a race looks
//! again and decides anew.
//!
//! **Promises** that a plugin is what its instances add up to, counted when asked and never stored
//! (D1); that a report says all there is of its node, so that a lost one costs nothing, one that
//! comes twice changes nothing, and what it does not name has left (D3); that a node is down within
//! a second of the end of its lease, and ready again as soon as it holds one.
//!
//! **Never** takes an end of a lease for more than it is: a node that is down may still have
//! mounted what it had, and nothing is freed by it. What instances said stays as they said it;
//! whether they count as healthy is worked out with their node's state when somebody asks.

mod config;
mod decide;
mod delete;
mod endpoints;
mod events;
mod gone;
mod jobs;
mod leases;
mod leave;
mod pace;
mod presence;
mod query;
mod report;
mod state;
mod status;
mod store;

use std::time::Duration;

use berth_service::process::{Fatal, Process};
use berth_service::purge;

pub use config::Config;

/// How long requests under way may go on after the shutdown: as long as a write is pursued.
const DRAIN: Duration = Duration::from_secs(12);

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let shutdown = process.shutdown.clone();
    let state = process.prepare(state::State::open(&process, config.pace)).await?;
    let service = endpoints::serve(&state, &process).await?;
    tracing::info!("serving");
    berth_service::notify::ready();
    tokio::select! {
        () = presence::keep(&state, config.rescan, shutdown) => {}
        () = purge::deleted(state.plugins.bucket.clone()) => {}
        () = purge::deleted(state.nodes.bucket.clone()) => {}
    }
    service.stop(DRAIN).await;
    state.events.flush(DRAIN).await;
    Ok(())
}
