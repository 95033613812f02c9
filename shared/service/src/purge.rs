//! Purges deleted keys from a service's buckets, in the background.
//!
//! **Owns** when that happens: each replica of a bucket's writer searches from time to time for
//! delete markers older than [`Bucket::marker_ttl`]. Until then `nats kv history` shows the key's
//! history.
//!
//! **Promises** that the next pass finishes what this one did not. No request waits for a purge.

use std::time::Duration;

use berth_bus::{Bucket, PurgePosition};
use tokio::time::{sleep, timeout};

use crate::{clock, process};

/// Passes within one marker TTL.
const PASSES_PER_TTL: u32 = 60;
const PASS_INTERVAL_MIN: Duration = Duration::from_millis(250);
const PASS_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long one pass over one bucket may take.
const PASS_TIMEOUT: Duration = Duration::from_secs(60);

/// Purges deleted keys from a bucket for as long as the future is polled.
pub async fn deleted(bucket: Bucket) {
    let interval =
        (bucket.marker_ttl() / PASSES_PER_TTL).clamp(PASS_INTERVAL_MIN, PASS_INTERVAL_MAX);
    let mut position = PurgePosition::default();
    loop {
        sleep(clock::jittered(interval)).await;
        let name = bucket.name();
        match timeout(PASS_TIMEOUT, bucket.purge_deleted(&mut position)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(keys)) => tracing::debug!(bucket = name, keys, "deleted keys were purged"),
            Ok(Err(error)) => {
                let error = process::chain(&error);
                tracing::warn!(error, "deleted keys are not purged yet; they only take up room");
            }
            Err(_) => {
                tracing::info!(bucket = name, "the purge took too long; the next pass continues");
            }
        }
    }
}
