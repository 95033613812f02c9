//! What a service deleted leaves its buckets, in the background.
//!
//! **Owns** when that happens: every replica of a bucket's writer looks now and then for deletes
//! that are as old as markers get. Until then `nats kv history` shows what became of the key.
//!
//! **Promises** that what fails or takes too long is done by the next look. Nobody waits for it.

use std::time::Duration;

use berth_bus::{Bucket, PurgePosition};
use tokio::time::{sleep, timeout};

use crate::{clock, process};

/// How often within a marker's time old ones are looked for, and how far apart that is.
const LOOKS: u32 = 60;
const LOOK_MIN: Duration = Duration::from_millis(250);
const LOOK_MAX: Duration = Duration::from_secs(60);
/// How long one look at one bucket may take.
const WITHIN: Duration = Duration::from_secs(60);

/// Purges what was deleted of a bucket, now and then, for as long as it is polled.
pub async fn deleted(bucket: Bucket) {
    let every = (bucket.marker_ttl() / LOOKS).clamp(LOOK_MIN, LOOK_MAX);
    let mut place = PurgePosition::default();
    loop {
        sleep(clock::jittered(every)).await;
        let name = bucket.name();
        match timeout(WITHIN, bucket.purge_deleted(&mut place)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(keys)) => tracing::debug!(bucket = name, keys, "deleted keys were purged"),
            Ok(Err(error)) => {
                let error = process::chain(&error);
                tracing::warn!(error, "what was deleted takes up room meanwhile");
            }
            Err(_) => tracing::info!(bucket = name, "the rest of what was deleted is purged next"),
        }
    }
}
