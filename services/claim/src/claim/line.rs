//! The line for a volume, as far as its requests wait at this replica: they are woken, and their
//! places are kept.
//!
//! **Promises** that the place of a claim in line is kept for as long as its request is open. The
//! places of one volume are written together, and no request writes its own.
//!
//! **Never** keeps the place of a caller that is gone for longer than its last request is held. If
//! this replica dies, its callers repeat their requests at another one, which keeps their places.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::store::state::State;

/// How often a place is checked in the time that it is kept for. It is renewed when half of that
/// time is left.
const CHECKS: u32 = 8;
/// How long the places of one volume may take.
const RENEWED_WITHIN: Duration = Duration::from_secs(2);
/// Volumes whose places are written at once.
const VOLUMES_AT_ONCE: usize = 16;

/// Wakes requests as volumes change. Never returns.
pub async fn wake_requests(state: State) {
    let mut changes = state.volumes.mirror.subscribe();
    while changes.changed().await.is_ok() {
        state.volumes.mirror.read(|volumes| state.open_requests.wake(volumes));
    }
}

/// Keeps the places in line of all requests that wait here. Never returns.
pub async fn keep_places(state: State) {
    let mut checks = interval((state.policy.place_kept / CHECKS).max(Duration::from_millis(1)));
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        checks.tick().await;
        let all = stream::iter(state.open_requests.by_volume());
        all.for_each_concurrent(VOLUMES_AT_ONCE, |(volume, allocs)| {
            let state = &state;
            async move {
                // A volume whose lock is held for long does not keep the others waiting.
                match timeout(RENEWED_WITHIN, state.renew_places(&volume, &allocs)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::debug!(%volume, %error, "places in line are not kept yet");
                    }
                    Err(_) => tracing::debug!(%volume, "places in line wait for the volume"),
                }
            }
        })
        .await;
    }
}
