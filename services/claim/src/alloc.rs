//! `alloc.register` and `alloc.stop`.

use std::collections::BTreeSet;

use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::event::EventName;
use berth_contract::key;
use berth_contract::message::alloc::{AllocStatus, Register, Stop};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::{Alloc, AllocState, differing_fields};
use berth_domain::{AllocId, Namespace, NodeId, VolumeKey};
use berth_service::record_table::{StoreError, retry_lost_races};
use berth_service::{clock, deadline};
use tokio::time::Instant;

use crate::claimant::check_live;
use crate::events::alloc_event;
use crate::query;
use crate::records::no_such_alloc;
use crate::state::State;
use crate::volume_requests::{check_mountable, check_volume_requests};

const REGISTER: &str = verb::AllocRegister::STEP;
const STOP: &str = verb::AllocStop::STEP;

/// Registers an alloc. The same registration again changes nothing. A registration with other
/// content, or of an alloc that has ended, is refused: an alloc is one run.
pub async fn register(
    state: &State,
    namespace: Namespace,
    request: Register,
    trace: TraceContext,
    deadline: Instant,
) -> Result<AllocStatus, Problem> {
    let wanted = Alloc {
        state: AllocState::Live,
        node: request.node,
        index: request.index,
        volumes: request.volumes,
        since: clock::now(),
        note: request.note,
    };
    check_volume_requests(&wanted.volumes, wanted.index)
        .map_err(|faults| Problem::bad_input(REGISTER, faults))?;
    check_mountable(&wanted, request.task_driver_mounts)?;
    if !request.allow_missing
        && let Some(missing) = missing_objects(state, &namespace, &wanted, trace).await?
        // A registered alloc stays registered when its volumes are gone.
        && state.read_alloc(&namespace, &request.id, REGISTER).await?.1.is_none()
    {
        return Err(missing.at_step(REGISTER));
    }
    let decide = |known: Option<&Alloc>| match known {
        None => Ok(Some(wanted.clone())),
        Some(known) => {
            check_live(&request.id, known)?;
            let differing = differing_fields(known, &wanted);
            if differing.is_empty() {
                return Ok(None);
            }
            let differing = differing.join(", ");
            let message = format!("alloc {} is registered with other {differing}", request.id);
            Err(Problem::new(Code::UnsafeUpdate, message)
                .next("register the alloc under another id, or stop this one first"))
        }
    };
    let change = || state.change_alloc(&namespace, &request.id, trace, deadline, &decide);
    retry_lost_races(REGISTER, change).await
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
    if !is_node && state.read_node(node, REGISTER).await?.is_none() {
        code = Code::NoSuchNode;
        let problem = format!("no agent has reported node {node}");
        faults.push(Fault { path: "node".to_owned(), problem, line: None });
    }
    let mut known = BTreeSet::new();
    for (at, request) in wanted.volumes.iter().enumerate() {
        let Ok(id) = request.volume(wanted.index) else { continue };
        let volume = VolumeKey::new(namespace.clone(), id);
        if !known.insert(volume.volume.clone()) || state.has_volume(&volume) {
            continue;
        }
        let confirmed = state.catch_up_surely(&volume, trace).await;
        confirmed.map_err(|error| state.problem(error, REGISTER, &volume))?;
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

/// Records that an alloc has ended. From then on the volumewatcher releases its claims. An alloc
/// that is not registered cannot be stopped. One that has ended keeps its end.
pub async fn stop(
    state: &State,
    namespace: Namespace,
    request: Stop,
    sender: Option<NodeId>,
    trace: TraceContext,
    deadline: Instant,
) -> Result<AllocStatus, Problem> {
    if !request.state.is_terminal() {
        let problem = Problem::new(Code::BadInput, "`state` must be complete, failed or stopped");
        return Err(problem.at_step(STOP));
    }
    let decide = |known: Option<&Alloc>| match known {
        None => Ok(None),
        Some(known) if sender.as_ref().is_some_and(|node| *node != known.node) => {
            let message = format!("alloc {} is not on the sender's node", request.id);
            Err(Problem::new(Code::NotAllowed, message).at_step(STOP))
        }
        Some(known) if known.state.is_terminal() => Ok(None),
        Some(known) => Ok(Some(Alloc {
            state: request.state,
            since: clock::now(),
            note: request.note.clone().or_else(|| known.note.clone()),
            ..known.clone()
        })),
    };
    let change = || state.change_alloc(&namespace, &request.id, trace, deadline, &decide);
    retry_lost_races(STOP, change).await
}

impl State {
    /// Whether the volume is registered, as far as this replica knows. An unreadable record may be
    /// its spec.
    fn has_volume(&self, volume: &VolumeKey) -> bool {
        self.volumes.mirror.read(|volumes| {
            let found = volumes.get(volume);
            found.is_some_and(|one| one.volume.spec.is_some() || !one.unreadable.is_empty())
        })
    }

    /// Changes one alloc as `decide` says of its record at the leader; `decide` returns the new
    /// record, or none for no change.
    async fn change_alloc(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        trace: TraceContext,
        deadline: Instant,
        decide: &impl Fn(Option<&Alloc>) -> Result<Option<Alloc>, Problem>,
    ) -> Result<AllocStatus, StoreError> {
        let key = key::alloc(namespace, id);
        let (mut revision, known) = self.allocs.read(&key).await?;
        let changed = decide(known.as_ref())?;
        let Some(alloc) = changed.as_ref().or(known.as_ref()) else {
            self.allocs.confirm_absence(&key, revision, trace).await?;
            return Err(no_such_alloc(id).into());
        };
        if changed.is_some() {
            deadline::check(deadline)?;
            revision = self.allocs.put(&key, alloc, revision, trace).await?;
            let name = match alloc.state {
                AllocState::Live => EventName::AllocRegistered,
                AllocState::Complete => EventName::AllocComplete,
                AllocState::Failed => EventName::AllocFailed,
                AllocState::Stopped => EventName::AllocStopped,
            };
            let event = alloc_event(name, namespace, id, alloc, trace);
            self.events.publish(&event.subject(), &event, trace);
        }
        Ok(query::build_alloc_status(self, namespace, id, alloc, revision))
    }
}
