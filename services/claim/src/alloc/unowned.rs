//! Notices that an owner has lost its lease: then its live allocs are unowned.
//!
//! **Promises** one event for each alloc, whichever replica notices it first, even if no replica
//! ran while the lease ended.
//!
//! **Never** stops an alloc. It runs on until the next owner or a person decides.

use std::time::Duration;

use berth_contract::event::EventName;
use berth_contract::problem::Problem;
use berth_domain::alloc::Alloc;
use berth_domain::limits::REQUEST_TIMEOUT;
use berth_domain::owner::AllocOwner;
use berth_domain::{AllocId, Namespace, OwnerId};
use berth_service::clock;
use tokio::time::{Instant, sleep};

use crate::caller::Caller;
use crate::store::owner_leases::OwnerLeases;
use crate::store::state::{State, StateInner};

/// Interval at which it is checked whether a lease has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Interval at which the owners of all allocs are compared with the leases. It repairs what was
/// missed.
const RESCAN: Duration = Duration::from_secs(10);

/// Marks allocs as unowned until the process ends.
pub async fn mark_unowned(state: State) {
    let (mut seen_ends, mut rescan_at) = (None, Instant::now());
    loop {
        let ends = state.owners.mirror.read(OwnerLeases::ends);
        if seen_ends != Some(ends) || Instant::now() >= rescan_at {
            (seen_ends, rescan_at) = (Some(ends), Instant::now() + clock::jittered(RESCAN));
            for (namespace, id, owner) in state.left_allocs() {
                if let Err(problem) = state.mark_if_left(&namespace, &id, &owner).await {
                    tracing::warn!(%namespace, alloc = %id, %owner, %problem,
                        "an alloc's owner is gone, and that is not recorded yet");
                }
            }
        }
        sleep(LOOK_INTERVAL).await;
    }
}

impl StateInner {
    /// Live allocs that their owner has lost, as far as this replica knows.
    fn left_allocs(&self) -> Vec<(Namespace, AllocId, OwnerId)> {
        self.allocs.mirror.read(|allocs| {
            self.owners.mirror.read(|leases| {
                let lost = allocs.index().leased().filter(|((namespace, owner, by), _)| {
                    let holder = leases.holder(namespace, owner);
                    holder.is_none_or(|holder| holder.by != *by)
                });
                let left = lost.flat_map(|((namespace, owner, _), ids)| {
                    ids.iter().map(|id| (namespace.clone(), id.clone(), owner.clone()))
                });
                left.collect()
            })
        })
    }
}

impl State {
    async fn mark_if_left(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        owner: &OwnerId,
    ) -> Result<(), Problem> {
        let trace = clock::begin_trace();
        let holder = self.surely_held_by(namespace, owner, trace).await?;
        let decide = |_: u64, recorded: Option<&Alloc>| {
            let Some(recorded) = recorded else { return Ok(None) };
            let lost = recorded.leased_owner().filter(|lost| lost.name == *owner);
            let lost = lost.filter(|_| !holder.is_held_by(recorded.by.as_deref()));
            Ok(lost.map(|lost| Alloc {
                owner: Some(AllocOwner { unowned_since: Some(clock::now()), ..lost.clone() }),
                ..recorded.clone()
            }))
        };
        let caller = Caller { actor: None, trace, deadline: Instant::now() + REQUEST_TIMEOUT };
        let event = EventName::AllocUnowned;
        self.change(namespace, id, &caller, event, &decide).await.map(drop)
    }
}
