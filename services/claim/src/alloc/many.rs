//! Requests about several allocs at once.
//!
//! **Promises** that each alloc of a request is changed as by a request of its own, and that an
//! alloc that fails does not keep the others from being changed.

use std::sync::atomic::{AtomicBool, Ordering};

use berth_contract::code::Code;
use berth_contract::event::EventName;
use berth_contract::message::alloc::{AllocStatus, AllocStub};
use berth_contract::message::many::{
    Adopt, AllocAnswer, AllocAnswers, ChangedAllocs, RegisterMany, StopMany, StopOwned,
};
use berth_contract::message::query::LongPoll;
use berth_contract::problem::Problem;
use berth_domain::alloc::Alloc;
use berth_domain::limits::OWNED_BATCH_MAX;
use berth_domain::owner::{AllocOwner, ChangeGuard};
use berth_domain::{AllocId, Namespace, OwnerId};
use berth_service::refusals::RequestSubject;
use futures_util::stream::{self, StreamExt as _};

use super::{check_is_end, end, end_event, refused};
use crate::caller::Caller;
use crate::many::{ManyOf, answer_each};
use crate::read::Reader;
use crate::store::owner_leases::LeaseHolder;
use crate::store::state::State;

/// Allocs of one owner that are changed at once, at most.
const AT_ONCE_MAX: usize = 16;

/// Registers many allocs.
pub async fn register_many(
    state: &State,
    namespace: &Namespace,
    request: RegisterMany,
    caller: &Caller,
) -> Result<AllocAnswers, Problem> {
    let ids: Vec<AllocId> = request.allocs.iter().map(|alloc| alloc.id.clone()).collect();
    let of = ManyOf { state, namespace, caller, step: super::REGISTER };
    let work =
        async |register, caller: Caller| super::register(state, namespace, register, &caller).await;
    let done = answer_each(of, request.allocs, |alloc| about(&alloc.id), work).await;
    Ok(AllocAnswers { answers: ids.into_iter().zip(done).map(answer).collect() })
}

/// Stops many allocs.
pub async fn stop_many(
    state: &State,
    namespace: &Namespace,
    request: StopMany,
    caller: &Caller,
) -> Result<AllocAnswers, Problem> {
    let ids: Vec<AllocId> = request.stops.iter().map(|stop| stop.id.clone()).collect();
    let of = ManyOf { state, namespace, caller, step: super::STOP };
    let work = async |stop, caller: Caller| super::stop(state, namespace, stop, &caller).await;
    let done = answer_each(of, request.stops, |stop| about(&stop.id), work).await;
    Ok(AllocAnswers { answers: ids.into_iter().zip(done).map(answer).collect() })
}

fn about(alloc: &AllocId) -> RequestSubject {
    RequestSubject { alloc: Some(alloc.clone()), ..RequestSubject::default() }
}

fn answer((id, done): (AllocId, Result<AllocStatus, Problem>)) -> AllocAnswer {
    match done {
        Ok(status) => AllocAnswer { id, alloc: Some(status.into()), error: None },
        Err(error) => AllocAnswer { id, alloc: None, error: Some(error) },
    }
}

/// Stops the live allocs of the sender.
pub async fn stop_owned(
    state: &State,
    namespace: &Namespace,
    request: StopOwned,
    caller: &Caller,
) -> Result<ChangedAllocs, Problem> {
    let StopOwned { owner, node, state: ended, note } = request;
    check_is_end(ended)?;
    let by = caller.by();
    let guard = ChangeGuard { by: by.as_deref(), owner: Some(&owner), revision: None };
    let is_meant = |_: &AllocId, alloc: &Alloc| {
        alloc.is_owned_by(&owner, by.as_deref())
            && node.as_ref().is_none_or(|node| *node == alloc.node)
    };
    let meant = live_allocs(state, namespace, &owner, caller, is_meant).await?;
    let decide = |id: &AllocId, revision: u64, alloc: &Alloc| {
        alloc.check_change(revision, guard).map_err(|refusal| refused(id, &refusal))?;
        Ok(Some(end(alloc, ended, note.as_deref())))
    };
    let change = Change { event: end_event(ended), decide };
    change_each(state, namespace, meant, caller, change).await
}

/// Gives live allocs of an owner whose lease has ended to the sender.
pub async fn adopt(
    state: &State,
    namespace: &Namespace,
    request: Adopt,
    caller: &Caller,
) -> Result<ChangedAllocs, Problem> {
    let Adopt { from, owner, ids } = request;
    let by = caller.by();
    let leased = state.has_lease(namespace, &owner, by.as_deref(), caller.trace).await?;
    let holder = state.surely_held_by(namespace, &from, caller.trace).await?;
    let is_taken = |alloc: &Alloc| {
        let is_own = alloc.is_owned_by(&owner, by.as_deref());
        is_own && alloc.owner.as_ref().is_some_and(|owner| owner.unowned_since.is_none())
    };
    let is_meant = |id: &AllocId, alloc: &Alloc| {
        let is_from = alloc.owner.as_ref().is_some_and(|owner| owner.name == from);
        is_from && !is_taken(alloc) && (ids.is_empty() || ids.contains(id))
    };
    let meant = live_allocs(state, namespace, &from, caller, is_meant).await?;
    let decide = |id: &AllocId, _: u64, alloc: &Alloc| {
        let Some(old_owner) =
            alloc.owner.as_ref().filter(|old_owner| old_owner.name == from && !is_taken(alloc))
        else {
            return Ok(None);
        };
        check_adoptable(id, alloc, old_owner, &holder, &owner, by.as_deref())?;
        let owner = Some(AllocOwner::new(owner.clone(), leased));
        Ok(Some(Alloc { owner, by: by.clone(), ..alloc.clone() }))
    };
    let change = Change { event: EventName::AllocAdopted, decide };
    change_each(state, namespace, meant, caller, change).await
}

/// Refuses to take an alloc from an owner that holds its lease.
fn check_adoptable(
    id: &AllocId,
    alloc: &Alloc,
    of: &AllocOwner,
    holder: &LeaseHolder,
    owner: &OwnerId,
    by: Option<&str>,
) -> Result<(), Problem> {
    let is_own = alloc.is_owned_by(owner, by);
    let is_same_identity = alloc.by.as_deref() == by;
    let has_lost = of.leased && !holder.is_held_by(alloc.by.as_deref());
    if is_own || has_lost || (!of.leased && is_same_identity) {
        return Ok(());
    }
    let why =
        if of.leased { "holds its lease" } else { "never had a lease, and is another identity" };
    let message = format!("alloc {id} is not adopted: its owner {} {why}", of.name);
    Err(Problem::new(Code::OwnerHeld, message))
}

/// The first live allocs of the owner for which `is_meant` holds, and whether there are more.
/// Everything that was stored before the request counts.
async fn live_allocs(
    state: &State,
    namespace: &Namespace,
    owner: &OwnerId,
    caller: &Caller,
    is_meant: impl Fn(&AllocId, &Alloc) -> bool,
) -> Result<(Vec<AllocId>, bool), Problem> {
    let reader = Reader::new(LongPoll::default(), caller.deadline);
    state.catch_up_with_leader(reader, &state.allocs, ">").await?;
    let mut ids: Vec<AllocId> = state.allocs.mirror.read(|allocs| {
        let all = allocs.index().owned_by(owner, None);
        let live = all.filter(|(their, id)| {
            let alloc = allocs.get(namespace, id).filter(|_| their == namespace);
            alloc.is_some_and(|(_, alloc)| !alloc.state.is_terminal() && is_meant(id, alloc))
        });
        live.map(|(_, id)| id.clone()).take(OWNED_BATCH_MAX + 1).collect()
    });
    let more = ids.len() > OWNED_BATCH_MAX;
    ids.truncate(OWNED_BATCH_MAX);
    Ok((ids, more))
}

/// A change of several allocs.
struct Change<D> {
    event: EventName,
    decide: D,
}

/// Changes live allocs, each by itself. The caller must learn what was changed, so an alloc that
/// fails counts as one of those that are left. If none was changed, the reply is the first error.
async fn change_each<D>(
    state: &State,
    namespace: &Namespace,
    (ids, more): (Vec<AllocId>, bool),
    caller: &Caller,
    change: Change<D>,
) -> Result<ChangedAllocs, Problem>
where
    D: Fn(&AllocId, u64, &Alloc) -> Result<Option<Alloc>, Problem>,
{
    let Change { event, decide } = &change;
    let work = ids.into_iter().map(|id| async move {
        let has_changed = AtomicBool::new(false);
        let decide = |revision: u64, alloc: Option<&Alloc>| {
            let Some(alloc) = alloc.filter(|alloc| !alloc.state.is_terminal()) else {
                return Ok(None);
            };
            let next = decide(&id, revision, alloc)?;
            has_changed.store(next.is_some(), Ordering::Relaxed);
            Ok(next)
        };
        let done = state.change(namespace, &id, caller, *event, &decide).await;
        done.map(|status| has_changed.load(Ordering::Relaxed).then(|| AllocStub::from(status)))
    });
    let done: Vec<_> = stream::iter(work).buffered(AT_ONCE_MAX).collect().await;
    let (mut changed, mut failed) = (Vec::new(), None);
    for result in done {
        match result {
            Ok(stub) => changed.extend(stub),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) if changed.is_empty() => Err(error),
        failed => Ok(ChangedAllocs { allocs: changed, more: more || failed.is_some() }),
    }
}
