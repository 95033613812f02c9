//! What the record says of a call that starts, and of one that did not succeed (rules 2 and 5).

use crate::retry::Schedule;
use crate::volume::storage::StorageProgress;
use crate::volume::{Attempt, CallFailure, CallKind, Context, Outcome, Progress};
use crate::{NodeId, Timestamp, WorkerId, limits};

impl Context {
    /// A new attempt: its deadline is the call timeout from now.
    pub(super) fn new_attempt(&self, call: CallKind, worker: &WorkerId) -> Attempt {
        Attempt {
            id: self.attempt.clone(),
            call,
            worker: worker.clone(),
            deadline: self.now.after(self.policy.call_timeout),
            bound: None,
        }
    }

    /// When the next call is due, after so many that did not succeed.
    pub(super) fn next_try(&self, tries: u32) -> Timestamp {
        self.now.after(self.policy.retry.wait(tries, self.jitter))
    }

    /// The same after calls under which the plugin's process ended. Each further one ends the calls
    /// for other volumes, too, so it is made less and less often.
    fn next_try_after_crashes(&self, crashes: u32) -> Timestamp {
        let retry = self.policy.retry;
        let rare = Schedule { max: retry.max.max(limits::CRASH_RETRY_MAX), ..retry };
        self.now.after(rare.wait(crashes, self.jitter))
    }
}

impl Progress {
    /// Records a call that did not succeed, and when the next one is due.
    pub(super) fn fail(&mut self, mut failure: CallFailure, context: &Context) {
        self.tries = self.tries.saturating_add(1);
        if let Some(before) = &self.failure {
            failure.facts.add_crashes(&before.facts);
        }
        let after_crashes = context.next_try_after_crashes(failure.facts.crashes);
        self.next_try = Some(context.next_try(self.tries).max(after_crashes));
        self.failure = Some(Box::new(failure));
    }
}

impl StorageProgress {
    /// Removes the attempt of what was replaced, if the outcome says that its call is over.
    pub(super) fn end_inherited(&mut self, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Unanswered(_)) {
            self.calls.attempt = None;
            self.inherited = false;
        }
    }

    /// Starts a call. An earlier call without an answer may have done its work.
    pub(super) fn start(
        &mut self,
        call: CallKind,
        worker: &WorkerId,
        executor: Option<&NodeId>,
        context: &Context,
    ) -> Attempt {
        self.uncertain |= self.calls.attempt.is_some() && !self.inherited;
        self.inherited = false;
        if !self.uncertain {
            self.executor = executor.cloned();
        }
        let attempt = context.new_attempt(call, worker);
        self.calls.start(attempt.clone());
        attempt
    }

    /// Records a call that did not succeed. An attempt that was not answered stays.
    pub(super) fn fail(&mut self, outcome: &Outcome, context: &Context) {
        let (failure, uncertain) = match outcome {
            // Recorded before: an attempt starts without a next try.
            Outcome::Unanswered(_) if self.calls.ahead(context.now).is_some() => return,
            Outcome::Unanswered(failure) | Outcome::Failed(failure) => (failure.clone(), true),
            Outcome::Refused(failure)
            | Outcome::NotDone(failure)
            | Outcome::Exhausted(failure)
            | Outcome::Unasked(failure) => (failure.clone(), false),
            Outcome::Done { .. } | Outcome::Stored(_) => {
                ("the plugin did not answer what was asked".into(), true)
            }
        };
        if !matches!(outcome, Outcome::Unanswered(_)) {
            self.calls.attempt = None;
        }
        self.uncertain |= uncertain;
        self.calls.fail(failure, context);
    }
}
