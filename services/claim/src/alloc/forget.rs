//! `alloc.forget`: deletes the record of an alloc that has ended and has no claim (F2).
//!
//! **Promises** that an alloc stays if it lives, ended too recently, has a claim or may still be
//! mounted: a node's report of a mount counts only while the alloc's record exists. The record is
//! read at the leader, and deleted under the revision that was read.
//!
//! A replica that does not know yet that the alloc has ended may create a claim just after the
//! check. Then that claim is released, like any claim without an alloc.

use berth_bus::Mirror;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::key;
use berth_contract::message::alloc::{Forget, Forgotten};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::alloc::Alloc;
use berth_domain::{AllocId, Namespace, Timestamp, VolumeKey};
use berth_service::deadline;
use berth_service::projection::{Nodes, Volumes};
use berth_service::record_table::{StoreError, retry_lost_races};
use tokio::time::Instant;

use crate::caller::Caller;
use crate::store::events::alloc_event;
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
    check_unmounted(&state.nodes.mirror, namespace, id, &alloc)?;
    deadline::check(deadline)?;
    state.allocs.delete(&key, revision, trace).await?;
    let detail = Some(format!("{} since {}", alloc.state, alloc.since));
    let event = alloc_event(EventName::AllocForgotten, namespace, id, &alloc, trace);
    let event = Event { detail, ..event };
    state.events.publish(&event.subject(), &event, trace);
    Ok(Forgotten { known: true })
}

/// Refuses unless the alloc ended before that time.
fn check_ended(id: &AllocId, alloc: &Alloc, before: Timestamp) -> Result<(), Problem> {
    let message = match (alloc.state.is_terminal(), alloc.since < before) {
        (false, _) => format!("alloc {id} is live"),
        (true, false) => format!("alloc {id} ended at {}, not before {before}", alloc.since),
        (true, true) => return Ok(()),
    };
    Err(Problem::new(Code::AllocKept, message))
}

/// Refuses while the alloc has a claim on a volume that it requested; it cannot have one on another
/// volume. An unreadable record counts as a claim.
fn check_unclaimed(
    volumes: &Volumes,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Result<(), Problem> {
    for (volume, _) in alloc.requests() {
        let volume = VolumeKey::new(namespace.clone(), volume);
        let Some(subtree) = volumes.get(&volume) else { continue };
        let unreadable = subtree.unreadable.contains_key(&key::claim(&volume, id));
        if unreadable || subtree.volume.claims.contains_key(id) {
            let message = format!("alloc {id} has a claim on volume {volume}");
            return Err(Problem::new(Code::AllocKept, message).volume(&volume));
        }
    }
    Ok(())
}

/// Refuses while the alloc's node may have a mount of it that no claim covers.
fn check_unmounted(
    nodes: &Mirror<Nodes>,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Result<(), Problem> {
    if nodes.read(|nodes| !nodes.may_have_mounts(&alloc.node, namespace, id)) {
        return Ok(());
    }
    let message = format!("alloc {id} may still be mounted on node {}", alloc.node);
    Err(Problem::new(Code::AllocKept, message).node(&alloc.node))
}

impl State {
    /// Waits until this replica has everything that was stored about any volume.
    async fn catch_up_with_volumes(&self, deadline: Instant) -> Result<(), Problem> {
        let newest = self.volumes.bucket.newest().await?;
        let reached = self.volumes.mirror.reach(newest, deadline).await;
        reached.map_err(Problem::from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_bus::Fold as _;
    use berth_domain::alloc::{AllocState, VolumeRequest};
    use berth_domain::{NodeId, VolumeId};

    use super::*;

    fn alloc(state: AllocState, since: u64) -> Alloc {
        Alloc {
            state,
            node: NodeId::new("n1").unwrap(),
            index: None,
            volumes: vec![VolumeRequest::for_volume(VolumeId::new("data").unwrap())],
            since: Timestamp::from_unix_ms(since),
            note: None,
            by: None,
            owner: None,
            meta: BTreeMap::new(),
        }
    }

    #[test]
    fn only_an_alloc_that_ended_before_is_forgotten() {
        let id = AllocId::new("a").unwrap();
        for (state, since, before, over) in [
            (AllocState::Live, 1, 9, false),
            (AllocState::Complete, 8, 9, true),
            (AllocState::Failed, 9, 9, false),
            (AllocState::Stopped, 10, 9, false),
        ] {
            let alloc = alloc(state, since);
            let checked = check_ended(&id, &alloc, Timestamp::from_unix_ms(before));
            assert_eq!(
                checked.is_ok(),
                over,
                "{state} since {since}, before {before}: {checked:?}"
            );
        }
    }

    #[test]
    fn a_claim_keeps_it_also_one_that_cannot_be_read() {
        let id = AllocId::new("a").unwrap();
        let claim = br#"{"state":"node-detached","node":"n1","mode":"read","schema":1,
            "since":"2026-01-01T00:00:00Z","access":"single-node-writer",
            "attachment":"file-system","controller":true}"#;
        for (key, value, free) in [
            ("default.data.claim.b", &claim[..], true),
            ("default.data.claim.a", claim, false),
            ("default.data.claim.a", br#"{"schema":9}"#, false),
            ("default.data.spec", br#"{"schema":9}"#, true),
            ("other.data.claim.a", claim, true),
        ] {
            let mut volumes = Volumes::default();
            volumes.put(key, 1, value);
            let alloc = alloc(AllocState::Complete, 1);
            let checked = check_unclaimed(&volumes, &Namespace::default(), &id, &alloc);
            assert_eq!(checked.is_ok(), free, "{key}: {checked:?}");
        }
    }
}
