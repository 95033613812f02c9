//! Repairs the keys of handles that an older version, a restored backup or a person left wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_domain::volume::{Command, Refusal};
use berth_service::{clock, process};
use futures_util::{StreamExt as _, stream};

use crate::store::handle::{Repair, due};
use crate::store::state::State;
use crate::store::transact::TransactError;

/// How often the handles that need a repair are looked for.
const REPAIR_INTERVAL: Duration = Duration::from_secs(30);
/// Time from the start until the first check.
const REPAIR_FIRST: Duration = Duration::from_secs(1);
/// Repairs that are made at once: they share batches.
const REPAIRS_AT_ONCE_MAX: usize = 64;

/// Repairs the keys of handles that disagree with the registered volumes, at intervals. Several
/// replicas may do so at once:
/// each repair is guarded.
pub async fn repair_handles(state: State) {
    let mut warned = BTreeSet::new();
    let mut wait = REPAIR_FIRST;
    loop {
        tokio::time::sleep(clock::jittered(wait)).await;
        wait = REPAIR_INTERVAL;
        let mut twice = BTreeSet::new();
        let due: Vec<Repair> = state.volumes.mirror.read(|volumes| {
            let handles = volumes.handles().iter_disagreeing();
            handles
                .filter_map(|(handle, entry)| {
                    if entry.registered().len() > 1 {
                        twice.insert((handle.clone(), entry.registered().to_vec()));
                    }
                    due(handle, entry)
                })
                .collect()
        });
        for (handle, volumes) in twice.difference(&warned) {
            tracing::warn!(
                ?volumes, plugin = %handle.plugin, external_id = handle.external_id,
                "one volume of the plugin is registered more than once; none of these is granted"
            );
        }
        warned = twice;
        let repairs = stream::iter(due).map(|repair| repair_handle(&state, repair));
        repairs.buffer_unordered(REPAIRS_AT_ONCE_MAX).collect::<()>().await;
    }
}

async fn repair_handle(state: &State, repair: Repair) {
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
        // The volume changed meanwhile; the next check finds what remains.
        Err(TransactError::Refused(Refusal::NoSuchVolume | Refusal::RegisteredTwice { .. })) => {}
        Err(error) => {
            let error = process::chain(&error);
            tracing::warn!(%volume, error, "the key of its handle is repaired later");
        }
    }
}
