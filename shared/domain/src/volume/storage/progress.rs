//! How far the calls of an operation or a snapshot have come.

use serde::{Deserialize, Serialize};

use crate::volume::attempt::{Attempt, CallKind};
use crate::volume::claim::is_zero;
use crate::volume::command::{Context, Outcome};
use crate::volume::failure::CallFailure;
use crate::{NodeId, Timestamp, WorkerId};

/// The calls of one operation or snapshot. The order of the fields is for people (see `Claim`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Calls that did not succeed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// When the next call is due. Absent while a call is under way, or if it is due at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// Why the last call that did not succeed did not.
    #[serde(flatten)]
    pub failure: Option<Box<CallFailure>>,
    /// Whether an earlier call may have done its work. Only a call that succeeds ends the doubt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// The node whose controller got the earlier calls. While they are uncertain the next call goes
    /// there, too: a controller may know the storage of its own host only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<NodeId>,
    /// The call that may be under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The attempt is a call of what was replaced: of a smaller expansion, of an operation before a
    /// deletion, of the poll of a snapshot before its deletion. Its answer says nothing of the
    /// present work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inherited: bool,
}

impl Progress {
    /// The progress of what replaces this. A call of this may still act, and its executor may be at
    /// work afterwards: rules 3 and 4 need to know.
    pub(super) fn replaced(&self) -> Self {
        Self {
            tries: u32::from(self.is_unsettled()),
            inherited: self.attempt.is_some(),
            attempt: self.attempt.clone(),
            ..Self::default()
        }
    }

    /// A new progress that says why the last call of the one before did not succeed.
    pub(super) fn failed(failure: CallFailure) -> Self {
        Self { failure: Some(Box::new(failure)), ..Self::default() }
    }

    /// Removes the attempt of what was replaced, if the outcome says that its call is over.
    pub(super) fn end_inherited(&mut self, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Unanswered(_)) {
            self.attempt = None;
            self.inherited = false;
        }
    }

    /// Whether an earlier call may still be at work at its executor, after every deadline.
    pub fn is_unsettled(&self) -> bool {
        self.tries > 0 || self.attempt.is_some()
    }

    /// Whether the storage was called, or may have been.
    pub(super) fn may_have_acted(&self) -> bool {
        self.uncertain || self.attempt.is_some()
    }

    /// When the next call is due, if that is ahead.
    pub(super) fn ahead(&self, early: bool, context: &Context) -> Option<Timestamp> {
        self.next_try.filter(|next_try| *next_try > context.now && !early)
    }

    /// Starts a call. An earlier call without an answer may have done its work.
    pub(super) fn start(
        &mut self,
        call: CallKind,
        worker: &WorkerId,
        executor: Option<&NodeId>,
        context: &Context,
    ) -> Attempt {
        if self.attempt.is_some() {
            self.uncertain |= !self.inherited;
            self.tries = self.tries.max(1);
        }
        self.inherited = false;
        if !self.uncertain {
            self.executor = executor.cloned();
        }
        let attempt = Attempt::new(call, worker, context);
        self.attempt = Some(attempt.clone());
        self.next_try = None;
        attempt
    }

    /// Records a call that did not succeed. An attempt that was not answered stays.
    pub(super) fn fail(&mut self, outcome: &Outcome, context: &Context) {
        let (failure, uncertain) = match outcome {
            // Recorded before: an attempt starts without a next try.
            Outcome::Unanswered(_) if self.ahead(false, context).is_some() => return,
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
            self.attempt = None;
        }
        self.uncertain |= uncertain;
        self.tries = self.tries.saturating_add(1);
        self.failure = Some(Box::new(failure));
        let wait = context.policy.retry.wait(self.tries, context.jitter);
        self.next_try = Some(context.now.after(wait));
    }
}
