//! `berth-volumewatcher`: drives every release to its end, and every change of the storage.
//!
//! **Owns** no record. It looks at volumes and allocs, finds claims that are to go, volumes that
//! are to be created, changed or deleted, and snapshots, and for each makes one call at a time.
//! Which call is next, and whether it may be made now, it asks the claim service, which writes it
//! down first (`work.checkpoint`).
//!
//! **Promises** that a claim whose alloc has ended is worked on as soon as that is seen, tried
//! again for as long as it takes (C1), and taken over when another watcher died over it (C5): the
//! work is in the record, and any watcher may ask for the next step once the last attempt can no
//! longer act.
//!
//! **Never** frees anything: a claim goes when the claim service writes that it is gone, after a
//! call that succeeded. Never repeats a call by itself: a repetition is a new attempt.

mod ask;
mod config;
mod drive;
mod due;
mod early;
mod newer;
mod scan;
mod view;
mod wake;
mod watch;

use std::sync::Arc;

use berth_bus::{Mirror, MirrorOptions};
use berth_contract::bucket;
use berth_domain::limits::RUN_REGISTERED_WITHIN;
use berth_service::first_seen::FirstSeen;
use berth_service::process::{Fatal, Process};
use berth_service::projection::{Allocs, Instances, Nodes};
use berth_service::reconcile::{self, Lanes, Waker};
use berth_service::slots::Slots;
use tokio::sync::Semaphore;

pub use config::Config;

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let (waker, changes) = (Waker::default(), watch::Changes::default());
    let view = Arc::new(process.prepare(follow(&process, &config, &changes)).await?);
    // The mirrors reported every existing record as a change. The first scan finds what is due.
    changes.take();
    let service = process.announce().await?;
    let calls = Slots::new(config.per_plugin);
    let driver = Arc::new(drive::Driver {
        bus: process.bus.clone(),
        worker: process.worker.clone(),
        view: Arc::clone(&view),
        calls: calls.clone(),
        questions: Semaphore::new(config.max_in_flight),
        look_again: config.rescan,
        newer: newer::NewerRecords::default(),
    });
    let lanes = {
        let view = Arc::clone(&view);
        Lanes { slots: calls, place: move |claim: &watch::WorkKey| view.place(claim) }
    };
    let work = move |claim, slot| Arc::clone(&driver).drive(claim, slot);
    let listen = tokio::spawn(wake::listen(Arc::clone(&view), changes, waker.clone()));
    process.report_ready();
    let rescan = tokio::spawn(wake::rescan(view, waker.clone(), config.rescan));
    reconcile::run_in_lanes(waker, lanes, config.drain, process.shutdown.clone(), work).await;
    listen.abort();
    rescan.abort();
    service.stop(config.drain).await;
    Ok(())
}

async fn follow(
    process: &Process,
    config: &Config,
    changes: &watch::Changes,
) -> Result<view::WatchView, Fatal> {
    let (bus, replicas) = (&process.bus, process.replicas);
    let changes = || changes.clone();
    let allocs = bus.bucket(&bucket::ALLOCS, replicas).await?;
    let plugins = bus.bucket(&bucket::PLUGINS, replicas).await?;
    let nodes = bus.bucket(&bucket::NODES, replicas).await?;
    let volumes = bus.bucket(&bucket::VOLUMES, replicas).await?;
    volumes.watch_clock();
    let options = MirrorOptions::default();
    let watched = watch::WatchedAllocs { allocs: Allocs::default(), changes: changes() };
    let allocs = Mirror::start(&allocs, ">", watched, options).await?;
    let watched = watch::WatchedInstances { instances: Instances::default(), changes: changes() };
    let instances = Mirror::start(&plugins, ">", watched, options).await?;
    let watched = watch::WatchedNodes { nodes: Nodes::default(), changes: changes() };
    let nodes = Mirror::start(&nodes, ">", watched, options).await?;
    let watched = watch::WatchedVolumes::new(changes());
    let volumes = Mirror::start(&volumes, ">", watched, options).await?;
    let early = early::EarlyTries::new(config.early);
    let runs_seen = FirstSeen::new(RUN_REGISTERED_WITHIN);
    Ok(view::WatchView { allocs, instances, nodes, volumes, early, runs_seen })
}
