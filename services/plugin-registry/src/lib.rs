//! `berth-plugin-registry`: knows plugins and nodes.
//!
//! **Owns** the buckets of plugins and nodes: no other service writes to them. Any number of
//! replicas may run: each key is written under the guard of its own revision, and a replica that
//! loses a race reads and decides again.
//!
//! **Promises**
//!
//! - A plugin is the fold of its instances, counted at each request and never stored (D1).
//! - A report lists all instances of its node. So a lost report costs nothing, a repeated one
//!   changes nothing, and an instance that it does not list has left (D3).
//! - A node is down within a second of the end of its lease, and ready again as soon as it holds
//!   one.
//!
//! **Never** frees anything because a lease ended: a node that is down may still have its mounts.
//! The instances' reports stay as they were; their health is derived with their node's state at
//! each request.

mod caller;
mod config;
mod endpoints;
mod node;
mod plugin;
mod read;
mod store;

use std::time::Duration;

use berth_service::process::{Fatal, Process};
use berth_service::purge;

pub use config::Config;
use node::presence;
use store::state::State;

/// How long requests may still run after the shutdown: as long as a write is retried.
const DRAIN: Duration = Duration::from_secs(12);

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let shutdown = process.shutdown.clone();
    let state = process.prepare(State::open(&process, config.pace)).await?;
    let service = endpoints::serve(&state, &process).await?;
    tracing::info!("serving");
    process.report_ready();
    tokio::select! {
        () = presence::keep(&state, config.rescan, shutdown) => {}
        () = purge::deleted(state.plugins.bucket.clone()) => {}
        () = purge::deleted(state.nodes.bucket.clone()) => {}
        () = state.volumes.follow(&state.bus) => {}
    }
    service.stop(DRAIN).await;
    state.events.flush(DRAIN).await;
    Ok(())
}
