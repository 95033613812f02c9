//! How far the calls of an operation or a snapshot have come, and what they may have done.

use serde::{Deserialize, Serialize};

use crate::NodeId;
use crate::volume::call::{CallFailure, Progress};

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
    pub(in crate::volume) fn replaced(&self) -> Self {
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
    pub(in crate::volume) fn failed(failure: CallFailure) -> Self {
        Self { calls: Progress::failed(failure), ..Self::default() }
    }

    /// Whether the storage was called, or may have been.
    pub(in crate::volume) fn may_have_acted(&self) -> bool {
        self.uncertain || self.calls.attempt.is_some()
    }
}
