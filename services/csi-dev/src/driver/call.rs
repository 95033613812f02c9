//! The life of any call.
//!
//! Owns: what happens around the work of a call: its beginning in the log, its lane, the faults
//! planted for it, its end in the log. Promises: once begun, a call runs to its end, also when its
//! caller leaves meanwhile; its end is in the log, and its lane free, before it is answered.
//! Never: knows what a call is about.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_csi::Code;
use berth_csi::rpc::Unary;
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::{Request, Response, Status};

use super::Driver;
use super::refusal::Refusal;
use crate::backend::{InFlight, Lane, Running};
use crate::faults::{Fate, Fault};
use crate::log::{Begin, Call, Effect, Outcome, Recorder};
use crate::rules::{Scope, Violation};

impl Driver {
    /// Answers a call that this instance does not offer.
    pub(super) async fn refuse<R: Unary>(
        self: &Arc<Self>,
        request: Request<R>,
    ) -> Result<Response<R::Response>, Status> {
        let message = format!("{} is not among the capabilities of this plugin", R::RPC);
        self.serve(request, move |_, _| Err(Refusal::new(Code::Unimplemented, message))).await
    }

    /// Serves one call: does `work`, which may block, and everything around it.
    pub(super) async fn serve<R: Unary>(
        self: &Arc<Self>,
        request: Request<R>,
        work: impl FnOnce(&Self, &R) -> Result<R::Response, Refusal> + Send + 'static,
    ) -> Result<Response<R::Response>, Status> {
        let request = request.into_inner();
        let call = Call::of(&request);
        let work = move |driver: &Self| work(driver, &request);
        let caller = Arc::new(Caller::default());
        // A task of its own: dropping this future, when the caller leaves, must not stop the work.
        let task = tokio::spawn(run(Arc::clone(self), call, Arc::clone(&caller), work));
        let waiting = Waiting { driver: Arc::clone(self), caller };
        let answer = task.await;
        waiting.caller.lock().answered = true;
        match answer {
            Ok(answer) => answer.map(Response::new),
            Err(error) => Err(Status::internal(format!("the call broke off: {error}"))),
        }
    }

    /// Writes the beginning of the call, enters its lane, and asks what befalls it.
    fn begin(&self, call: Call, caller: &Caller) -> Result<(Begin, Result<Fate, Refusal>), Status> {
        let begin = self.recorder.begin(call).map_err(not_logged)?;
        let lane = self.enter(&begin);
        let (lane, entered) = lane.map_or_else(|busy| (None, Err(busy)), |lane| (lane, Ok(())));
        {
            let mut caller = caller.lock();
            (caller.seq, caller.lane) = (Some(begin.seq), lane);
            if caller.gone {
                caller.note_gone(&self.recorder);
            }
        }
        let fate = entered.and_then(|()| {
            Ok(self.faults.fate(begin.call.rpc, begin.call.volume_id.as_deref())?)
        });
        Ok((begin, fate))
    }

    /// Enters the lane of the call, if it has one.
    fn enter(&self, begin: &Begin) -> Result<Option<InFlight>, Refusal> {
        let (Some(scope), Some(id)) = (Scope::of(begin.call.rpc), &begin.call.volume_id) else {
            return Ok(None);
        };
        // Where there is no volume there is nothing to protect; the work will say so.
        let Some(volume) = self.backend.volume(id)? else { return Ok(None) };
        let lane = match scope {
            Scope::Volume => Lane::Controller,
            Scope::VolumeOnNode => Lane::Node(self.node_id().to_owned()),
        };
        let mine = Running {
            rpc: begin.call.rpc,
            instance: self.recorder.instance().to_owned(),
            seq: begin.seq,
            since_us: begin.begin_us,
            caller_gone: false,
        };
        let running = match volume.lock()?.enter(&lane, &mine)? {
            Ok(lane) => return Ok(Some(lane)),
            Err(running) => running,
        };
        if running.caller_gone {
            // Not the CO's fault: it no longer waits for that call, so it may ask again.
            let message = format!("volume {id:?}: {running} is not done yet; ask again later");
            return Err(Refusal::new(Code::Aborted, message));
        }
        let violation = match lane {
            Lane::Controller => Violation::OverlappingControllerCalls { running },
            Lane::Node(node) => Violation::OverlappingNodeCalls { node, running },
        };
        Err(Refusal::violation(id, violation))
    }
}

/// Runs one call from its beginning to its end.
async fn run<R: Send + 'static>(
    driver: Arc<Driver>,
    call: Call,
    caller: Arc<Caller>,
    work: impl FnOnce(&Driver) -> Result<R, Refusal> + Send + 'static,
) -> Result<R, Status> {
    let _counted = Counted::enter(&driver.in_flight);
    let (at, by) = (Arc::clone(&driver), Arc::clone(&caller));
    let (begin, fate) = blocking(move || at.begin(call, &by)).await.map_err(broken)??;

    let result = match fate {
        Ok(fate) => suffer(&driver, fate, work).await,
        Err(refusal) => Err(refusal),
    };
    let (outcome, answer) = settle(result);
    let end = move || {
        let logged = driver.recorder.end(begin, outcome);
        // Only now: the next call must not begin before this one has ended.
        caller.lock().lane = None;
        logged
    };
    blocking(end).await.map_err(broken)?.map_err(not_logged)?;
    answer
}

/// Does the work between what befalls the call before and after it.
async fn suffer<R: Send + 'static>(
    driver: &Arc<Driver>,
    fate: Fate,
    work: impl FnOnce(&Driver) -> Result<R, Refusal> + Send + 'static,
) -> Result<R, Refusal> {
    stand_still(fate.before.as_ref()).await;
    if let Some((code, fault)) = doom(fate.before.as_ref()) {
        return Err(Refusal::planted(code, fault, Effect::None));
    }
    let at = Arc::clone(driver);
    let result = blocking(move || work(&at)).await;
    let result = result.unwrap_or_else(|error| Err(Refusal::uncertain(error.to_string())));

    stand_still(fate.after.as_ref()).await;
    let Some((code, fault)) = doom(fate.after.as_ref()) else { return result };
    let (effect, violation) = match result {
        Ok(_) => (Effect::Done, None),
        Err(refusal) => (refusal.effect, refusal.violation),
    };
    Err(Refusal { violation, ..Refusal::planted(code, fault, effect) })
}

async fn stand_still(fault: Option<&Fault>) {
    if let Some(fault) = fault {
        sleep(Duration::from_millis(fault.delay_ms)).await;
    }
}

fn doom(fault: Option<&Fault>) -> Option<(Code, &Fault)> {
    let fault = fault?;
    fault.code.map(|code| (code, fault))
}

/// What is logged of a result, and what is answered.
fn settle<R>(result: Result<R, Refusal>) -> (Outcome, Result<R, Status>) {
    match result {
        Ok(answer) => {
            let (code, message, effect) = (Code::Ok, String::new(), Effect::Done);
            (Outcome { code, message, effect, violation: None, fault: None }, Ok(answer))
        }
        Err(Refusal { code, message, effect, violation, fault }) => {
            let status = Status::new(tonic::Code::from_i32(code as i32), message.clone());
            let violation = violation.map(|violation| *violation);
            (Outcome { code, message, effect, violation, fault }, Err(status))
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    tokio::task::spawn_blocking(work).await
}

fn broken(error: tokio::task::JoinError) -> Status {
    Status::internal(format!("the call broke off: {error}"))
}

fn not_logged(error: std::io::Error) -> Status {
    Status::internal(format!("the call log cannot be written: {error}"))
}

/// Counts a call as in flight while it lives.
struct Counted {
    count: watch::Sender<usize>,
}

impl Counted {
    fn enter(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self { count: count.clone() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

/// What the two sides of a call share: the task that runs it, and the future its caller waits on.
#[derive(Default)]
struct Caller(Mutex<CallerState>);

#[derive(Default)]
struct CallerState {
    /// The call's number, once it began.
    seq: Option<u64>,
    /// The lane it is in, from its beginning to its end.
    lane: Option<InFlight>,
    answered: bool,
    gone: bool,
}

impl Caller {
    fn lock(&self) -> MutexGuard<'_, CallerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallerState {
    /// Notes, for the next call and for the log, that nobody waits for this one.
    fn note_gone(&self, recorder: &Recorder) {
        // Where that fails, the next call is told of a waiting caller, which is the safe side.
        if let Some(lane) = &self.lane {
            _ = lane.caller_gone();
        }
        if let Some(seq) = self.seq {
            _ = recorder.gone(seq);
        }
    }
}

/// Lives while the caller waits. Dropped before there is an answer, it notes that the caller left.
struct Waiting {
    driver: Arc<Driver>,
    caller: Arc<Caller>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut caller = self.caller.lock();
        if !caller.answered {
            caller.gone = true;
            // Two short writes, right here: a call that follows at once has to see them.
            caller.note_gone(&self.driver.recorder);
        }
    }
}
