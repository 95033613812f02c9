//! The tree: what `berth trace --json` prints.

use std::collections::BTreeSet;

use berth_contract::message::query::RefusedRequest;
use berth_domain::volume::State;
use berth_domain::{AllocId, AttemptId, Namespace, NodeId, SnapshotId, Timestamp, VolumeId};
use serde::Serialize;

/// Claims, newest last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// The time of the reads.
    pub at: Timestamp,
    /// Other claims of the same allocs on the same volumes, which are not in the tree.
    pub left_out: usize,
    /// Events before this time are gone, by age or size; none when all are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<Timestamp>,
    /// The claims.
    pub claims: Vec<Claim>,
    /// Changes of volumes and snapshots at their storage, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<StorageChange>,
    /// Refused requests about these claims, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedRequest>,
}

/// A claim, from its first event to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// The alloc that holds or held the claim.
    pub alloc: AllocId,
    /// Its node, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The claim's epoch, while the claim exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Its state, while it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Taking it.
    pub claim: Phase,
    /// Releasing it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Phase>,
}

/// A change of a volume or a snapshot at its storage, from its request to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StorageChange {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// The snapshot, if the change is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// The last word of its first event: `creating`, `expanding`, …
    pub what: String,
    /// Its events. The trace is that of the request; each call has a trace of its own.
    #[serde(flatten)]
    pub phase: Phase,
    /// The traces of all its events.
    #[serde(skip)]
    pub traces: BTreeSet<String>,
}

/// The claim's take or its release: each is one trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// The trace's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The time of the start, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The duration, or the time since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// Whether it was granted or freed.
    pub how: StepOutcome,
    /// Whether its first events are gone or lost.
    pub begins_before: bool,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// The outcome of a step so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepOutcome {
    /// A moment without a duration.
    #[default]
    Happened,
    /// It succeeded.
    Done,
    /// It failed, or was given up; the detail has the reason.
    Failed,
    /// No event has its outcome, and another attempt replaced it.
    Abandoned,
    /// It is running.
    UnderWay,
    /// No event has its outcome.
    NotTold,
    /// A time without events.
    Quiet,
}

/// A step or an event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Step {
    /// The call, the RPC or the event.
    pub name: String,
    /// The time of the start. If an attempt's start is unknown, the time of its first event.
    pub at: Timestamp,
    /// The duration, or the time since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// How it ended.
    pub how: StepOutcome,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Which attempt it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// The process that made the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Whether another worker made the previous attempt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub taken_over: bool,
    /// The time until which a running attempt may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The gRPC code of a plugin's answer; `NO_ANSWER` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The reason of a failure, or other details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How long after this the next attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_after_us: Option<u64>,
    /// The parts of the step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

impl Step {
    /// A step without details yet.
    pub(super) fn new(name: impl Into<String>, at: Timestamp, how: StepOutcome) -> Self {
        Self { name: name.into(), at, how, ..Self::default() }
    }

    /// The time of the end; for a running step, that of the reads.
    pub(super) fn end(&self) -> Timestamp {
        later(self.at, self.took_us.unwrap_or_default())
    }
}

/// The microseconds from one time to another.
pub(super) fn between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.since(from).as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn later(at: Timestamp, us: u64) -> Timestamp {
    at.after(std::time::Duration::from_micros(us))
}

pub(super) fn earlier(at: Timestamp, us: u64) -> Timestamp {
    at.before(std::time::Duration::from_micros(us))
}
