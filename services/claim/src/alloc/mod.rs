//! Allocs: registered, changed, stopped, adopted.
//!
//! **Owns** the records of allocs. [`many`] has the requests about several at once, [`owner`] the
//! leases of owners, and [`unowned`] notices the end of a lease.
//!
//! **Promises** that an alloc with an owner is changed only as [`berth_domain::owner`] allows, by
//! its record at the leader.
//!
//! **Never** stops an alloc because of its age.

pub mod claimant;
pub mod forget;
pub mod made;
mod many;
mod owner;
mod unowned;

use std::collections::BTreeSet;

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::event::EventName;
use berth_contract::key;
use berth_contract::message::alloc::{AllocStatus, RegisterAlloc, StopAlloc};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::{Alloc, AllocState, differing_fields};
use berth_domain::owner::{AllocOwner, ChangeGuard, GuardRefusal};
use berth_domain::{AllocId, Namespace, VolumeKey};
use berth_service::record_table::{StoreError, retry_lost_races};
use berth_service::{clock, deadline};

use crate::alloc::claimant::check_live;
use crate::alloc::made::{check_made_alloc, check_own_id};
use crate::caller::Caller;
use crate::read;
use crate::read::volume_requests::{check_mountable, check_volume_requests};
use crate::store::events::alloc_event;
use crate::store::records::{is_known_to, no_such_alloc};
use crate::store::state::State;

pub use many::{adopt, register_many, stop_many, stop_owned};
pub use owner::{give_up, hold, list_owners};
pub use unowned::mark_unowned;

const REGISTER: &str = verb::AllocRegister::STEP;
const STOP: &str = verb::AllocStop::STEP;

/// Registers an alloc. Repeating the registration changes nothing. Only the note and the labels may
/// differ, because an alloc is one run. An alloc that has ended is refused.
pub async fn register(
    state: &State,
    namespace: &Namespace,
    request: RegisterAlloc,
    caller: &Caller,
) -> Result<AllocStatus, Problem> {
    check_own_id(caller.actor.as_ref(), &request.id)?;
    let by = caller.by();
    let leased = match &request.owner {
        Some(owner) => state.has_lease(namespace, owner, by.as_deref(), caller.trace).await?,
        None => false,
    };
    let wanted = Alloc {
        state: AllocState::Live,
        node: request.node,
        index: request.index,
        volumes: request.volumes,
        since: clock::now(),
        note: request.note,
        by,
        owner: request.owner.map(|name| AllocOwner::new(name, leased)),
        meta: request.meta,
    };
    check_volume_requests(&wanted.volumes, wanted.index).map_err(Problem::bad_input)?;
    check_mountable(&wanted, request.task_driver_mounts)?;
    if !request.allow_missing
        && let Some(missing) = missing_objects(state, namespace, &wanted, caller.trace).await?
        // A registered alloc stays registered if its volumes are gone.
        && state.read_alloc(namespace, &request.id).await?.1.is_none()
    {
        return Err(missing);
    }
    let decide = |revision: u64, recorded: Option<&Alloc>| {
        let Some(recorded) = recorded else {
            return match request.revision {
                None | Some(0) => Ok(Some(wanted.clone())),
                Some(seen) => Err(refused(&request.id, &GuardRefusal::Changed { seen, now: 0 })),
            };
        };
        check_live(&request.id, recorded)?;
        check_made_alloc(caller.actor.as_ref(), &request.id, recorded)?;
        changed_registration(&request.id, (revision, recorded), &wanted, request.revision)
    };
    state.change(namespace, &request.id, caller, EventName::AllocRegistered, &decide).await
}

/// The record with the note and the labels of a repeated registration; none if they are the same.
fn changed_registration(
    id: &AllocId,
    (revision, recorded): (u64, &Alloc),
    wanted: &Alloc,
    seen: Option<u64>,
) -> Result<Option<Alloc>, Problem> {
    let owner = wanted.owner.as_ref().map(|owner| &owner.name);
    let guard = ChangeGuard { by: wanted.by.as_deref(), owner, revision: None };
    // Another owner's registration is for another alloc, whatever revision it has seen.
    recorded.check_change(revision, guard).map_err(|refusal| refused(id, &refusal))?;
    let differing = differing_fields(recorded, wanted);
    if !differing.is_empty() {
        let differing = differing.join(", ");
        let message = format!("alloc {id} is registered with other {differing}");
        return Err(Problem::new(Code::UnsafeUpdate, message)
            .next("register the alloc under another id, or stop this one first"));
    }
    let next = Alloc {
        note: wanted.note.clone().or_else(|| recorded.note.clone()),
        meta: wanted.meta.clone(),
        ..recorded.clone()
    };
    if next == *recorded {
        return Ok(None);
    }
    let guard = ChangeGuard { revision: seen, ..guard };
    recorded.check_change(revision, guard).map_err(|refusal| refused(id, &refusal))?;
    Ok(Some(next))
}

/// The refusal of a change that the sender may not make.
fn refused(id: &AllocId, refusal: &GuardRefusal) -> Problem {
    let code = match refusal {
        GuardRefusal::Changed { .. } => Code::Changed,
        GuardRefusal::Owned { .. } | GuardRefusal::NotOwned(_) => Code::AllocOwned,
    };
    let problem = Problem::new(code, format!("alloc {id} is not changed: {refusal}"));
    match refusal {
        GuardRefusal::Changed { .. } => problem.next(
            "look at it again, and repeat the request with its `modify_index` if it is right",
        ),
        GuardRefusal::Owned { .. } => problem,
        GuardRefusal::NotOwned(_) => problem.next("leave `owner` out, or name another alloc"),
    }
}

/// The refusal of an alloc whose node or volumes do not exist; it names all that are missing. The
/// absence of a volume is confirmed at a quorum. The absence of a node is read at the leader: only
/// the plugin registry writes to the bucket of nodes.
async fn missing_objects(
    state: &State,
    namespace: &Namespace,
    wanted: &Alloc,
    trace: TraceContext,
) -> Result<Option<Problem>, Problem> {
    let mut faults = Vec::new();
    let node = &wanted.node;
    let is_node = state
        .nodes
        .mirror
        .read(|nodes| nodes.get(node).is_some() || nodes.unreadable().contains_key(node));
    let mut code = Code::NoSuchVolume;
    if !is_node && state.read_node(node).await?.is_none() {
        code = Code::NoSuchNode;
        let problem = format!("no agent has reported node {node}");
        faults.push(Fault { path: "node".to_owned(), problem, line: None });
    }
    let mut checked = BTreeSet::new();
    for (at, request) in wanted.volumes.iter().enumerate() {
        let Ok(id) = request.volume(wanted.index) else { continue };
        let volume = VolumeKey::new(namespace.clone(), id);
        if !checked.insert(volume.volume.clone()) || state.has_volume(&volume) {
            continue;
        }
        let confirmed = state.catch_up_surely(&volume, trace).await;
        confirmed.map_err(|error| state.problem(error, &volume))?;
        if !state.has_volume(&volume) {
            let problem = format!("volume {} is not registered", volume.volume);
            faults.push(Fault { path: format!("volumes[{at}].source"), problem, line: None });
        }
    }
    if faults.is_empty() {
        return Ok(None);
    }
    let messages: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let next = "register what is missing first; or say `allow_missing` (`--wait` of `berth run`) \
                where it is still to come";
    Ok(Some(Problem { faults, ..Problem::new(code, messages.join("; ")).next(next) }))
}

/// Records that an alloc has ended. Then the volumewatcher releases its claims. An alloc that is
/// not registered cannot be stopped. An alloc that has ended keeps its state.
pub async fn stop(
    state: &State,
    namespace: &Namespace,
    request: StopAlloc,
    caller: &Caller,
) -> Result<AllocStatus, Problem> {
    let StopAlloc { id, state: ended, note, owner, revision } = request;
    check_is_end(ended)?;
    let by = caller.by();
    let decide = |current: u64, recorded: Option<&Alloc>| {
        let own = caller.actor.as_ref().and_then(Actor::node);
        if recorded.is_some_and(|recorded| !is_known_to(recorded, own)) {
            return Err(no_such_alloc(&id));
        }
        let Some(recorded) = recorded.filter(|recorded| !recorded.state.is_terminal()) else {
            return Ok(None);
        };
        match &caller.actor {
            // The node's agent knows that the alloc has ended.
            Some(Actor::Node(_)) => {}
            actor => {
                check_made_alloc(actor.as_ref(), &id, recorded)?;
                let guard = ChangeGuard { by: by.as_deref(), owner: owner.as_ref(), revision };
                recorded.check_change(current, guard).map_err(|refusal| refused(&id, &refusal))?;
            }
        }
        Ok(Some(end(recorded, ended, note.as_deref())))
    };
    state.change(namespace, &id, caller, end_event(ended), &decide).await
}

/// Refuses a state in which an alloc has not ended.
fn check_is_end(ended: AllocState) -> Result<(), Problem> {
    if ended.is_terminal() {
        return Ok(());
    }
    Err(Problem::new(Code::BadInput, "`state` must be complete, failed or stopped"))
}

fn end(recorded: &Alloc, state: AllocState, note: Option<&str>) -> Alloc {
    let note = note.map(str::to_owned).or_else(|| recorded.note.clone());
    Alloc { state, since: clock::now(), note, ..recorded.clone() }
}

const fn end_event(state: AllocState) -> EventName {
    match state {
        AllocState::Complete => EventName::AllocComplete,
        AllocState::Failed => EventName::AllocFailed,
        AllocState::Live | AllocState::Stopped => EventName::AllocStopped,
    }
}

impl State {
    /// Whether the volume is registered, as far as this replica knows. An unreadable record may be
    /// its spec.
    fn has_volume(&self, volume: &VolumeKey) -> bool {
        self.volumes.mirror.read(|volumes| {
            let subtree = volumes.get(volume);
            subtree.is_some_and(|subtree| {
                subtree.volume.spec.is_some() || !subtree.unreadable().is_empty()
            })
        })
    }

    /// Changes one alloc by `decide`, which gets its revision and its record at the leader, and
    /// returns the new record, or none for no change. After a lost race `decide` is called again.
    async fn change(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        caller: &Caller,
        event: EventName,
        decide: &impl Fn(u64, Option<&Alloc>) -> Result<Option<Alloc>, Problem>,
    ) -> Result<AllocStatus, Problem> {
        let change = || self.try_change(namespace, id, caller, event, decide);
        retry_lost_races(change).await
    }

    async fn try_change(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        caller: &Caller,
        event: EventName,
        decide: &impl Fn(u64, Option<&Alloc>) -> Result<Option<Alloc>, Problem>,
    ) -> Result<AllocStatus, StoreError> {
        let (key, trace) = (key::alloc(namespace, id), caller.trace);
        let (mut revision, recorded) = self.allocs.read(&key).await?;
        let changed = match decide(revision, recorded.as_ref()) {
            // An alloc of another node: answered like an alloc that does not exist.
            Err(hidden) if hidden.code == Code::NoSuchAlloc => {
                let own = caller.actor.as_ref().and_then(Actor::node);
                self.conceal_alloc(namespace, id, own, trace).await?;
                return Err(hidden.into());
            }
            decided => decided?,
        };
        let Some(alloc) = changed.as_ref().or(recorded.as_ref()) else {
            self.allocs.confirm_absence(&key, revision, trace).await?;
            return Err(no_such_alloc(id).into());
        };
        if changed.is_some() {
            deadline::check(caller.deadline)?;
            revision = self.allocs.put(&key, alloc, revision, trace).await?;
            let event = alloc_event(event, namespace, id, alloc, trace);
            self.events.publish(&event.subject(), &event, trace);
        }
        Ok(read::build_alloc_status(self, namespace, id, alloc, revision))
    }
}
