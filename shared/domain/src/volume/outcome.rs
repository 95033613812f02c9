//! What came of a call.

use std::collections::BTreeMap;

use super::call::CallFailure;
use super::storage::StorageAnswer;

/// The outcome of a call, as the protocol distinguishes them (rules 5 and 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done {
        /// The controller's `publish_context`; empty for other calls.
        publish_context: BTreeMap<String, String>,
    },
    /// The plugin answered with an error: the call did nothing, and a retry never will.
    Refused(CallFailure),
    /// The plugin answered with an error: the call may have done something, and a retry may
    /// succeed.
    Failed(CallFailure),
    /// The plugin answered with an error: this call did nothing, and a retry may succeed. What an
    /// earlier call did stays in doubt.
    NotDone(CallFailure),
    /// It succeeded, and the storage answered this.
    Stored(StorageAnswer),
    /// The plugin was not called. An earlier call for the volume may still act.
    Unasked(CallFailure),
    /// The plugin has no room for the volume now (`RESOURCE_EXHAUSTED`).
    Exhausted(CallFailure),
    /// There was no answer: the call may still act.
    Unanswered(CallFailure),
}
