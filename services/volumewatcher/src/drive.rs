//! One claim's release, from where its record says it is to where nothing more is due.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bus, Call, RequestError};
use berth_contract::message::call;
use berth_contract::message::claim::{Checkpoint, Checkpointed, Report};
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::volume::{CallKind, Outcome, State};
use berth_domain::{Timestamp, WorkerId, limits};
use berth_service::clock;
use berth_service::reconcile::Next;
use berth_service::slots::{Slot, Slots};
use berth_telemetry::metric::RELEASES_WOKEN_EARLY;
use berth_telemetry::{Kind, Span, attribute};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::due::Executor;
use crate::view::{CallLane, WatchView};
use crate::watch::ClaimKey;

/// How long the claim service may take to record a step: an election of three NATS servers
/// included.
const CHECKPOINT: Duration = Duration::from_secs(15);
/// When no answer has come by then, the question is put once more: whoever got it may have died.
const ASK_ANOTHER: Duration = Duration::from_secs(2);
/// When the claim service cannot be asked, it is asked again after this, give or take half.
const UNREACHABLE: Duration = Duration::from_millis(500);

/// What drives releases.
pub struct Driver {
    pub bus: Bus,
    pub worker: WorkerId,
    pub view: Arc<WatchView>,
    /// Calls under way, by who executes them.
    pub calls: Slots<CallLane>,
    /// Questions to the claim service under way: what a call takes does not count here.
    pub questions: Semaphore,
    pub look_again: Duration,
}

impl Driver {
    /// Works on a claim until it is freed, or until nothing may be done for it now. The slot is
    /// held while a call is under way, and given back with its answer.
    pub async fn drive(self: Arc<Self>, claim: ClaimKey, slot: Slot<CallLane>) -> Next {
        match self.view.place(&claim) {
            Ok(lane) if lane == *slot.lane() => {}
            // It went on while it waited for its slot: another is needed.
            Ok(_) => return Next::After(Duration::ZERO),
            Err(next) => return next,
        }
        let trace = self.view.trace(&claim);
        let drive = Span::child_of(trace, "drive a release", Kind::Internal);
        let _ends_with_this = drive.with(attribute::WORKER, self.worker.as_str());
        let mut slot = Some(slot);
        let mut question = self.question(&claim);
        if self.view.early.take(&claim) {
            question.early = true;
            RELEASES_WOKEN_EARLY.add(1, []);
        }
        // Until when the report of a call is worth delivering: after that the attempt is dead, and
        // whoever asks makes another.
        let mut deliver_until = Timestamp::default();
        loop {
            let error = match self.checkpoint(&claim, &question, trace).await {
                Ok(Checkpointed { call: Some(next), .. }) => {
                    let held = self.slot_for(slot.take(), &next);
                    let outcome = berth_service::call::make(&self.bus, &next, trace).await;
                    drop(held);
                    let detached = next.call == CallKind::NodeDetach && is_done(&outcome);
                    deliver_until = next.deadline.after(limits::CLOCK_MARGIN);
                    question = Checkpoint {
                        report: Some(Report::new(next.attempt, outcome)),
                        ..self.question(&claim)
                    };
                    if detached {
                        // The write that records it may begin the controller's call: not without a
                        // slot for it, because its deadline would run while it waits for one.
                        let executor = Executor::Controller(next.plugin);
                        slot = self.calls.try_take(&CallLane { executor, again: false });
                        question.report_only = slot.is_none();
                    }
                    continue;
                }
                Ok(Checkpointed { state: None, .. }) => {
                    let trace = trace.trace_id();
                    tracing::info!(volume = %claim.0, alloc = %claim.1, trace, "freed");
                    return Next::AwaitChange;
                }
                Ok(Checkpointed { state: Some(State::NodeDetached), .. })
                    if question.report_only =>
                {
                    return Next::After(Duration::ZERO);
                }
                Ok(Checkpointed { next_try, .. }) => return self.look_again(next_try),
                Err(error) => error,
            };
            tracing::warn!(
                volume = %claim.0,
                alloc = %claim.1,
                trace = trace.trace_id(),
                error = berth_service::process::chain(&error),
                "the claim service could not be asked; asking again"
            );
            let wait = UNREACHABLE.mul_f64(0.5 + rand::random::<f64>());
            if question.report.is_none() || clock::now() > deliver_until {
                return Next::After(wait);
            }
            // Nothing is held while it waits.
            question.report_only |= slot.take().is_some();
            tokio::time::sleep(wait).await;
        }
    }

    /// A slot for a call that is on the record: the one that was taken for it, or, where the record
    /// was further than was known here, another. The call does not wait for it: its deadline runs.
    fn slot_for(&self, slot: Option<Slot<CallLane>>, call: &call::Call) -> Slot<CallLane> {
        let executor = if call.call.is_controller() {
            Executor::Controller(call.plugin.clone())
        } else {
            Executor::Node(call.plugin.clone(), call.node.clone())
        };
        match slot.filter(|slot| slot.lane().executor == executor) {
            Some(slot) => slot,
            None => self.calls.take_beyond(&CallLane { executor, again: false }),
        }
    }

    /// A claim that is not at rest is looked at again, whether or not something is seen to change.
    fn look_again(&self, next_try: Option<Timestamp>) -> Next {
        let wait = next_try.map_or(self.look_again, |next| next.since(clock::now()));
        // The claim service's clock says when; a little later both agree that it is then.
        Next::After(wait.min(self.look_again) + Duration::from_millis(2))
    }

    fn question(&self, (volume, alloc): &ClaimKey) -> Checkpoint {
        Checkpoint {
            alloc: alloc.clone(),
            volume: volume.volume.clone(),
            worker: self.worker.clone(),
            report: None,
            early: false,
            report_only: false,
        }
    }

    /// Asks the claim service, and after a while somebody else there as well: a replica that dies
    /// with a question never answers it. Asked twice, a call is given out once, to the question
    /// that wrote its attempt; the other one is answered without.
    async fn checkpoint(
        &self,
        claim: &ClaimKey,
        question: &Checkpoint,
        trace: TraceContext,
    ) -> Result<Checkpointed, RequestError> {
        // Closed by nobody; and a question more would do no harm.
        let _room = self.questions.acquire().await.ok();
        let mut first = pin!(self.put(claim, question, trace));
        if let Ok(answer) = timeout(ASK_ANOTHER, &mut first).await {
            return answer;
        }
        let answer = tokio::select! {
            answer = &mut first => return answer,
            answer = self.put_again(claim, question, trace) => answer,
        };
        match answer {
            // The first may have got the call, if it was only slow.
            Ok(Checkpointed { state: Some(_), call: None, .. }) => {
                timeout(ASK_ANOTHER, first).await.ok().and_then(Result::ok).map_or(answer, Ok)
            }
            Ok(_) => answer,
            Err(_) => first.await,
        }
    }

    /// Asks as soon as somebody is there to answer. Dropped when the first question ends.
    async fn put_again(
        &self,
        claim: &ClaimKey,
        question: &Checkpoint,
        trace: TraceContext,
    ) -> Result<Checkpointed, RequestError> {
        loop {
            match self.put(claim, question, trace).await {
                Err(RequestError::NoResponder { .. } | RequestError::Unavailable { .. }) => {
                    tokio::time::sleep(UNREACHABLE).await;
                }
                answer => return answer,
            }
        }
    }

    async fn put(
        &self,
        (volume, _): &ClaimKey,
        question: &Checkpoint,
        trace: TraceContext,
    ) -> Result<Checkpointed, RequestError> {
        // A span of ours would be lost with this process, and the service's be without a parent.
        let call = Call::within(trace, CHECKPOINT).as_it_is();
        self.bus.ask::<verb::ClaimCheckpoint>(&volume.namespace, question, &call).await
    }
}

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done { .. })
}
