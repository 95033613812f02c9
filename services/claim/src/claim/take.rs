//! `claim.take`: reserve the claim, have the controller attach the volume, grant.
//!
//! [`take`] calls one function for each arrow of the diagram in ARCHITECTURE.md, in its order:
//!
//! ```text
//! claim.take ──▶ reserve        ── publishing ──▶ bus
//!                publish        ── controller.<plugin>.publish ──▶ ControllerPublishVolume
//!                record_answer  ── taken ──▶ bus
//!   ◀── grant ── grant
//! ```
//!
//! **Promises** that a repeated request joins the work that is under way. If the caller gives up,
//! the record shows what is to be resumed or undone.
//!
//! **Never** tries a claim that stands behind others in line: it takes no lock, writes nothing and
//! asks the leader nothing, unless its place would end soon.

use std::time::Duration;

use berth_bus::caller::{wait_aside, wait_until_deadline};
use berth_contract::code::Code;
use berth_contract::message::call::ClaimCall;
use berth_contract::message::claim::{Grant, Take};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::access::Mode;
use berth_domain::alloc::{Alloc, VolumeRequest};
use berth_domain::limits::HELD_MAX;
use berth_domain::room::Rooms;
use berth_domain::volume::storage::Stage;
use berth_domain::volume::{
    Attempt, CallOwner, Command, Outcome, Refusal, Route, State as ClaimState, Step,
    Take as TakeCommand, Volume,
};
use berth_domain::{Namespace, NodeId, PluginId, Timestamp, VolumeKey};
use berth_service::locks::KeyGuard;
use berth_service::{call, clock};
use berth_telemetry::metric::CLAIMS_REFUSED;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::caller::Caller;
use crate::claim::change::give_up_for;
use crate::claim::regrant::check_regrant;
use crate::read::plan;
use crate::read::{ClaimContext, VolumeQueue};
use crate::store::open_requests::OpenRequest;
use crate::store::refuse;
use crate::store::state::State;
use crate::store::transact::{Committed, TransactError};

/// Longest time between two tries. A lagging replica may miss the change that a caller waits for.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time between two requests of a waiter to the leader.
const ASK_LEADER_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two tries to record the controller's answer.
const RECORD_RETRY: Duration = Duration::from_millis(200);

/// Grants the claim, or says by the caller's deadline why there is no grant. A caller that waits
/// for others is told so after [`HELD_MAX`], and keeps its place in line by retrying.
pub async fn take(
    state: &State,
    namespace: &Namespace,
    request: Take,
    caller: &Caller,
) -> Result<Grant, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let own = caller.own_node();
    let volume = VolumeKey::new(namespace.clone(), request.volume.clone());
    let held_until = deadline.min(Instant::now() + HELD_MAX);
    let rooms = state.rooms_for(&volume, held_until).await;
    let claim = ClaimRequest { state, volume, request, own, rooms, trace, deadline, held_until };
    let granted = claim.take().await;
    granted.map_err(|problem| problem.volume(&claim.volume).node(&claim.request.node))
}

/// A claim that an alloc requests, and the caller that waits for it.
struct ClaimRequest<'a> {
    state: &'a State,
    volume: VolumeKey,
    request: Take,
    /// The node that the sender acts for, if it acts for one.
    own: Option<NodeId>,
    /// Where there is room for the volume, if this claim will have it created.
    rooms: Option<Rooms>,
    trace: TraceContext,
    deadline: Instant,
    /// When a caller that waits is told to retry.
    held_until: Instant,
}

/// What the earlier tries of one request have found.
struct EarlierTries {
    /// Changes of the volume since the last try, once this request has waited.
    waiting: Option<OpenRequest>,
    is_alloc_checked: bool,
    /// Whether the controller attached the volume for this request: then the claim is new.
    has_attached: bool,
    has_waited: bool,
    /// Why the last try ended without a grant: this is the answer if the deadline comes during the
    /// next one.
    refusal: Option<Problem>,
}

/// The claim after one try to reserve it.
enum Reservation {
    /// It is reserved, and this request has to make the controller call of the attempt.
    Publishing { attempt: Attempt, revision: u64 },
    /// It is taken, by this write or an earlier one.
    Taken { grant: Box<Grant>, is_written: bool },
    /// It is in line, or another call for the volume is under way, until this time at the latest.
    Queued { until: Option<Timestamp> },
    /// The volume, the plugin or the node is missing, and the caller waits for it.
    Lacking(Box<Problem>),
}

impl ClaimRequest<'_> {
    async fn take(&self) -> Result<Grant, Problem> {
        let mut earlier = EarlierTries {
            waiting: None,
            is_alloc_checked: false,
            has_attached: false,
            has_waited: false,
            refusal: None,
        };
        loop {
            if let Some(waiting) = &mut earlier.waiting {
                waiting.mark_unchanged();
            }
            // Read in each round, because the alloc may end while its claim waits (B1).
            let Self { state, volume, request, own, trace, .. } = self;
            let alloc = state.claiming_alloc(volume, request, own.as_ref(), *trace).await?;
            if self.stands_in_line(&alloc) {
                self.wait_for_turn(&alloc, None, &mut earlier).await?;
                continue;
            }
            match self.reserve(&alloc, &mut earlier).await? {
                Reservation::Publishing { attempt, revision } => {
                    // A reservation that was undone meanwhile has no call; the next round finds
                    // that.
                    if let Some(call) = self.controller_call(&alloc, &attempt, revision) {
                        let (state, trace) = (self.state.clone(), self.trace);
                        // A separate task: the answer is recorded even if the caller gives up.
                        let answered = tokio::spawn(async move {
                            let outcome = publish(&state, &call, trace).await;
                            record_answer(&state, &call, &attempt, &outcome, trace).await;
                            outcome
                        });
                        self.await_answer(answered).await?;
                    }
                    earlier.has_attached = true;
                }
                Reservation::Taken { grant, is_written } => {
                    return self.grant(*grant, is_written, &earlier).await;
                }
                Reservation::Queued { until } => {
                    self.wait_for_turn(&alloc, until, &mut earlier).await?;
                }
                Reservation::Lacking(problem) => {
                    self.wait_for_missing(*problem, &mut earlier).await?;
                }
            }
        }
    }

    /// The arrow `publishing`: decides under the volume's guard and writes the reservation.
    async fn reserve(
        &self,
        alloc: &Alloc,
        earlier: &mut EarlierTries,
    ) -> Result<Reservation, Problem> {
        let Self { state, volume, request, trace, deadline, .. } = self;
        let Some(turn) = wait_until_deadline(state.take_turns.lock(volume)).await else {
            return Err(self.refused(TransactError::Queued, earlier));
        };
        let limit_lock = self.lock_node_limit().await?;
        let others = state.count_other_volumes(volume, &request.node);
        let stored = async {
            let command = |now: &Volume| Ok(self.command(now, alloc, others));
            let stored = state.transact_until(volume, *trace, *deadline, command).await;
            drop((limit_lock, turn));
            stored
        };
        // The guard covers only the volume, and this replica may lag behind the end of the alloc.
        // So the leader is asked in parallel with the first decision.
        let is_alloc_checked = std::mem::replace(&mut earlier.is_alloc_checked, true);
        let alloc_lives =
            async { if is_alloc_checked { Ok(()) } else { self.check_alloc_lives().await } };
        let (stored, alloc_lives) = tokio::join!(stored, alloc_lives);
        alloc_lives?;
        if let Err(TransactError::Refused(Refusal::NoRoomHere(_))) = &stored {
            state.doubt_room(volume);
        }
        let stored = match stored {
            Err(TransactError::Refused(Refusal::ClaimDiffers { .. })) => {
                match self.give_up_earlier(alloc, others).await {
                    Ok(until) => return Ok(Reservation::Queued { until }),
                    Err(error) => Err(error),
                }
            }
            stored => stored,
        };
        match stored {
            Ok(Committed { step: Step { call: Some(attempt), .. }, revision }) => {
                Ok(Reservation::Publishing { attempt, revision })
            }
            Ok(done) => Ok(match self.grant_of_taken(alloc) {
                Some(grant) => {
                    let is_written = done.step.write.is_some();
                    Reservation::Taken { grant: Box::new(grant), is_written }
                }
                None => Reservation::Queued { until: None },
            }),
            Err(TransactError::Refused(Refusal::Busy { until, .. })) => {
                Ok(Reservation::Queued { until: Some(until) })
            }
            // The claim follows as soon as the volume is created, even without `wait`.
            Err(TransactError::Refused(refusal)) if refusal.is_of_creation() => {
                Ok(Reservation::Queued { until: None })
            }
            Err(TransactError::Refused(refusal)) if request.wait && refuse::may_pass(&refusal) => {
                let problem = refuse::to_problem(volume, &refusal).retryable();
                Ok(Reservation::Lacking(Box::new(problem)))
            }
            Err(error) => Err(self.refused(error, earlier)),
        }
    }

    /// The answer to a request that was refused: if its time is over, what it waited for before.
    fn refused(&self, error: TransactError, earlier: &mut EarlierTries) -> Problem {
        let problem = self.state.problem(error, &self.volume);
        let reason = earlier.refusal.take();
        let reason = reason.or_else(|| earlier.has_attached.then(|| self.why_not_granted()));
        let problem = problem.or_reason(reason, Instant::now() < self.deadline);
        CLAIMS_REFUSED.add(1, [problem.code.as_str().into()]);
        problem
    }

    /// Gives up the claim that the alloc has in another mode, or returns when to look again.
    async fn give_up_earlier(
        &self,
        alloc: &Alloc,
        others: Option<u64>,
    ) -> Result<Option<Timestamp>, TransactError> {
        let Self { state, volume, request, own, trace, deadline, .. } = self;
        let nothing = Volume::default();
        let take = state.volumes.mirror.read(|volumes| {
            let now = volumes.get(volume).map_or(&nothing, |subtree| &subtree.volume);
            self.wanted_claim(now, alloc, others)
        });
        let is_from_agent = own.as_ref() == Some(&request.node);
        give_up_for(state, volume, &take, is_from_agent, (*trace, *deadline)).await
    }

    /// If the plugin limits the volumes of a node, the takes of this node wait for each other, so
    /// that its last room is not given twice. Takes at other replicas do not wait: then the plugin
    /// itself refuses (A7).
    async fn lock_node_limit(&self) -> Result<Option<KeyGuard<(PluginId, NodeId)>>, Problem> {
        let node = &self.request.node;
        let Some(plugin) = self.state.plugin_with_limit(&self.volume, node) else {
            return Ok(None);
        };
        let key = (plugin, node.clone());
        let lock = timeout_at(self.deadline, self.state.node_limit_locks.lock(&key)).await;
        lock.map(Some).map_err(|_| self.why_not_granted())
    }

    /// The controller call of an attempt on the record; none if the reservation was undone.
    fn controller_call(
        &self,
        alloc: &Alloc,
        attempt: &Attempt,
        revision: u64,
    ) -> Option<ClaimCall> {
        let id = &self.request.alloc;
        self.state.volumes.mirror.read(|volumes| {
            let subtree = volumes.get(&self.volume)?;
            let call = plan::call(&self.volume, subtree, id, Some(alloc), attempt, revision)?;
            Some(self.state.with_controller(call, &subtree.volume))
        })
    }

    /// Waits until the controller's answer is recorded, or the deadline comes.
    async fn await_answer(&self, answered: JoinHandle<Outcome>) -> Result<(), Problem> {
        match timeout_at(self.deadline, answered).await {
            Ok(Ok(Outcome::Refused(failure))) => {
                Err(Problem::new(Code::PluginRefused, &failure).because_of(&failure))
            }
            Ok(Ok(
                Outcome::Done { .. }
                | Outcome::Stored(_)
                | Outcome::NotDone(_)
                | Outcome::Failed(_)
                | Outcome::Exhausted(_)
                | Outcome::Unasked(_)
                | Outcome::Unanswered(_),
            )) => Ok(()),
            Ok(Err(defect)) => Err(Problem::new(Code::Internal, defect)),
            Err(_) => Err(self.why_not_granted()),
        }
    }

    /// The arrow `grant`: checks at the leader what the guard of this request's write did not
    /// cover.
    async fn grant(
        &self,
        grant: Grant,
        is_written: bool,
        earlier: &EarlierTries,
    ) -> Result<Grant, Problem> {
        let Self { state, volume, request, trace, .. } = self;
        if !is_written && !earlier.has_attached {
            check_regrant(state, volume, request, grant.epoch, *trace).await?;
        } else if earlier.has_waited {
            self.check_alloc_lives().await?;
        }
        Ok(grant)
    }

    async fn check_alloc_lives(&self) -> Result<(), Problem> {
        let Self { state, volume, request, trace, .. } = self;
        state.check_alloc_lives(&volume.namespace, &request.alloc, *trace).await
    }

    /// Waits for a missing volume, plugin or node, by checking at intervals.
    async fn wait_for_missing(
        &self,
        problem: Problem,
        earlier: &mut EarlierTries,
    ) -> Result<(), Problem> {
        self.keep_refusal(problem, RETRY_INTERVAL, earlier)?;
        wait_aside(sleep(just_after(RETRY_INTERVAL))).await
    }

    /// Whether the claim waits behind others, so that a try would change nothing. Decided from this
    /// replica's mirror: hundreds may be in line, and only the first one asks the leader.
    fn stands_in_line(&self, alloc: &Alloc) -> bool {
        self.is_behind_others() && !self.would_act(alloc)
    }

    /// Whether a try would have an effect now, by this replica's mirror.
    fn would_act(&self, alloc: &Alloc) -> bool {
        let Self { state, volume, request, .. } = self;
        let others = state.count_other_volumes(volume, &request.node);
        state.would_act(volume, |now| self.command(now, alloc, others))
    }

    /// Waits until another try is due. A change of the volume wakes the first in line, and those
    /// that are not in line.
    async fn wait_for_turn(
        &self,
        alloc: &Alloc,
        until: Option<Timestamp>,
        earlier: &mut EarlierTries,
    ) -> Result<(), Problem> {
        let pause =
            until.map_or(RETRY_INTERVAL, |until| until.since(clock::now()).min(RETRY_INTERVAL));
        self.give_up_in_deadlock().await?;
        self.keep_refusal(self.why_not_granted(), pause, earlier)?;
        wait_aside(self.watch_for_turn(alloc, pause, earlier)).await
    }

    /// Returns when another try is due. Reads only this replica's mirror.
    async fn watch_for_turn(&self, alloc: &Alloc, pause: Duration, earlier: &mut EarlierTries) {
        let Self { state, volume, request, .. } = self;
        let enter = || state.open_requests.enter(volume, &request.alloc);
        let waiting = earlier.waiting.get_or_insert_with(enter);
        let ask_leader_at = Instant::now() + clock::jittered(ASK_LEADER_INTERVAL);
        loop {
            let _: Result<(), _> = timeout(just_after(pause), waiting.changed()).await;
            let now = Instant::now();
            if now + pause >= self.held_until || now >= ask_leader_at {
                return;
            }
            if self.is_behind_others() {
                if state.check_no_deadlock(&volume.namespace, &request.alloc).is_err() {
                    return;
                }
                continue;
            }
            if self.would_act(alloc) || self.grant_of_taken(alloc).is_some() {
                return;
            }
        }
    }

    /// Refuses an alloc that waits in a circle of allocs, if it is the one that must give up. It
    /// leaves the line at once, so that the others go on when its volumes are free.
    async fn give_up_in_deadlock(&self) -> Result<(), Problem> {
        let Self { state, volume, request, trace, deadline, .. } = self;
        let Err(problem) = state.check_no_deadlock(&volume.namespace, &request.alloc) else {
            return Ok(());
        };
        let (alloc, reason) = (request.alloc.clone(), problem.message.clone());
        let release = Command::Release { alloc, epoch: None, reason };
        let is_waiting = |now: &Volume| {
            let own = now.claims.get(&request.alloc);
            if own.is_some_and(|own| own.state == ClaimState::Waiting) {
                return Ok(release.clone());
            }
            Err(problem.clone())
        };
        match state.transact_until(volume, *trace, *deadline, is_waiting).await {
            Ok(_) => Err(problem),
            Err(TransactError::Problem(problem)) => Err(problem),
            Err(error) => Err(state.problem(error, volume)),
        }
    }

    /// Keeps the reason why this try ended without a grant. Fails with that reason if the request's
    /// time ends before the next try.
    fn keep_refusal(
        &self,
        refusal: Problem,
        pause: Duration,
        earlier: &mut EarlierTries,
    ) -> Result<(), Problem> {
        if Instant::now() + pause >= self.held_until {
            return Err(refusal);
        }
        earlier.refusal = Some(refusal);
        earlier.has_waited = true;
        Ok(())
    }

    /// Whether another claim is ahead of this one in line. The first in line wakes the next.
    fn is_behind_others(&self) -> bool {
        self.state.volumes.mirror.read(|volumes| {
            let subtree = volumes.get(&self.volume);
            let claims = subtree.map(|subtree| &subtree.volume.claims);
            claims.is_some_and(|claims| claims.is_behind_in_line(&self.request.alloc))
        })
    }

    /// The command for the volume's present state. `others` is the number of the node's other
    /// volumes of the plugin.
    fn command(&self, now: &Volume, alloc: &Alloc, others: Option<u64>) -> Command {
        Command::Take(self.wanted_claim(now, alloc, others))
    }

    fn wanted_claim(&self, now: &Volume, alloc: &Alloc, others: Option<u64>) -> TakeCommand {
        let Self { state, volume, request, .. } = self;
        let route = now.spec.as_ref().map_or(Ok(Route::default()), |spec| {
            state.route(volume, spec, &request.node, others, self.rooms.as_ref())
        });
        let requested = alloc.request_for(&request.volume);
        let mode = request.mode.or(requested.map(VolumeRequest::mode));
        TakeCommand {
            alloc: request.alloc.clone(),
            node: request.node.clone(),
            mode: mode.unwrap_or(Mode::Read),
            capability: requested.map(VolumeRequest::capability).unwrap_or_default(),
            wait: request.wait,
            route,
            worker: state.worker.clone(),
        }
    }

    /// The grant of the claim, if it is taken.
    fn grant_of_taken(&self, alloc: &Alloc) -> Option<Grant> {
        let Self { state, volume, request, .. } = self;
        state.volumes.mirror.read(|volumes| {
            let now = &volumes.get(volume)?.volume;
            let claim = now.claims.get(&request.alloc)?;
            let spec = now.spec.as_ref()?;
            (claim.state == ClaimState::Taken)
                .then(|| plan::grant(volume, now, spec, claim, alloc, request))
        })
    }

    /// The answer at the deadline: what the claim waits for.
    fn why_not_granted(&self) -> Problem {
        let Self { state, volume, request, .. } = self;
        let problem = state.volumes.mirror.read(|volumes| {
            let now = volumes.get(volume).map(|subtree| &subtree.volume)?;
            if let Some(spec) = now.spec.as_ref().filter(|spec| spec.stage() != Stage::Ready) {
                let of_operation =
                    spec.operation().and_then(|operation| operation.progress.calls.failure.clone());
                let refused = || spec.failure().map(|refused| Box::new(refused.failure.clone()));
                let failure = of_operation.or_else(refused);
                let refusal = Refusal::NotReady { stage: spec.stage(), failure };
                return Some(refuse::to_problem(volume, &refusal));
            }
            let claim = now.claims.get(&request.alloc)?;
            Some(match (&claim.progress.failure, claim.state) {
                (_, ClaimState::Waiting) => {
                    let line = VolumeQueue::new(now);
                    let now = clock::now();
                    let context = ClaimContext { now, claim, line: &line, wanted: true };
                    Problem::new(Code::Waiting, format!("in line for {}", context.turn()))
                }
                (Some(failure), _) => {
                    let code =
                        if claim.exhausted { Code::PluginExhausted } else { Code::PluginFailed };
                    let problem = Problem::new(code, failure).because_of(failure);
                    now.spec.as_ref().map_or(problem.clone(), |spec| problem.plugin(&spec.plugin))
                }
                (None, _) => Problem::new(Code::Busy, "the controller is attaching the volume"),
            })
        });
        problem
            .unwrap_or_else(|| Problem::new(Code::Busy, "another call is under way for the volume"))
            .retryable()
    }
}

/// The arrow `controller.<plugin>.publish`.
async fn publish(state: &State, call: &ClaimCall, trace: TraceContext) -> Outcome {
    call::make(&state.bus, &call.clone().into(), trace).await
}

/// The arrow `taken`: records the controller's answer for as long as its attempt may still act. A
/// later answer does not count: by then another attempt may have followed (rule 6).
async fn record_answer(
    state: &State,
    call: &ClaimCall,
    attempt: &Attempt,
    outcome: &Outcome,
    trace: TraceContext,
) {
    let (volume, id, trace_id) = (call.volume_key(), &attempt.id, trace.trace_id());
    let answer = Command::Answer {
        owner: CallOwner::Claim(call.details.alloc.clone()),
        attempt: id.clone(),
        outcome: outcome.clone(),
        worker: None,
    };
    loop {
        let error = match state.transact(&volume, trace, |_| Ok(answer.clone())).await {
            Ok(_) => return,
            Err(TransactError::Refused(refusal)) => {
                tracing::info!(
                    %volume, attempt = %id, trace = trace_id, %refusal,
                    "answer not applied"
                );
                return;
            }
            Err(error) => error,
        };
        if !attempt.may_still_act(clock::now(), state.policy.clock_margin) {
            tracing::warn!(
                %volume, attempt = %id, trace = trace_id, %error,
                "answer not recorded in time"
            );
            return;
        }
        sleep(RECORD_RETRY).await;
    }
}

/// A little more than the pause, so that something that is due at its end is due.
fn just_after(pause: Duration) -> Duration {
    pause + Duration::from_millis(1)
}
