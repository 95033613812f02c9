//! One claim's release, or one change of the storage, from where its record says it is to where
//! nothing more is due.
//!
//! **Owns** the loop: ask the claim service for the next call ([`ask`](crate::ask)), make the call
//! once, report its result with the next question.
//!
//! **Promises** that a result is reported until the claim service has it or its attempt has
//! expired, and that a replica that was killed under a question does not delay the release.
//!
//! **Never** decides what is due, and writes nothing: the claim service does both.
//!
//! The questions do not go through `berth_client::Client::persist`, for two reasons. A try of that
//! loop ends after half of the time that is left, and then sends the request again. But the claim
//! service gives a call out once, to the question that wrote the attempt: a question that is given
//! up takes its call with it, and the release waits until that attempt has expired. So the first
//! question stays open beside the second. And between two reports the slot of the call is given
//! back, so that another claim can use it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bus, Call, RequestError};
use berth_contract::message::call;
use berth_contract::message::work::{WorkCheckpoint, WorkCheckpointed, WorkReport};
use berth_contract::trace::TraceContext;
use berth_domain::volume::{CallKind, CallOwner, Outcome, State};
use berth_domain::{Timestamp, WorkerId, limits};
use berth_service::clock;
use berth_service::reconcile::Next;
use berth_service::slots::{Slot, Slots};
use berth_telemetry::metric::RELEASES_WOKEN_EARLY;
use berth_telemetry::{Kind, Span, attribute};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::ask;
use crate::due::Executor;
use crate::newer::{NewerRecords, is_newer};
use crate::view::{CallLane, WatchView};
use crate::watch::WorkKey;

/// How long the claim service may take to record a step. It covers an election of three NATS
/// servers.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(15);
/// A request that was not answered for this long is sent a second time.
const SECOND_REQUEST_AFTER: Duration = Duration::from_secs(2);
/// How long each later request waits before the next one is sent. The queue group may have chosen
/// the same replica, and does so until nats-server drops it (`ping_interval`).
const REQUEST_GAP: Duration = Duration::from_secs(2);
/// Most later requests in progress at once.
const REQUESTS_MAX: usize = 4;
/// The pause after a request that no claim service answered, plus or minus half of it.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(500);

/// Drives releases and changes of the storage.
pub struct Driver {
    pub bus: Bus,
    pub worker: WorkerId,
    pub view: Arc<WatchView>,
    /// Calls in progress, by their executor.
    pub calls: Slots<CallLane>,
    /// Requests to the claim service in progress. The time of a plugin call does not count here.
    pub questions: Semaphore,
    pub look_again: Duration,
    pub newer: NewerRecords,
}

impl Driver {
    /// Works until nothing may be done now. The slot is held while a call is in progress, and given
    /// back with its answer.
    pub async fn drive(self: Arc<Self>, work: WorkKey, slot: Slot<CallLane>) -> Next {
        match self.view.place(&work) {
            Ok(lane) if lane == *slot.lane() => {}
            // The work has moved on while it waited for its slot, and needs the slot of another
            // executor now.
            Ok(_) => return Next::After(Duration::ZERO),
            Err(next) => return next,
        }
        let trace = self.view.trace(&work);
        let name = if matches!(work.1, CallOwner::Claim(_)) {
            "drive a release"
        } else {
            "drive a change of the storage"
        };
        let drive = Span::child_of(trace, name, Kind::Internal);
        let _ends_with_this =
            with_names(drive, &work).with(attribute::WORKER, self.worker.as_str());
        let mut slot = Some(slot);
        let mut question = self.question(&work);
        if self.view.early.take(&work) {
            question.early = true;
            RELEASES_WOKEN_EARLY.add(1, []);
        }
        // Until when the result of a call is worth delivering. After that the attempt has expired,
        // and another replica may make a new one.
        let mut deliver_until = Timestamp::default();
        loop {
            let answer = self.checkpoint(&work, &question, trace).await;
            if answer.is_ok() {
                self.newer.record_answered(&work);
            }
            let error = match answer {
                Ok(WorkCheckpointed { call: Some(next_call), .. }) => {
                    let held = self.slot_for(slot.take(), &executor_of(&next_call));
                    let outcome = berth_service::call::make(&self.bus, &next_call, trace).await;
                    drop(held);
                    deliver_until = next_call.deadline.after(limits::CLOCK_MARGIN);
                    let detached = next_call.call == CallKind::NodeDetach && is_done(&outcome);
                    let plugin = next_call.plugin.clone();
                    question = self.question(&work);
                    question.report = Some(WorkReport::new(next_call.attempt.clone(), outcome));
                    if detached {
                        // The write that records the attempt may begin the controller's call. So it
                        // needs a slot first: the call's deadline would run while it waits for one.
                        let executor = Executor::Controller(plugin);
                        slot = self.calls.try_take(&CallLane { executor, again: false });
                        question.report_only = slot.is_none();
                    }
                    continue;
                }
                Ok(WorkCheckpointed { pending: false, .. }) => {
                    let trace = trace.trace_id();
                    tracing::info!(volume = %work.0, of = %work.1, trace, "nothing is left to do");
                    return Next::AwaitChange;
                }
                // Nothing is mounted on the claim's node any more: the controller's call is next.
                Ok(WorkCheckpointed { state: Some(State::NodeDetached), .. })
                    if question.report_only =>
                {
                    return Next::After(Duration::ZERO);
                }
                Ok(WorkCheckpointed { next_try, .. }) => return self.look_again(next_try),
                Err(error) => error,
            };
            let wait = self.pause(&work, &error, trace);
            if question.report.is_none() || clock::now() > deliver_until {
                return Next::After(wait);
            }
            // No slot is held during the wait.
            if slot.take().is_some() {
                question.report_only = true;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// The request for the next call.
    fn question(&self, (volume, owner): &WorkKey) -> WorkCheckpoint {
        WorkCheckpoint::new(volume.volume.clone(), owner.clone(), self.worker.clone())
    }

    /// How long to wait after a request that was not answered.
    fn pause(&self, work: &WorkKey, error: &RequestError, trace: TraceContext) -> Duration {
        if is_newer(error) {
            return self.newer.record_refused(work, error);
        }
        tracing::warn!(
            volume = %work.0,
            of = %work.1,
            trace = trace.trace_id(),
            error = berth_service::process::chain(error),
            "the claim service could not be asked; asking again"
        );
        UNREACHABLE_PAUSE.mul_f64(0.5 + rand::random::<f64>())
    }

    /// A slot for a recorded call: the slot that was taken for it, or, if the record was further
    /// than expected, a slot beyond the bound. The call does not wait for a slot, because its
    /// deadline runs.
    fn slot_for(&self, slot: Option<Slot<CallLane>>, executor: &Executor) -> Slot<CallLane> {
        match slot.filter(|slot| slot.lane().executor == *executor) {
            Some(slot) => slot,
            None => self.calls.take_beyond(&CallLane { executor: executor.clone(), again: false }),
        }
    }

    /// When a claim that is not at rest is checked again, whether or not a change is seen.
    fn look_again(&self, next_try: Option<Timestamp>) -> Next {
        let wait = next_try.map_or(self.look_again, |next| next.since(clock::now()));
        // The claim service's clock decides. A little later both clocks agree that it is time.
        Next::After(wait.min(self.look_again) + Duration::from_millis(2))
    }

    /// Asks the claim service. After [`SECOND_REQUEST_AFTER`] sends the request a second time
    /// beside the first, because a replica that is killed or hangs does not answer.
    async fn checkpoint(
        &self,
        work: &WorkKey,
        question: &WorkCheckpoint,
        trace: TraceContext,
    ) -> Result<WorkCheckpointed, RequestError> {
        // The semaphore is never closed. If it were, one more request would do no harm.
        let _room = self.questions.acquire().await.ok();
        let mut first = pin!(self.ask_once(work, question, trace));
        if let Ok(answer) = timeout(SECOND_REQUEST_AFTER, &mut first).await {
            return answer;
        }
        let answer = tokio::select! {
            answer = &mut first => return answer,
            answer = self.ask_another(work, question, trace) => answer,
        };
        match answer {
            // If the first request was only slow, its answer may have the call.
            Ok(WorkCheckpointed { pending: true, call: None, .. }) => {
                timeout(SECOND_REQUEST_AFTER, first)
                    .await
                    .ok()
                    .and_then(Result::ok)
                    .map_or(answer, Ok)
            }
            Ok(_) => answer,
            Err(_) => first.await,
        }
    }

    /// Sends the request when a replica listens, and again if none answers. Dropped when the first
    /// request ends.
    async fn ask_another(
        &self,
        work: &WorkKey,
        question: &WorkCheckpoint,
        trace: TraceContext,
    ) -> Result<WorkCheckpointed, RequestError> {
        let ask = || self.ask_once(work, question, trace);
        let mut requests = FuturesUnordered::from_iter([ask()]);
        loop {
            tokio::select! {
                Some(answer) = requests.next() => match answer {
                    Err(RequestError::NoResponder { .. } | RequestError::Unavailable { .. }) => {
                        tokio::time::sleep(UNREACHABLE_PAUSE).await;
                        requests.push(ask());
                    }
                    answer => return answer,
                },
                () = tokio::time::sleep(REQUEST_GAP), if requests.len() < REQUESTS_MAX => {
                    requests.push(ask());
                }
            }
        }
    }

    async fn ask_once(
        &self,
        (volume, _): &WorkKey,
        question: &WorkCheckpoint,
        trace: TraceContext,
    ) -> Result<WorkCheckpointed, RequestError> {
        // No client span: it would be lost if this process were killed, and the claim service's
        // span would have no parent.
        let call = Call::within(trace, CHECKPOINT_TIMEOUT).without_client_span();
        ask::ask_claim_service(&self.bus, &volume.namespace, question, &call).await
    }
}

/// The span with the names of the work.
fn with_names(span: Span, (volume, owner): &WorkKey) -> Span {
    let span = span
        .with(attribute::NAMESPACE, volume.namespace.as_str())
        .with(attribute::VOLUME, volume.volume.as_str());
    match owner {
        CallOwner::Claim(alloc) => span.with(attribute::ALLOC, alloc.as_str()),
        CallOwner::Snapshot(id) => span.with(attribute::SNAPSHOT, id.as_str()),
        CallOwner::Volume => span,
    }
}

/// The executor of the call.
fn executor_of(call: &call::Call) -> Executor {
    let plugin = call.plugin.clone();
    match call.node() {
        Some(node) => Executor::Node(plugin, node.clone()),
        None => Executor::Controller(plugin),
    }
}

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done { .. } | Outcome::Stored(_))
}
