//! `alloc.forget`: deletes the record of an alloc that has ended and has no claim (F2).
//!
//! **Promises** that an alloc stays if it lives, ended too recently, has a claim or may still be
//! mounted: a node's report of a mount counts only while the alloc's record exists. The record is
//! read at the leader, and deleted under the revision that was read.
//!
//! A replica that does not know yet that the alloc has ended may create a claim just after the
//! check. Then that claim is released, like any claim without an alloc.

use berth_contract::event::{Event, EventName};
use berth_contract::key;
use berth_contract::message::alloc::{Forget, Forgotten};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::Namespace;
use berth_domain::alloc::Alloc;
use berth_service::deadline;
use berth_service::record_table::{StoreError, retry_lost_races};
use tokio::time::Instant;

use crate::caller::Caller;
use crate::store::events::alloc_event;
use crate::store::forgettable::{check_ended, check_unclaimed, check_unmounted};
use crate::store::state::State;

/// Deletes the alloc's record, unless it is still needed. A missing record counts as deleted.
pub async fn forget(
    state: &State,
    namespace: &Namespace,
    request: Forget,
    caller: &Caller,
) -> Result<Forgotten, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let delete = || delete_record(state, namespace, &request, trace, deadline);
    retry_lost_races(delete).await
}

async fn delete_record(
    state: &State,
    namespace: &Namespace,
    Forget { id, before }: &Forget,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Forgotten, StoreError> {
    let key = key::alloc(namespace, id);
    let (revision, alloc) = state.allocs.read::<Alloc>(&key).await?;
    let Some(alloc) = alloc else {
        state.allocs.confirm_absence(&key, revision, trace).await?;
        return Ok(Forgotten { known: false });
    };
    check_ended(id, &alloc, *before)?;
    state.catch_up_with_volumes(deadline).await?;
    state.volumes.mirror.read(|volumes| check_unclaimed(volumes, namespace, id, &alloc))?;
    state.nodes.mirror.read(|nodes| check_unmounted(nodes, namespace, id, &alloc))?;
    deadline::check(deadline)?;
    state.allocs.delete(&key, revision, trace).await?;
    let detail = Some(format!("{} since {}", alloc.state, alloc.since));
    let event = alloc_event(EventName::AllocForgotten, namespace, id, &alloc, trace);
    let event = Event { detail, ..event };
    state.events.publish(&event.subject(), &event, trace);
    Ok(Forgotten { known: true })
}

impl State {
    /// Waits until this replica has everything that was stored about any volume.
    async fn catch_up_with_volumes(&self, deadline: Instant) -> Result<(), Problem> {
        let newest = self.volumes.bucket.newest().await?;
        let reached = self.volumes.mirror.reach(newest, deadline).await;
        reached.map_err(Problem::from)
    }
}
