//! The revision of the claim bucket at which this agent became an executor.

use std::time::Duration;

use berth_bus::{Bucket, KeptLease};
use berth_domain::retry::Schedule;
use berth_service::clock;
use berth_service::process::chain;
use tokio::time::sleep;

/// Pauses between reads. The stream's leader may have to be elected first.
const RETRY: Schedule = Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };

/// Calls that were issued up to this revision of the claim bucket are not for this process
/// (rule 4).
#[derive(Debug, Clone, Copy)]
pub struct StartRevision(pub u64);

impl StartRevision {
    /// Reads the newest revision at the stream's leader.
    ///
    /// Takes the node's lease, because the revision must be read while it is held: until then an
    /// earlier agent of the node may execute calls.
    pub async fn read(volumes: &Bucket, _lease: &KeptLease) -> Self {
        let mut tries = 0;
        loop {
            let error = match volumes.newest().await {
                Ok(revision) => return Self(revision),
                Err(error) => error,
            };
            tries += 1;
            tracing::warn!(why = chain(&error), tries, "the newest revision is not known yet");
            sleep(RETRY.wait(tries, clock::jitter())).await;
        }
    }
}
