//! The repair of handles whose keys an older version, a restored backup or a person left wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_domain::volume::{Command, Refusal};
use berth_service::{clock, process};
use futures_util::{StreamExt as _, stream};

use crate::handle::{Repair, due};
use crate::state::State;
use crate::transact::TransactError;

/// How often handles are looked through for what is to be repaired.
const REPAIR_EVERY: Duration = Duration::from_secs(30);
/// The first time, after the start.
const REPAIR_FIRST: Duration = Duration::from_secs(1);
/// How many are repaired at once: they share batches.
const REPAIRS_AT_ONCE: usize = 64;

/// Looks through all handles now and then, and repairs what is wrong. Any number of replicas may do
/// this at once: each repair is guarded.
pub async fn repair(state: State) {
    let mut told = BTreeSet::new();
    let mut wait = REPAIR_FIRST;
    loop {
        tokio::time::sleep(clock::jittered(wait)).await;
        wait = REPAIR_EVERY;
        let mut twice = BTreeSet::new();
        let due: Vec<Repair> = state.volumes.mirror.read(|volumes| {
            let handles = volumes.handles().iter();
            handles
                .filter_map(|(handle, entry)| {
                    if entry.registered.len() > 1 {
                        twice.insert((handle.clone(), entry.registered.clone()));
                    }
                    due(handle, entry)
                })
                .collect()
        });
        for (handle, volumes) in twice.difference(&told) {
            tracing::warn!(
                ?volumes, plugin = %handle.plugin, external_id = handle.external_id,
                "one volume of the plugin is registered more than once; none of these is granted"
            );
        }
        told = twice;
        let all = stream::iter(due).map(|repair| attend(&state, repair));
        all.buffer_unordered(REPAIRS_AT_ONCE).collect::<()>().await;
    }
}

async fn attend(state: &State, repair: Repair) {
    let (repaired, volume) = match repair {
        Repair::Reserve(volume) => {
            let trace = clock::begin_trace();
            let done = state.transact(&volume, trace, |_| Ok(Command::Reserve)).await;
            (done.map(drop), volume)
        }
        Repair::Release(handle, volume) => (state.release_handle(&handle, &volume).await, volume),
    };
    match repaired {
        Ok(()) => tracing::info!(%volume, "the key of the volume's handle is repaired"),
        // It changed meanwhile; the next look says whether something is left to do.
        Err(TransactError::Refused(Refusal::NoSuchVolume | Refusal::RegisteredTwice { .. })) => {}
        Err(error) => {
            let error = process::chain(&error);
            tracing::warn!(%volume, error, "the key of its handle is repaired later");
        }
    }
}
