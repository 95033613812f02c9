//! `work.checkpoint`: a volumewatcher reports what came of a call, and asks for the next one.
//!
//! **Owns** the question, which is the same for a claim, for a change of a volume at its storage
//! and for a snapshot, and the answer.

use std::collections::BTreeMap;

use berth_domain::volume::{
    CallFailure, CallKind, CallOwner, ErrorCode, FailureFacts, HoldingProcess, Outcome, State,
    StorageAnswer,
};
use berth_domain::{
    AllocId, AttemptId, GrpcCode, NodeId, PluginId, SnapshotId, Timestamp, VolumeId, VolumeKey,
    WorkerId,
};
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::storage_call::StorageCall;
use crate::shorten::shorten;
use crate::{decode_leaf, decode_struct, decode_variants};

/// `work.checkpoint`: the outcome of the last call, if there was one, and the question for the
/// next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkCheckpoint {
    /// The volume.
    pub volume: VolumeId,
    /// Whose calls they are.
    pub owner: CallOwner,
    /// The worker that makes the calls.
    pub worker: WorkerId,
    /// What came of the last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<WorkReport>,
    /// Something changed that may let a call succeed that failed: its next try is not waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early: bool,
    /// The worker has no room for another call now: none is begun, so that no deadline runs while
    /// it waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub report_only: bool,
}
decode_struct!(WorkCheckpoint {
    volume,
    owner,
    worker,
    report,
    early = false,
    report_only = false,
});
decode_variants!(CallOwner {
    "claim" => Claim(AllocId),
    "volume" => Volume,
    "snapshot" => Snapshot(SnapshotId),
});

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkReport {
    /// The attempt that made the call.
    pub attempt: AttemptId,
    /// How the call ended.
    pub outcome: WorkOutcome,
    /// If the call did not succeed: why, in words. More than 1024 bytes are cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// If the call did not succeed: why, in facts.
    #[serde(default, skip_serializing_if = "FailureFacts::is_empty")]
    pub failure: FailureFacts,
    /// What the plugin returned, if the call succeeded and returns anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<StorageAnswer>,
}
decode_struct!(WorkReport { attempt, outcome, error, failure = FailureFacts::default(), answer });
decode_struct!(FailureFacts { code, rpc, grpc, node, processes = Vec::new(), next });
decode_struct!(HoldingProcess { pid, command });

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkOutcome {
    /// It succeeded.
    Done,
    /// The plugin refused it: it did nothing, and a repeated call will do nothing.
    Refused,
    /// The plugin answered with an error: this call did nothing, and a repeated call may succeed.
    NotDone,
    /// The plugin answered with an error: the call may have done something.
    Failed,
    /// The storage has no room for it now, and it did nothing.
    Exhausted,
    /// The plugin was not called for this attempt.
    Unasked,
    /// There was no answer: the call may still do something.
    Unanswered,
}
decode_leaf!(WorkOutcome, ErrorCode, GrpcCode);

impl WorkCheckpoint {
    /// The question for the next call, without a report.
    pub fn new(volume: VolumeId, owner: CallOwner, worker: WorkerId) -> Self {
        Self { volume, owner, worker, report: None, early: false, report_only: false }
    }
}

impl WorkReport {
    /// A report of this outcome. A worker's calls have no publish context. A plugin's error is as
    /// long as a request takes it: a report that is refused would never be recorded.
    pub fn new(attempt: AttemptId, outcome: Outcome) -> Self {
        let (outcome, failure, answer) = match outcome {
            Outcome::Done { .. } => (WorkOutcome::Done, None, None),
            Outcome::Stored(answer) => (WorkOutcome::Done, None, Some(answer)),
            Outcome::Refused(failure) => (WorkOutcome::Refused, Some(failure), None),
            Outcome::NotDone(failure) => (WorkOutcome::NotDone, Some(failure), None),
            Outcome::Failed(failure) => (WorkOutcome::Failed, Some(failure), None),
            Outcome::Exhausted(failure) => (WorkOutcome::Exhausted, Some(failure), None),
            Outcome::Unasked(failure) => (WorkOutcome::Unasked, Some(failure), None),
            Outcome::Unanswered(failure) => (WorkOutcome::Unanswered, Some(failure), None),
        };
        let (error, facts) = failure.map(|failure| (failure.message, failure.facts)).unzip();
        let failure = facts.unwrap_or_default();
        Self { attempt, outcome, error: error.map(shorten), failure, answer }
    }

    /// The outcome reported.
    pub fn into_outcome(self) -> Outcome {
        let message = self.error.unwrap_or_else(|| "no reason was given".to_owned());
        let failure = CallFailure { message, facts: self.failure };
        match (self.outcome, self.answer) {
            (WorkOutcome::Done, Some(answer)) => Outcome::Stored(answer),
            (WorkOutcome::Done, None) => Outcome::Done { publish_context: BTreeMap::new() },
            (WorkOutcome::Refused, _) => Outcome::Refused(failure),
            (WorkOutcome::NotDone, _) => Outcome::NotDone(failure),
            (WorkOutcome::Failed, _) => Outcome::Failed(failure),
            (WorkOutcome::Exhausted, _) => Outcome::Exhausted(failure),
            (WorkOutcome::Unasked, _) => Outcome::Unasked(failure),
            (WorkOutcome::Unanswered, _) => Outcome::Unanswered(failure),
        }
    }
}

/// `work.checkpoint` was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkCheckpointed {
    /// Whether a call is still needed, now or later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
    /// The claim's state; absent if it is freed, and for the calls of the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The call to make next, once; absent if none is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<WorkCall>,
    /// When to send this request again at the latest, if there is no call to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
}

/// A call that was recorded, to be made once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkCall {
    /// For a claim.
    Claim(Box<Call>),
    /// For the volume itself, or a snapshot.
    Storage(Box<StorageCall>),
}

impl WorkCall {
    /// The call.
    pub fn kind(&self) -> CallKind {
        match self {
            Self::Claim(call) => call.call,
            Self::Storage(call) => call.call,
        }
    }

    /// Where it is sent.
    pub fn subject(&self) -> String {
        match self {
            Self::Claim(call) => call.subject(),
            Self::Storage(call) => call.subject(),
        }
    }

    /// The volumes that it is a call of: several only for a group.
    pub fn volumes(&self) -> Vec<VolumeKey> {
        match self {
            Self::Claim(call) => vec![call.volume_key()],
            Self::Storage(call) => call.volume_keys(),
        }
    }

    /// The node whose executor has to get it; none if any controller of the plugin may.
    pub fn executor(&self) -> Option<&NodeId> {
        match self {
            Self::Claim(call) if self.kind().is_controller() => call.controller.as_ref(),
            Self::Claim(call) => Some(&call.node),
            Self::Storage(call) => call.node.as_ref(),
        }
    }

    /// Whose agents are asked before whether their controller is at an earlier call.
    pub fn ask_first(&self) -> &[NodeId] {
        match self {
            Self::Claim(call) => &call.ask_first,
            Self::Storage(call) => &call.ask_first,
        }
    }

    /// The plugin's name of what it is to create.
    pub fn creates(&self) -> Option<&str> {
        match self {
            Self::Claim(_) => None,
            Self::Storage(call) => call.work.creates(),
        }
    }

    /// The call as it is sent: only the sender uses the list of those to ask, which may be longer
    /// than a request allows. It goes to `answered` if any controller may get it.
    #[must_use]
    pub fn to_send(&self, answered: Option<NodeId>) -> Self {
        match self {
            Self::Claim(call) => {
                Self::Claim(Box::new(Call { ask_first: Vec::new(), ..(**call).clone() }))
            }
            Self::Storage(call) => {
                let node = call.node.clone().or(answered);
                let sent = StorageCall { ask_first: Vec::new(), node, ..(**call).clone() };
                Self::Storage(Box::new(sent))
            }
        }
    }

    /// The plugin that is called.
    pub fn plugin(&self) -> &PluginId {
        match self {
            Self::Claim(call) => &call.plugin,
            Self::Storage(call) => &call.plugin,
        }
    }

    /// The node whose agent gets the call, if it is not one of a controller.
    pub fn node(&self) -> Option<&NodeId> {
        let node = match self {
            Self::Claim(call) => Some(&call.node),
            Self::Storage(call) => call.node.as_ref(),
        };
        node.filter(|_| !self.kind().is_controller())
    }

    /// The attempt that it is the call of.
    pub fn attempt(&self) -> &AttemptId {
        match self {
            Self::Claim(call) => &call.attempt,
            Self::Storage(call) => &call.attempt,
        }
    }

    /// The executor does nothing after this time.
    pub fn deadline(&self) -> Timestamp {
        match self {
            Self::Claim(call) => call.deadline,
            Self::Storage(call) => call.deadline,
        }
    }
}
