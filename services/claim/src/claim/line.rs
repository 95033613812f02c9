//! The line for a volume, as far as its requests wait at this replica: they are woken, and their
//! places are kept.
//!
//! **Promises** that the place of a claim in line is kept for as long as its request is open. The
//! places of one volume are written together, and no request writes its own.
//!
//! **Never** keeps the place of a caller that is gone for longer than its last request is held. If
//! this replica dies, its callers repeat their requests at another one, which keeps their places.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use berth_domain::VolumeKey;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::store::state::State;

/// How often a place is checked in the time that it is kept for. It is renewed when half of that
/// time is left.
const CHECKS: u32 = 8;

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
    // A volume whose lock is held for long keeps no other one waiting, and its places keep theirs
    // among those who wait for the lock.
    let mut renewing: HashMap<VolumeKey, JoinHandle<()>> = HashMap::new();
    loop {
        checks.tick().await;
        renewing.retain(|_, renewal| !renewal.is_finished());
        for (volume, allocs) in state.open_requests.by_volume() {
            let Entry::Vacant(vacant) = renewing.entry(volume) else { continue };
            let (state, volume) = (state.clone(), vacant.key().clone());
            vacant.insert(tokio::spawn(async move {
                if let Err(error) = state.renew_places(&volume, &allocs).await {
                    tracing::debug!(%volume, %error, "places in line are not kept yet");
                }
            }));
        }
    }
}
