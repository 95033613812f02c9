//! Whether the caller of a call still waits.
//!
//! Owns: the mark that a caller left, and the count of calls on their way. Promises: that a caller
//! left is in the log before the next call begins; a caller that was answered is never marked.
//! Never: ends a call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::gate::Pass;
use crate::log::Recorder;

/// Shared by the task that runs a call and the future that its caller waits on.
#[derive(Default)]
pub(crate) struct Caller(Mutex<CallerState>);

#[derive(Default)]
struct CallerState {
    /// The number of the call; `None` before its beginning.
    seq: Option<u64>,
    pass: Option<Box<dyn Pass>>,
    answered: bool,
    gone: bool,
}

impl Caller {
    fn lock(&self) -> MutexGuard<'_, CallerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call has begun.
    pub fn begun(&self, recorder: &Recorder, seq: u64, pass: Option<Box<dyn Pass>>) {
        let mut state = self.lock();
        (state.seq, state.pass) = (Some(seq), pass);
        if state.gone {
            state.record_gone(recorder);
        }
    }

    /// The call's end is in the log: the next call may begin.
    pub fn ended(&self) {
        let pass = self.lock().pass.take();
        drop(pass);
    }
}

impl CallerState {
    /// Marks, for the gate and in the log, that the caller left.
    fn record_gone(&self, recorder: &Recorder) {
        if let Some(pass) = &self.pass {
            pass.caller_gone();
        }
        if let Some(seq) = self.seq {
            // If this fails, the caller seems to wait still, which is the safe side.
            _ = recorder.gone(seq);
        }
    }
}

/// If it is dropped before the answer, it records that the caller left.
pub(crate) struct CallerGuard {
    pub recorder: Arc<Recorder>,
    pub caller: Arc<Caller>,
}

impl CallerGuard {
    pub fn answered(self) {
        self.caller.lock().answered = true;
    }
}

impl Drop for CallerGuard {
    fn drop(&mut self) {
        let mut caller = self.caller.lock();
        if !caller.answered {
            caller.gone = true;
            // Synchronously, so that the next call sees the marks.
            caller.record_gone(&self.recorder);
        }
    }
}

/// Counts a call as on its way until this is dropped.
pub(crate) struct InFlightGuard(watch::Sender<usize>);

impl InFlightGuard {
    pub fn enter(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
