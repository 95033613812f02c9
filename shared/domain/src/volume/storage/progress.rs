//! How far the calls of an operation or a snapshot have come, and what they may have done.

use serde::{Deserialize, Serialize};

use crate::volume::attempt::{Attempt, CallKind};
use crate::volume::command::{Context, Outcome};
use crate::volume::failure::CallFailure;
use crate::volume::progress::Progress;
use crate::{NodeId, WorkerId};

/// The calls of one operation or snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StorageProgress {
    /// The calls.
    #[serde(flatten)]
    pub calls: Progress,
    /// Whether an earlier call may have done its work. Only a call that succeeds ends the doubt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// The node whose controller got the earlier calls. While they are uncertain the next call goes
    /// there, too: a controller may know the storage of its own host only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<NodeId>,
    /// The attempt is a call of what was replaced: of a smaller expansion, of an operation before a
    /// deletion, of the poll of a snapshot before its deletion. Its answer says nothing of the
    /// present work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inherited: bool,
}

impl StorageProgress {
    /// The progress of what replaces this. A call of this may still act, and its executor may be at
    /// work afterwards: rules 3 and 4 need to know.
    pub(super) fn replaced(&self) -> Self {
        let attempt = self.calls.attempt.clone();
        Self {
            inherited: attempt.is_some(),
            calls: Progress {
                tries: u32::from(self.calls.is_unsettled()),
                attempt,
                ..Progress::default()
            },
            ..Self::default()
        }
    }

    /// A new progress that says why the last call of the one before did not succeed.
    pub(super) fn failed(failure: CallFailure) -> Self {
        Self { calls: Progress::failed(failure), ..Self::default() }
    }

    /// Removes the attempt of what was replaced, if the outcome says that its call is over.
    pub(super) fn end_inherited(&mut self, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Unanswered(_)) {
            self.calls.attempt = None;
            self.inherited = false;
        }
    }

    /// Whether the storage was called, or may have been.
    pub(super) fn may_have_acted(&self) -> bool {
        self.uncertain || self.calls.attempt.is_some()
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
        let attempt = Attempt::new(call, worker, context);
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
