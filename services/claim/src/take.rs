//! `claim.take`: reserve, have the controller attach, grant.
//!
//! A caller that asks again joins what is under way; one that gives up leaves a record that says
//! what to resume or undo. The publish runs in a task of its own, so that its answer is recorded
//! also when nobody waits for it any more.

use std::future::pending;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::call::Call;
use berth_contract::message::claim::{Grant, Take};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::access::Mode;
use berth_domain::alloc::{Alloc, VolumeRequest};
use berth_domain::plugin::Half;
use berth_domain::volume::{Attempt, Command, NoRoute, Outcome, Refusal, State as ClaimState};
use berth_domain::volume::{Route, Take as TakeCommand};
use berth_domain::{AllocId, Namespace, VolumeKey};
use berth_service::{call, clock};
use berth_telemetry::metric::CLAIMS_REFUSED;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::look::{ClaimContext, VolumeQueue};
use crate::state::State;
use crate::transact::TransactError;
use crate::{again, plan, refuse};

const STEP: &str = verb::ClaimTake::STEP;
/// A change can be missed by a replica that lags; it is looked for this often anyway.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How often a waiter asks the leader, whatever this replica knows.
const ASK_LEADER_AGAIN: Duration = Duration::from_secs(5);

/// Grants the claim, or says why not by the caller's deadline.
pub async fn take(
    state: &State,
    namespace: Namespace,
    request: Take,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Grant, Problem> {
    let volume = VolumeKey::new(namespace, request.volume.clone());
    let place = |problem: Problem| problem.at(STEP).volume(&volume).node(&request.node);
    let mut changes = state.volume_mirror.subscribe();
    // Whether this asking had the controller attach it: then the claim is as new as can be.
    let mut attached = false;
    let (mut asked_leader, mut waited) = (false, false);
    // Why there was no grant at the last look, for a caller whose time ends at the next.
    let mut last: Option<Problem> = None;
    loop {
        changes.mark_unchanged();
        // Looked up anew each time: the alloc may end while its claim waits (B1).
        let alloc = state.alloc_of(&volume.namespace, &request, trace).await.map_err(place)?;
        has_mount_group(state, &volume, &request, &alloc).map_err(place)?;
        // Takes of other volumes for a node that has little room left wait for each other, so that
        // it is not given twice. Another replica's do not: then the plugin itself refuses (A7).
        let bounded = state.is_bounded(&volume, &request.node);
        let room = match bounded {
            Some(plugin) => {
                let key = (plugin, request.node.clone());
                let Ok(room) = timeout_at(deadline, state.rooms.lock(&key)).await else {
                    return Err(place(standing(state, &volume, &request)));
                };
                Some(room)
            }
            None => None,
        };
        let others = state.others_on(&volume, &request.node);
        let taken = state.transact_until(&volume, trace, deadline, |now| {
            let route = now.spec.as_ref().map_or(Ok(Route::default()), |spec| {
                state.route(&volume, spec, &request.node, others)
            });
            Ok(command(state, &request, &alloc, route))
        });
        // The guard covers the volume alone, and this replica may learn late that the alloc has
        // ended. So the leader is asked, beside the first decision.
        let lives = async {
            if std::mem::replace(&mut asked_leader, true) {
                return Ok(());
            }
            again::alloc_lives(state, &volume, &request, trace).await
        };
        let (taken, lives) = tokio::join!(taken, lives);
        drop(room);
        lives.map_err(place)?;
        let mut lacking = None;
        let until = match taken {
            Ok(done) => match done.step.call {
                Some(attempt) => {
                    let call =
                        planned_call(state, &volume, &request, &alloc, &attempt, done.revision);
                    // Without a call the reservation was undone already; the next round sees that.
                    if let Some(call) = call {
                        let published = publish(state, call, attempt, trace, deadline);
                        if !published.await.map_err(place)? {
                            return Err(place(standing(state, &volume, &request)));
                        }
                    }
                    attached = true;
                    continue;
                }
                None => match granted(state, &volume, &request, &alloc) {
                    Some(grant) => {
                        if done.step.write.is_none() && !attached {
                            let epoch = grant.epoch;
                            let granted = again::may_grant(state, &volume, &request, epoch, trace);
                            granted.await.map_err(place)?;
                        } else if waited {
                            let lives = again::alloc_lives(state, &volume, &request, trace);
                            lives.await.map_err(place)?;
                        }
                        return Ok(grant);
                    }
                    None => None,
                },
            },
            Err(TransactError::Refused(Refusal::Busy { until, .. })) => Some(until),
            Err(TransactError::Refused(refusal)) if request.wait && may_come(&refusal) => {
                lacking = Some(refuse::problem(&volume, &refusal).retryable());
                None
            }
            Err(error) => {
                let problem = state.problem(error, STEP, &volume).or_reason(last, true);
                CLAIMS_REFUSED.add(1, [problem.code.as_str().into()]);
                return Err(place(problem));
            }
        };
        let pause = until.map_or(LOOK_AGAIN, |until| until.since(clock::now()).min(LOOK_AGAIN));
        if Instant::now() + pause >= deadline {
            let standing = || standing(state, &volume, &request);
            return Err(place(lacking.unwrap_or_else(standing)));
        }
        last = Some(lacking.clone().unwrap_or_else(|| standing(state, &volume, &request)));
        waited = true;
        // A claim's change wakes a waiter. A missing volume or plugin is looked for at intervals.
        let changes = lacking.is_none().then_some(&mut changes);
        wait_for_turn(state, &volume, &request, &alloc, changes, pause, deadline).await;
    }
}

/// Returns when it is worth to ask the leader again. The waiters of a long line look at what this
/// replica knows: each change of the bucket wakes them all, and only the one whose turn it is has
/// to ask.
async fn wait_for_turn(
    state: &State,
    volume: &VolumeKey,
    request: &Take,
    alloc: &Alloc,
    mut changes: Option<&mut watch::Receiver<u64>>,
    pause: Duration,
    deadline: Instant,
) {
    let ask_leader_at = Instant::now() + clock::jittered(ASK_LEADER_AGAIN);
    loop {
        let woken = async {
            match &mut changes {
                Some(changes) => drop(changes.changed().await),
                None => pending().await,
            }
        };
        // A little more than the pause, so that what is due then is due.
        let _: Result<(), _> = timeout(pause + Duration::from_millis(1), woken).await;
        let now = Instant::now();
        if changes.is_none() || now + pause >= deadline || now >= ask_leader_at {
            return;
        }
        if is_behind_others(state, volume, &request.alloc) {
            continue;
        }
        let others = state.others_on(volume, &request.node);
        let acts = state.would_act(volume, |now| {
            let route = now.spec.as_ref().map_or(Ok(Route::default()), |spec| {
                state.route(volume, spec, &request.node, others)
            });
            command(state, request, alloc, route)
        });
        if acts || granted(state, volume, request, alloc).is_some() {
            return;
        }
    }
}

/// Whether another claim is before this one in the line. The first in line wakes the next.
fn is_behind_others(state: &State, volume: &VolumeKey, alloc: &AllocId) -> bool {
    state.volume_mirror.read(|volumes| {
        let Some(subtree) = volumes.get(volume) else { return false };
        let claims = &subtree.volume.claims;
        let waits = claims.get(alloc).is_some_and(|claim| claim.state == ClaimState::Waiting);
        waits && claims.in_line().next().is_some_and(|(first, _)| first != alloc)
    })
}

/// A group that the plugin cannot mount the volume for is refused before anything is attached. Who
/// has a claim is past that; and what is not known of the plugin, the node's agent will say.
fn has_mount_group(
    state: &State,
    volume: &VolumeKey,
    request: &Take,
    alloc: &Alloc,
) -> Result<(), Problem> {
    let plugin = state.volume_mirror.read(|volumes| {
        let now = &volumes.get(volume)?.volume;
        let spec = now.spec.as_ref().filter(|_| !now.claims.contains_key(&request.alloc))?;
        plan::mount(spec, volume, Some(alloc)).group.map(|_| spec.plugin.clone())
    });
    let Some(plugin) = plugin else { return Ok(()) };
    let can = state.plugins.read(|plugins| {
        let instances = &plugins.get(&plugin)?.instances;
        let abilities = instances.get(&(request.node.clone(), Half::Node))?.node.as_ref()?;
        Some(abilities.volume_mount_group)
    });
    if can != Some(false) {
        return Ok(());
    }
    let said = format!(
        "a group is asked for, and plugin {plugin} on node {} cannot mount a volume for one \
         (VOLUME_MOUNT_GROUP)",
        request.node
    );
    Err(Problem::new(Code::MountOptionsRefused, said))
}

/// Whether what is lacking may come to be while a caller waits: a volume that is to be registered,
/// a plugin or a node that is to be well again.
fn may_come(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoSuchVolume) || refusal.may_pass()
}

/// Whether a request with `wait` waits for what refuses it.
pub fn can_wait(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Held { .. }) || may_come(refusal)
}

fn command(state: &State, request: &Take, alloc: &Alloc, route: Result<Route, NoRoute>) -> Command {
    let asked = alloc.request_for(&request.volume);
    let capability = asked.map(VolumeRequest::capability).unwrap_or_default();
    let mode = request.mode.or(asked.map(VolumeRequest::mode));
    Command::Take(TakeCommand {
        alloc: request.alloc.clone(),
        node: request.node.clone(),
        mode: mode.unwrap_or(Mode::Read),
        capability,
        wait: request.wait,
        route,
        worker: state.worker.clone(),
    })
}

/// The grant, when the claim is taken.
fn granted(state: &State, volume: &VolumeKey, request: &Take, alloc: &Alloc) -> Option<Grant> {
    state.volume_mirror.read(|volumes| {
        let now = &volumes.get(volume)?.volume;
        let claim = now.claims.get(&request.alloc)?;
        let spec = now.spec.as_ref()?;
        (claim.state == ClaimState::Taken)
            .then(|| plan::grant(volume, now, spec, claim, alloc, request))
    })
}

/// The controller call of an attempt that is on the record. `None` if the reservation was undone.
fn planned_call(
    state: &State,
    volume: &VolumeKey,
    request: &Take,
    alloc: &Alloc,
    attempt: &Attempt,
    revision: u64,
) -> Option<Call> {
    state.volume_mirror.read(|volumes| {
        let subtree = volumes.get(volume)?;
        let call = plan::call(volume, subtree, &request.alloc, Some(alloc), attempt, revision)?;
        Some(state.addressed(call, &subtree.volume))
    })
}

/// Calls the controller for an attempt that is on the record, and records what came of it. False if
/// the deadline came before the answer, which is recorded all the same.
async fn publish(
    state: &State,
    call: Call,
    attempt: Attempt,
    trace: TraceContext,
    deadline: Instant,
) -> Result<bool, Problem> {
    let (state, volume, id) = (state.clone(), call.volume_key(), call.alloc.clone());
    let published = tokio::spawn(async move {
        let outcome = call::make(&state.bus, &call, trace).await;
        let answer = Command::Answer {
            alloc: id,
            attempt: attempt.id.clone(),
            outcome: outcome.clone(),
            worker: None,
        };
        record(&state, &volume, answer, trace, &attempt).await;
        outcome
    });
    match timeout_at(deadline, published).await {
        Ok(Ok(Outcome::Refused(error))) => Err(Problem::new(Code::PluginRefused, error)),
        Ok(Ok(
            Outcome::Done { .. }
            | Outcome::Failed(_)
            | Outcome::Exhausted(_)
            | Outcome::Unasked(_)
            | Outcome::Unanswered(_),
        )) => Ok(true),
        Ok(Err(defect)) => Err(Problem::new(Code::Internal, defect)),
        Err(_) => Ok(false),
    }
}

/// Records an answer, for as long as it can be the current one. After that it does not matter: the
/// attempt is no longer live, and whoever comes next makes another (rule 6).
async fn record(
    state: &State,
    volume: &VolumeKey,
    answer: Command,
    trace: TraceContext,
    attempt: &Attempt,
) {
    let (id, told) = (&attempt.id, trace.trace_id());
    loop {
        let error = match state.transact(volume, trace, |_| Ok(answer.clone())).await {
            Ok(_) => return,
            Err(TransactError::Refused(refusal)) => {
                tracing::info!(
                    %volume, attempt = %id, trace = told, %refusal,
                    "answer not applied"
                );
                return;
            }
            Err(error) => error,
        };
        if !attempt.may_still_act(clock::now(), state.policy.clock_margin) {
            tracing::warn!(
                %volume, attempt = %id, trace = told, %error,
                "answer not recorded in time"
            );
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What a caller is told whose claim is not granted by its deadline: where the claim stands.
fn standing(state: &State, volume: &VolumeKey, request: &Take) -> Problem {
    let problem = state.volume_mirror.read(|volumes| {
        let now = volumes.get(volume).map(|subtree| &subtree.volume)?;
        let claim = now.claims.get(&request.alloc)?;
        Some(match (&claim.error, claim.state) {
            (_, ClaimState::Waiting) => {
                let line = VolumeQueue::of(now);
                let (now, alloc) = (clock::now(), &request.alloc);
                let around = ClaimContext { now, volume, alloc, claim, line: &line, wanted: true };
                Problem::new(Code::Waiting, format!("in line for {}", around.turn()))
            }
            (Some(error), _) if claim.exhausted => Problem::new(Code::PluginExhausted, error),
            (Some(error), _) => Problem::new(Code::PluginFailed, error),
            (None, _) => Problem::new(Code::Busy, "the controller is attaching the volume"),
        })
    });
    problem
        .unwrap_or_else(|| Problem::new(Code::Busy, "another call is under way for the volume"))
        .retryable()
}
