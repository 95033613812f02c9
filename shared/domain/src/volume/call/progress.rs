//! How far the calls of a claim, of a volume's operation or of a snapshot have come.

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::failure::{CallFailure, is_zero};
use crate::Timestamp;

/// The calls made for one owner, one after another. The order of the fields is for people (see
/// [`Claim`](crate::volume::Claim)).
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
    /// The call that may be under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

impl Progress {
    /// A new progress that says why the last call of the one before did not succeed.
    pub(in crate::volume) fn failed(failure: CallFailure) -> Self {
        Self { failure: Some(Box::new(failure)), ..Self::default() }
    }

    /// Whether an earlier call may still be at work at its executor, after every deadline.
    pub fn is_unsettled(&self) -> bool {
        self.tries > 0 || self.attempt.is_some()
    }

    /// Whether the calls seem to be the reason why the plugin's process ends.
    pub(in crate::volume) fn ends_plugin(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.facts.ends_plugin())
    }

    /// When the next call is due, if that is ahead.
    pub(in crate::volume) fn ahead(&self, now: Timestamp) -> Option<Timestamp> {
        self.next_try.filter(|next_try| *next_try > now)
    }

    /// Records the start of a call. There is no next try until it is answered. An earlier call
    /// without an answer counts as a try.
    pub(in crate::volume) fn start(&mut self, attempt: Attempt) {
        if self.attempt.is_some() {
            self.tries = self.tries.max(1);
        }
        self.attempt = Some(attempt);
        self.next_try = None;
    }
}
