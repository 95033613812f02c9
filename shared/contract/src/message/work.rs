//! `work.checkpoint`: a volumewatcher reports what came of a call, and asks for the next one.
//!
//! **Owns** the question, which is the same for a claim, for a change of a volume at its storage
//! and for a snapshot, and the answer; and the older form of both, `volume.checkpoint`.

use std::collections::BTreeMap;

use berth_domain::volume::{
    CallFailure, CallOwner, CreatedVolume, CutSnapshot, ErrorCode, FailureFacts, HoldingProcess,
    Outcome, State, StorageAnswer,
};
use berth_domain::{AllocId, AttemptId, GrpcCode, SnapshotId, Timestamp, VolumeId, WorkerId};
use serde::{Deserialize, Serialize};

use super::call::{Call, StorageCall};
use crate::shorten::shorten;
use crate::trace::TraceContext;
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
decode_struct!(FailureFacts { code, rpc, grpc, node, processes = Vec::new(), next, crashes = 0 });
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
    pub call: Option<Call>,
    /// When to send this request again at the latest, if there is no call to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
}

/// `volume.checkpoint`: a volumewatcher reports the outcome of its call, if it made one, and asks
/// for the next call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageCheckpoint {
    /// The volume.
    pub volume: VolumeId,
    /// The snapshot; absent for the volume's own operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// The volumewatcher that makes the calls.
    pub worker: WorkerId,
    /// The outcome of its call; absent if it made none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<StorageReport>,
    /// Whether something changed that may let a failed call succeed: its next try is made at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early: bool,
    /// Whether the worker has no room for another call now: then no call is begun, so that no
    /// deadline runs while it waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub report_only: bool,
}
decode_struct!(StorageCheckpoint {
    volume,
    snapshot,
    worker,
    report,
    early = false,
    report_only = false,
});

/// The outcome of a call of the storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageReport {
    /// The attempt that made the call.
    pub attempt: AttemptId,
    /// The outcome.
    pub outcome: WorkOutcome,
    /// The error, if the call did not succeed. A longer one is cut at 1024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the plugin returned, if the call succeeded and returns anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<StorageAnswer>,
}
decode_struct!(StorageReport { attempt, outcome, error, answer });
decode_variants!(StorageAnswer {
    "volume" => Volume(CreatedVolume),
    "capacity" => Capacity { bytes, node_expansion_required },
    "snapshot" => Snapshot(CutSnapshot),
    "group" => Group { external_id, ready = false, snapshots },
});
decode_struct!(CutSnapshot {
    external_id,
    source,
    size_bytes = 0,
    cut_at,
    ready = false,
    usable_from = Vec::new(),
});
decode_struct!(CreatedVolume {
    external_id,
    capacity_bytes = 0,
    context = BTreeMap::new(),
    topologies = Vec::new(),
    is_copy = false,
    unusable
});

impl StorageReport {
    /// A report of this outcome. An older claim service knows the failure in words only.
    pub fn new(attempt: AttemptId, outcome: Outcome) -> Self {
        let WorkReport { attempt, outcome, error, answer, .. } = WorkReport::new(attempt, outcome);
        Self { attempt, outcome, error, answer }
    }

    /// The outcome reported.
    pub fn into_outcome(self) -> Outcome {
        let Self { attempt, outcome, error, answer } = self;
        let failure = FailureFacts::default();
        WorkReport { attempt, outcome, error, failure, answer }.into_outcome()
    }
}

/// `volume.checkpoint` was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StorageCheckpointed {
    /// Whether the operation or snapshot still needs a call, now or later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
    /// The call to make next, once; absent if none is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<StorageCall>,
    /// When to send this request again at the latest, if there is no call to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// The trace of the operation's last change, which the spans of the call belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}
