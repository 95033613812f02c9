//! `berth-claim`: registers volumes, takes requests for volumes at their storage, grants claims,
//! and records every transition.
//!
//! **Owns** the buckets of volumes, allocs and secrets: no other service writes to them. Any number
//! of replicas may run: each write is guarded, and a replica that loses a race reads and decides
//! again.
//!
//! **Promises**
//!
//! - A claim is recorded before the controller is called (B5).
//! - A claim that was answered as granted or released is stored as such.
//! - A request may always be repeated: the same request gets the same claim (B4).
//!
//! **Never** decides by itself: `domain::volume::step` decides; this service loads, commits, calls
//! the controller, and feeds the outcome back. It never calls a node, and never detaches a volume:
//! the volumewatcher releases claims, and requests each step through `work.checkpoint`.

mod alloc;
mod caller;
mod claim;
mod config;
mod endpoints;
mod many;
mod read;
mod refusal_event;
mod storage;
mod store;
mod volume;
mod work;

use berth_service::process::{Fatal, Process};
use berth_service::purge;
use tokio::task::JoinHandle;

use claim::line;
use store::{handle_repair, measure, mount_lookup, raise_level, secrets, state};

pub use config::Config;
pub use store::handle;

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let shutdown = process.shutdown.clone();
    let state = process.prepare(state::State::open(&config, &process)).await?;
    // After all buckets were created, which a record in one of them shows.
    raise_level::begin(&state).await;
    let service = endpoints::serve(&state, &process).await?;
    let fact_state = state.clone();
    service.tell_facts(move || raise_level::facts(&fact_state));
    process.report_ready();
    let chores = [
        tokio::spawn(handle_repair::repair_handles(state.clone())),
        tokio::spawn(claim::locate::store_missing_nodes(state.clone())),
        tokio::spawn(line::wake_requests(state.clone())),
        tokio::spawn(line::keep_places(state.clone())),
        tokio::spawn(raise_level::keep(state.clone())),
        tokio::spawn(secrets::sweep_unnamed(state.clone())),
        tokio::spawn(purge::deleted(state.volumes.bucket.clone())),
        tokio::spawn(purge::deleted(state.allocs.bucket.clone())),
        tokio::spawn(measure::count_unfinished(state.clone())),
        tokio::spawn(alloc::mark_unowned(state.clone())),
        tokio::spawn(mount_lookup::forget_reported(state.clone())),
        tokio::spawn(storage::ask_when_due(state.clone())),
    ];
    shutdown.requested().await;
    chores.iter().for_each(JoinHandle::abort);
    service.stop(config.drain).await;
    Ok(())
}
