//! What happens around the work of a call.
//!
//! Owns: the beginning in the log, the slots, and the end in the log; `sabotage` applies faults.
//! Promises: a call runs to its end even if its caller leaves. Before the answer is sent, the end
//! is in the log and the slots are free. Never: knows what a call is about.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_csi::Code;
use berth_csi::redact::Secrets;
use berth_csi::rpc::Unary;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tonic::{Request, Response, Status};

use super::Driver;
use super::forgery::{forge_answer, forge_request};
use super::refusal::Refusal;
use super::request::RequestFields;
use super::sabotage::{SabotagedResult, run_with_faults};
use super::subject::CallSubject;
use crate::ability::Ability;
use crate::backend::{CallSlot, HeldSlot, RunningCall};
use crate::faults::{CallFaults, FaultMark, WrongAnswer};
use crate::log::{CallBegin, CallEffect, CallOutcome, LoggedCall, Recorder, to_bounded_json};
use crate::rules;

/// What is checked before the work of a call.
pub(super) struct CallRules<R> {
    /// The call is offered with any one of these abilities; always if there are none.
    pub needs_one_of: &'static [Ability],
    /// Checks the required fields.
    pub check: fn(&R, &mut RequestFields),
}

impl Driver {
    /// Refuses a call that takes secrets and does not bring the one that this plugin wants. The
    /// message repeats no secret.
    fn check_secret<R: Unary>(&self, request: &R) -> Result<(), Refusal> {
        let Some(wanted) = self.profile.secret.as_deref().filter(|wanted| !wanted.is_empty())
        else {
            return Ok(());
        };
        // The JSON of a message has all its fields, even empty ones.
        let takes_secrets =
            serde_json::to_value(request).is_ok_and(|all| all["secrets"].is_object());
        let mut is_given = false;
        request.visit(&mut |secret| is_given |= secret == wanted);
        if is_given || !takes_secrets {
            return Ok(());
        }
        let message = format!("{}: the right secret is not among those given", R::RPC);
        Err(Refusal::new(Code::Unauthenticated, message))
    }

    /// Serves one call. `work` may block. Refuses the call while an ability that it needs is off.
    pub(super) async fn serve<R: Unary>(
        self: &Arc<Self>,
        rules: CallRules<R>,
        request: Request<R>,
        work: impl FnOnce(&Self, &R) -> Result<R::Response, Refusal> + Send + 'static,
    ) -> Result<Response<R::Response>, Status> {
        let trace = request.metadata().get("traceparent").and_then(|trace| trace.to_str().ok());
        let call = LoggedCall::from_request(request.get_ref(), trace);
        let secrets = Secrets::values_in(request.get_ref());
        let subject = CallSubject::from_request(request.get_ref());
        let mut request = request.into_inner();
        let work = move |driver: &Self, wrong: Option<WrongAnswer>| {
            let needs = rules.needs_one_of;
            if !needs.is_empty() && !needs.iter().any(|need| driver.has(*need)) {
                let message = format!("{} is not among the capabilities of this plugin", R::RPC);
                return Err(Refusal::new(Code::Unimplemented, message));
            }
            driver.check_secret(&request)?;
            let mut fields = RequestFields::default();
            (rules.check)(&request, &mut fields);
            fields.finish()?;
            let Some(wrong) = wrong else { return Ok((work(driver, &request)?, false)) };
            let is_forged = forge_request(driver, wrong, &mut request)?;
            let mut answer = work(driver, &request)?;
            let is_changed = forge_answer(driver, wrong, &request, &mut answer)?;
            Ok((answer, is_forged || is_changed))
        };
        let caller = Arc::new(Caller::default());
        let received = ReceivedCall { call, subject, secrets };
        let task = run(Arc::clone(self), received, Arc::clone(&caller), work);
        // A separate task: if the caller leaves, this future is dropped, and the work must go on.
        let task = tokio::spawn(task);
        let waiting = CallerGuard { driver: Arc::clone(self), caller };
        let answer = match task.await {
            Ok(Some(answer)) => answer.map(Response::new),
            Ok(None) => std::future::pending().await,
            Err(error) => Err(Status::internal(format!("the call broke off: {error}"))),
        };
        waiting.caller.lock().answered = true;
        answer
    }

    /// Logs the beginning of the call, takes its slots and looks up its faults.
    fn begin(
        &self,
        call: LoggedCall,
        subject: &CallSubject,
        caller: &Caller,
    ) -> Result<(CallBegin, Result<CallFaults, Refusal>), Status> {
        let begin = self.recorder.begin(call).map_err(not_logged)?;
        let slots = self.take_slots(&begin, &subject.volumes);
        let (slots, entered) =
            slots.map_or_else(|busy| (Vec::new(), Err(busy)), |slots| (slots, Ok(())));
        {
            let mut caller = caller.lock();
            (caller.seq, caller.slots) = (Some(begin.seq), slots);
            if caller.gone {
                caller.record_gone(&self.recorder);
            }
        }
        let faults =
            entered.and_then(|()| Ok(self.faults.take(begin.call.rpc, &subject.names())?));
        Ok((begin, faults))
    }

    /// Takes the slots of the call, one for each volume, if calls of its kind have them.
    fn take_slots(&self, begin: &CallBegin, volumes: &[String]) -> Result<Vec<HeldSlot>, Refusal> {
        let mut held = Vec::new();
        let Some(slot) = CallSlot::of_call(begin.call.rpc, self.node_id()) else { return Ok(held) };
        let mine = RunningCall {
            rpc: begin.call.rpc,
            instance: self.recorder.instance().to_owned(),
            seq: begin.seq,
            since_us: begin.begin_us,
            caller_gone: false,
        };
        for id in volumes {
            // A missing volume needs no protection; the work will answer NOT_FOUND.
            let Some(volume) = self.backend.volume(id)? else { continue };
            match volume.lock()?.enter(&slot, &mine)? {
                Ok(taken) => held.push(taken),
                Err(running) => return Err(self.refuse_overlap(&slot, id, &running)),
            }
        }
        Ok(held)
    }

    fn refuse_overlap(&self, slot: &CallSlot, id: &str, running: &RunningCall) -> Refusal {
        if running.caller_gone {
            // No violation: the CO no longer waits for that call.
            let message = format!("volume {id:?}: {running} is not done yet; ask again later");
            return Refusal::new(Code::Aborted, message);
        }
        let node = matches!(slot, CallSlot::Node(_)).then(|| self.node_id());
        Refusal::violation(id, rules::overlap(node, running))
    }
}

/// A request as the log and the faults see it.
struct ReceivedCall {
    call: LoggedCall,
    subject: CallSubject,
    secrets: Secrets,
}

/// Runs one call from beginning to end. `None` means that the answer is to be lost.
async fn run<R: Serialize + Any + Default + Send>(
    driver: Arc<Driver>,
    received: ReceivedCall,
    caller: Arc<Caller>,
    work: impl FnOnce(&Driver, Option<WrongAnswer>) -> Result<(R, bool), Refusal> + Send + 'static,
) -> Option<Result<R, Status>> {
    let _counted = InFlightGuard::enter(&driver.in_flight);
    let (at, by) = (Arc::clone(&driver), Arc::clone(&caller));
    let ReceivedCall { call, subject, secrets } = received;
    let (begin, faults) = match spawn_blocking(move || at.begin(call, &subject, &by)).await {
        Ok(Ok(begun)) => begun,
        Ok(Err(status)) => return Some(Err(status)),
        Err(error) => return Some(Err(broken(error))),
    };
    let sabotaged = match faults {
        Ok(faults) => run_with_faults(&driver, faults, work).await,
        Err(refusal) => Err(refusal).into(),
    };
    let is_lost = sabotaged.mark == Some(FaultMark::Lost);
    let (outcome, answer) = settle(sabotaged, &secrets);
    let end = move || {
        let logged = driver.recorder.end(begin, outcome);
        // After the log: the next call must not begin before this end.
        caller.lock().slots.clear();
        logged
    };
    match spawn_blocking(end).await {
        Ok(Ok(())) if is_lost => None,
        Ok(Ok(())) => Some(answer),
        Ok(Err(error)) => Some(Err(not_logged(error))),
        Err(error) => Some(Err(broken(error))),
    }
}

/// Splits a result into its log entry and its answer.
fn settle<R: Serialize>(
    sabotaged: SabotagedResult<R>,
    secrets: &Secrets,
) -> (CallOutcome, Result<R, Status>) {
    let SabotagedResult { result, mark } = sabotaged;
    match result {
        Ok(answer) => {
            let (code, message, effect) = (Code::Ok, String::new(), CallEffect::Done);
            let (violation, fault, shown) = (None, mark, to_bounded_json(&answer));
            (CallOutcome { code, message, effect, violation, fault, answer: shown }, Ok(answer))
        }
        Err(Refusal { code, message, effect, violation, fault }) => {
            let status = Status::new(tonic::Code::from_i32(code as i32), message.clone());
            let (message, fault) = (secrets.strike(&message), mark.or(fault));
            let answer = Value::Null;
            (CallOutcome { code, message, effect, violation, fault, answer }, Err(status))
        }
    }
}

fn broken(error: JoinError) -> Status {
    Status::internal(format!("the call broke off: {error}"))
}

fn not_logged(error: std::io::Error) -> Status {
    Status::internal(format!("the call log cannot be written: {error}"))
}

/// Counts a call as in flight until it is dropped.
struct InFlightGuard {
    count: watch::Sender<usize>,
}

impl InFlightGuard {
    fn enter(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self { count: count.clone() }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

/// Shared by the task that runs a call and the future that its caller waits on.
#[derive(Default)]
struct Caller(Mutex<CallerState>);

#[derive(Default)]
struct CallerState {
    /// The number of the call; `None` before its beginning.
    seq: Option<u64>,
    slots: Vec<HeldSlot>,
    answered: bool,
    gone: bool,
}

impl Caller {
    fn lock(&self) -> MutexGuard<'_, CallerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallerState {
    /// Marks the call in its slots and in the log: its caller left.
    fn record_gone(&self, recorder: &Recorder) {
        // If this fails, the next call sees a waiting caller, which is the safe side.
        for slot in &self.slots {
            _ = slot.caller_gone();
        }
        if let Some(seq) = self.seq {
            _ = recorder.gone(seq);
        }
    }
}

/// Dropped before the answer, it records that the caller left.
struct CallerGuard {
    driver: Arc<Driver>,
    caller: Arc<Caller>,
}

impl Drop for CallerGuard {
    fn drop(&mut self) {
        let mut caller = self.caller.lock();
        if !caller.answered {
            caller.gone = true;
            // Synchronously, so that the next call sees the marks.
            caller.record_gone(&self.driver.recorder);
        }
    }
}
