//! When this process began, by the revisions that name calls.

use std::time::Duration;

use berth_bus::Bucket;
use berth_domain::retry::Schedule;
use berth_service::clock;
use berth_service::process::chain;
use tokio::time::sleep;

/// When the leader is asked again: it may have to be elected first.
const AGAIN: Schedule = Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };

/// The newest revision that was given to the volumes by now, at the leader. A call that
/// was named by then is not for this process (rule 4).
pub async fn read(volumes: &Bucket) -> u64 {
    let mut tries = 0;
    loop {
        let error = match volumes.newest().await {
            Ok(revision) => return revision,
            Err(error) => error,
        };
        tries += 1;
        tracing::warn!(why = chain(&error), tries, "the newest revision is not known yet");
        sleep(AGAIN.wait(tries, clock::jitter())).await;
    }
}
