//! `berth-volumewatcher`: drives every release to its end.
//!
//! **Owns** no record. It looks at volumes and allocs, finds claims that are to go, and for each
//! makes one call at a time: to the node's agent, then to the plugin's controller. Which call is
//! next, and whether it may be made now, it asks the claim service, which writes it down first
//! (`claim.checkpoint`).
//!
//! **Promises** that a claim whose alloc has ended is worked on as soon as that is seen, tried
//! again for as long as it takes (C1), and taken over when another watcher died over it (C5): the
//! work is in the record, and any watcher may ask for the next step once the last attempt can no
//! longer act.
//!
//! **Never** frees anything: a claim goes when the claim service writes that it is gone, after a
//! call that succeeded. Never repeats a call by itself: a repetition is a new attempt.

mod config;
mod drive;
mod watch;

use std::sync::Arc;

use berth_bus::MirrorOptions;
use berth_contract::bucket;
use berth_service::process::{Fatal, Process};
use berth_service::reconcile::{self, Options, Waker};

pub use config::Config;

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let waker = Waker::default();
    let volumes = process.bus.bucket(&bucket::VOLUMES, process.replicas).await?;
    let allocs = process.bus.bucket(&bucket::ALLOCS, process.replicas).await?;
    let options = MirrorOptions::default();
    let volumes = watch::WokenVolumes::new(waker.clone()).start(&volumes, options).await?;
    let allocs = watch::WokenAllocs::new(waker.clone()).start(&allocs, options).await?;
    let service = process.announce().await?;
    let driver = Arc::new(drive::Driver {
        bus: process.bus.clone(),
        worker: process.worker.clone(),
        volumes,
        allocs,
        look_again: config.rescan,
    });
    let rescan = tokio::spawn(rescan(Arc::clone(&driver), waker.clone(), config));
    let options = Options { max_in_flight: config.max_in_flight, drain: config.drain };
    let work = move |claim| Arc::clone(&driver).drive(claim);
    reconcile::run(waker, options, process.shutdown.clone(), work).await;
    rescan.abort();
    service.stop(config.drain).await;
    Ok(())
}

/// Looks through everything now and then: a wake-up that was lost costs this long, and no more.
async fn rescan(driver: Arc<drive::Driver>, waker: Waker<watch::ClaimKey>, config: Config) {
    loop {
        for claim in driver.all_work() {
            waker.wake(claim);
        }
        // Several watchers do not look at the same moment.
        tokio::time::sleep(config.rescan.mul_f64(0.75 + rand::random::<f64>() / 2.0)).await;
    }
}
