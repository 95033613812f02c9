//! Allocs: registering, stopping, and looking one up for a claim.

use std::collections::{BTreeMap, BTreeSet};

use berth_bus::{Change, CommitError, Entry, Guard, Write};
use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::event::{Event, EventName};
use berth_contract::message::alloc::{AllocStatus, Register, Stop};
use berth_contract::message::claim::Take;
use berth_contract::problem::Problem;
use berth_contract::service::CLAIM;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{key, record};
use berth_domain::access::{AttachmentMode, Mode};
use berth_domain::alloc::{
    Alloc, AllocState, RequestFault, TaskDriverMounts, VolumeRequest, differing_fields,
};
use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};
use berth_service::{clock, deadline};
use tokio::time::Instant;

use crate::look;
use crate::proof;
use crate::state::State;

const STEP: &str = verb::AllocRegister::STEP;
/// Races lost in a row before the caller is told.
const RACES_MAX: u32 = 8;

/// Registers an alloc. Again with the same content is nothing; with other content, or once it has
/// ended, it is refused: an alloc is one run.
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
    check(&wanted.volumes, wanted.index).map_err(|faults| Problem::bad_input(STEP, faults))?;
    mountable(&wanted, request.task_driver_mounts)?;
    if !request.allow_missing
        && let Some(missing) = missing(state, &namespace, &wanted, trace).await?
        // What is registered stays so, whatever became of its volumes.
        && state.read_alloc(&namespace, &request.id, STEP).await?.1.is_none()
    {
        return Err(missing.at(STEP));
    }
    let decide = |known: Option<&Alloc>| match known {
        None => Ok(Some(wanted.clone())),
        Some(known) if known.state.is_terminal() => Err(Problem::new(
            Code::AllocTerminal,
            format!("alloc {} is {} since {}", request.id, known.state, known.since),
        )),
        Some(known) => match differing_fields(known, &wanted) {
            differing if differing.is_empty() => Ok(None),
            differing => Err(Problem::new(
                Code::UnsafeUpdate,
                format!("alloc {} is registered with other {}", request.id, differing.join(", ")),
            )
            .next("register the alloc under another id, or stop this one first")),
        },
    };
    state.change_alloc(&namespace, &request.id, STEP, trace, deadline, decide).await
}

/// The refusal of an alloc whose node or volumes are not there, with all that is missing. That a
/// volume is not there is confirmed at a quorum, and of a node at the leader: its bucket is
/// another service's to write.
async fn missing(
    state: &State,
    namespace: &Namespace,
    wanted: &Alloc,
    trace: TraceContext,
) -> Result<Option<Problem>, Problem> {
    let mut faults = Vec::new();
    let node = &wanted.node;
    let is_node = state
        .nodes
        .read(|nodes| nodes.get(node).is_some() || nodes.unreadable().contains_key(node));
    let mut code = Code::NoSuchVolume;
    if !is_node && proof::node(state, node, STEP).await?.is_none() {
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
        confirmed.map_err(|error| state.problem(error, STEP, &volume))?;
        if !state.has_volume(&volume) {
            let problem = format!("volume {} is not registered", volume.volume);
            faults.push(Fault { path: format!("volumes[{at}].source"), problem, line: None });
        }
    }
    if faults.is_empty() {
        return Ok(None);
    }
    let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let next = "register what is missing first; or say `allow_missing` (`--wait` of `berth run`) \
                where it is still to come";
    Ok(Some(Problem { faults, ..Problem::new(code, said.join("; ")).next(next) }))
}

/// Whether the workload's runner can mount what it asks for (E7).
fn mountable(wanted: &Alloc, mounts: TaskDriverMounts) -> Result<(), Problem> {
    let lacking = |request: &VolumeRequest| {
        let why = mounts.lacks(request.kind)?;
        Some(format!("volume {}: {why}", request.name()))
    };
    let lacking: Vec<String> = wanted.volumes.iter().filter_map(lacking).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Problem::new(Code::RunnerCannotMount, lacking.join("; ")).at(STEP))
}

/// What is wrong with the volumes that a workload of this index asks for.
pub fn check(volumes: &[VolumeRequest], index: Option<u32>) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    let mut known: BTreeMap<VolumeId, &VolumeRequest> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for (at, request) in volumes.iter().enumerate() {
        let mut fault = |field: &str, problem: String| {
            let path = format!("volumes[{at}].{field}");
            faults.push(Fault { path, problem, line: None });
        };
        match request.volume(index) {
            Err(why @ RequestFault::NoIndex) => fault("per_alloc", why.to_string()),
            Err(why @ RequestFault::Id(_)) => fault("source", why.to_string()),
            Ok(volume) => {
                if let Some(first) = known.get(&volume) {
                    for field in differing_for_one_claim(first, request) {
                        let first = first.name();
                        let problem = format!(
                            "differs from that of {first}: an alloc has one claim on {volume}, \
                             and uses it in one way"
                        );
                        fault(field, problem);
                    }
                }
                known.entry(volume).or_insert(request);
            }
        }
        if request.attachment == Some(AttachmentMode::BlockDevice) && !request.mount.is_empty() {
            fault("mount", "is of file systems, and a block device has none".to_owned());
        }
        if request.alias.as_deref().is_some_and(str::is_empty) {
            fault("alias", "is empty; leave it out to use the source".to_owned());
        } else if !names.insert(request.name()) {
            fault("alias", format!("{} is another volume's name too", request.name()));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// In what two requests of one alloc for one volume must agree (E6). They may differ in what they
/// are called, in whether they only read, and in mount flags.
fn differing_for_one_claim(one: &VolumeRequest, other: &VolumeRequest) -> Vec<&'static str> {
    [
        ("access", one.access != other.access),
        ("attachment", one.attachment != other.attachment),
        ("mount.fs_type", one.mount.fs_type != other.mount.fs_type),
        ("mount.group", one.mount.group != other.mount.group),
    ]
    .into_iter()
    .filter_map(|(field, differs)| differs.then_some(field))
    .collect()
}

/// Says that an alloc has ended. From here on its claims are work for the watcher. An alloc nobody
/// registered cannot be stopped; one that has ended stays as it ended.
pub async fn stop(
    state: &State,
    namespace: Namespace,
    request: Stop,
    trace: TraceContext,
    deadline: Instant,
) -> Result<AllocStatus, Problem> {
    if !request.state.is_terminal() {
        let problem = Problem::new(Code::BadInput, "`state` must be complete, failed or stopped");
        return Err(problem.at("alloc.stop"));
    }
    let decide = |known: Option<&Alloc>| match known {
        None => Ok(None),
        Some(known) if known.state.is_terminal() => Ok(None),
        Some(known) => Ok(Some(Alloc {
            state: request.state,
            since: clock::now(),
            note: request.note.clone().or_else(|| known.note.clone()),
            ..known.clone()
        })),
    };
    state.change_alloc(&namespace, &request.id, "alloc.stop", trace, deadline, decide).await
}

/// The refusal of what is asked about an alloc that nobody registered.
pub fn none(id: &AllocId) -> Problem {
    Problem::new(Code::NoSuchAlloc, format!("no alloc {id}"))
}

/// What an entry says.
fn body(key: &str, entry: &Entry, step: &str) -> Result<Option<Alloc>, Problem> {
    let Some(value) = &entry.value else { return Ok(None) };
    let read = record::read::<Alloc>(value).map_err(|error| error.at(key).problem().at(step))?;
    Ok(Some(read.body))
}

/// Whether the alloc may have what is asked for in its name.
fn may_ask(alloc: &Alloc, request: &Take) -> Result<(), Problem> {
    let id = &request.alloc;
    if alloc.state.is_terminal() {
        let said = format!("alloc {id} is {} since {}", alloc.state, alloc.since);
        return Err(Problem::new(Code::AllocTerminal, said));
    }
    if alloc.node != request.node {
        let said = format!("alloc {id} is placed on node {}, not {}", alloc.node, request.node);
        return Err(Problem::new(Code::AllocForeign, said));
    }
    let alias = request.alias.as_deref();
    let Some((_, asked)) = alloc.request_named(&request.volume, alias) else {
        let name = alias.map(|alias| format!(" as {alias}")).unwrap_or_default();
        let said = format!("alloc {id} did not ask for volume {}{name}", request.volume);
        return Err(Problem::new(Code::VolumeNotRequested, said));
    };
    if asked.read_only && request.mode == Some(Mode::Write) {
        let said = format!("alloc {id} asked to read volume {} only", request.volume);
        return Err(Problem::new(Code::VolumeNotRequested, said));
    }
    Ok(())
}

impl State {
    /// Whether the volume is registered, as far as this replica knows. A record that cannot be read
    /// may be its spec.
    fn has_volume(&self, volume: &VolumeKey) -> bool {
        self.volume_mirror.read(|volumes| {
            let found = volumes.get(volume);
            found.is_some_and(|one| one.volume.spec.is_some() || !one.unreadable.is_empty())
        })
    }

    /// The alloc a claim is asked for: there, not ended, placed where the request comes from, and
    /// asking for the volume (B1). This replica may be behind: one that ended may be forgotten, and
    /// another registered by its name. So it is the leader's record that anything is refused by.
    pub async fn alloc_of(
        &self,
        namespace: &Namespace,
        request: &Take,
        trace: TraceContext,
    ) -> Result<Alloc, Problem> {
        let id = &request.alloc;
        let known = self.alloc_mirror.read(|allocs| allocs.get(namespace, id).map(|a| a.1.clone()));
        if let Some(alloc) = known.filter(|alloc| may_ask(alloc, request).is_ok()) {
            return Ok(alloc);
        }
        let alloc = self.read_alloc_surely(namespace, id, "claim.take", trace).await?;
        let alloc = alloc.ok_or_else(|| none(id))?;
        may_ask(&alloc, request)?;
        Ok(alloc)
    }

    /// Whether the alloc still wants its claims, as the leader has it. A worker that asks has seen
    /// something: that it ended, perhaps before this replica did, even one that wrote it. An answer
    /// from what is known here would send it away until its next look; and the other way round, an
    /// alloc that was just registered would lose its claims.
    pub async fn surely_wanted(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        trace: TraceContext,
    ) -> Result<bool, Problem> {
        let alloc = self.read_alloc_surely(namespace, id, "claim.checkpoint", trace).await?;
        Ok(alloc.is_some_and(|alloc| !alloc.state.is_terminal()))
    }

    /// The alloc and its revision, as the leader has them.
    pub async fn read_alloc(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        step: &str,
    ) -> Result<(u64, Option<Alloc>), Problem> {
        let key = key::alloc(namespace, id);
        let entry = self.allocs.get(&key).await.map_err(|error| error.into_problem(step))?;
        let Some(entry) = entry else { return Ok((0, None)) };
        Ok((entry.revision, body(&key, &entry, step)?))
    }

    /// The alloc as the leader has it, for whoever acts on its absence without a write of its own.
    pub async fn read_alloc_surely(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        step: &str,
        trace: TraceContext,
    ) -> Result<Option<Alloc>, Problem> {
        let key = key::alloc(namespace, id);
        let entry = self.allocs.get_surely(&key, trace).await;
        let entry = entry.map_err(|error| error.into_problem(step))?;
        entry.map_or(Ok(None), |entry| body(&key, &entry, step))
    }

    /// Whether the alloc of this key, which had no value at that revision, still has none.
    pub async fn is_surely_absent(
        &self,
        key: &str,
        revision: u64,
        step: &str,
        trace: TraceContext,
    ) -> Result<bool, Problem> {
        let guard = Guard { filter: key, revision };
        let confirmed = self.allocs.confirm_absence(key, guard, trace).await;
        confirmed.map(|absent| absent.is_some()).map_err(|error| error.into_problem(step))
    }

    /// One guarded change of one alloc, decided on what the leader has.
    async fn change_alloc(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        step: &str,
        trace: TraceContext,
        deadline: Instant,
        decide: impl Fn(Option<&Alloc>) -> Result<Option<Alloc>, Problem>,
    ) -> Result<AllocStatus, Problem> {
        let key = key::alloc(namespace, id);
        for _ in 0..RACES_MAX {
            let (mut revision, known) = self.read_alloc(namespace, id, step).await?;
            let changed = decide(known.as_ref()).map_err(|problem| problem.at(step))?;
            let Some(alloc) = changed.as_ref().or(known.as_ref()) else {
                if self.is_surely_absent(&key, revision, step, trace).await? {
                    return Err(none(id).at(step));
                }
                continue;
            };
            if changed.is_some() {
                deadline::check(deadline).map_err(|problem| problem.at(step))?;
                let value = record::write(alloc, Some(trace.trace_id()))
                    .map_err(|error| Problem::new(Code::Internal, error).at(step))?;
                let stored = self
                    .allocs
                    .commit(Write {
                        key: &key,
                        change: Change::Put(value.clone().into()),
                        guard: Guard { filter: &key, revision },
                        operation: clock::new_attempt().as_str(),
                        trace,
                    })
                    .await;
                match stored {
                    Ok(stored) => {
                        revision = stored;
                        self.alloc_mirror.put(&key, revision, &value).await;
                        self.tell_alloc(namespace, id, alloc, trace);
                    }
                    Err(CommitError::Conflict { .. }) => continue,
                    Err(error) => return Err(error.into_problem(step)),
                }
            }
            return Ok(look::alloc_status(self, namespace, id, alloc, revision));
        }
        Err(Problem::new(Code::Overloaded, format!("alloc {id} changes too fast")).retryable())
    }

    fn tell_alloc(&self, namespace: &Namespace, id: &AllocId, alloc: &Alloc, trace: TraceContext) {
        let name = match alloc.state {
            AllocState::Live => EventName::AllocRegistered,
            AllocState::Complete => EventName::AllocComplete,
            AllocState::Failed => EventName::AllocFailed,
            AllocState::Stopped => EventName::AllocStopped,
        };
        let event = Event {
            namespace: Some(namespace.clone()),
            alloc: Some(id.clone()),
            node: Some(alloc.node.clone()),
            detail: alloc.note.clone(),
            trace: Some(trace.trace_id()),
            ..Event::new(name, clock::now(), CLAIM)
        };
        self.events.publish(&event.subject(), &event, trace);
    }
}
