//! The tree: what `berth trace --json` prints.

use berth_contract::message::query::RefusedRequest;
use berth_domain::volume::State;
use berth_domain::{AllocId, AttemptId, Namespace, NodeId, Timestamp, VolumeId};
use serde::Serialize;

/// Claims, newest last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// When it was looked at.
    pub at: Timestamp,
    /// Other claims of the same allocs on the same volumes, which are not in the tree.
    pub left_out: usize,
    /// Events before this time are gone, by age or size; none when all are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<Timestamp>,
    /// The claims.
    pub claims: Vec<Claim>,
    /// Requests about them that were refused, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedRequest>,
}

/// A claim, from its first word to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// Whose claim.
    pub alloc: AllocId,
    /// Its node, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Which claim of the alloc, while it lives.
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

/// Taking a claim, or releasing it: each is one trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// The trace's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// When it began, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// How long it took, or how long it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// Whether it was granted or freed.
    pub how: How,
    /// Whether its first events are gone or lost.
    pub begins_before: bool,
    /// What was done, in order.
    pub steps: Vec<Step>,
}

/// The outcome of a step so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It took no time that is known.
    #[default]
    Happened,
    /// It succeeded.
    Done,
    /// It did not succeed, or was given up; the detail says why.
    Failed,
    /// No event names its outcome, and another attempt took its place.
    Abandoned,
    /// It is not over.
    UnderWay,
    /// No event names its outcome.
    NotTold,
    /// A time without events.
    Quiet,
}

/// One thing that was done, or happened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Step {
    /// The call, the RPC or the event.
    pub name: String,
    /// When it began. If the beginning of an attempt is not known, the first event of it.
    pub at: Timestamp,
    /// How long it took, or how long it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// How it ended.
    pub how: How,
    /// Where it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Which attempt it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// The process that made the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Whether another worker made the attempt before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub taken_over: bool,
    /// Until when an attempt that is under way may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// gRPC's code of a plugin's answer; `NO_ANSWER` when there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it failed, or what else was said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How long after this the next attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_after_us: Option<u64>,
    /// What it was made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

impl Step {
    /// Something of which nothing more is said yet.
    pub(super) fn new(name: impl Into<String>, at: Timestamp, how: How) -> Self {
        Self { name: name.into(), at, how, ..Self::default() }
    }

    /// When it was over, or is.
    pub(super) fn end(&self) -> Timestamp {
        later(self.at, self.took_us.unwrap_or_default())
    }
}

/// So many microseconds from one time to another.
pub(super) fn between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.since(from).as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn later(at: Timestamp, us: u64) -> Timestamp {
    at.after(std::time::Duration::from_micros(us))
}

pub(super) fn earlier(at: Timestamp, us: u64) -> Timestamp {
    at.before(std::time::Duration::from_micros(us))
}
