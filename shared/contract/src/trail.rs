//! The spans of a claim's life, written down beside it.
//!
//! A claim outlives every process that works on it, and a span is emitted once, when it ends.
//! So the identities of the long ones are made when they begin and stand on the record: whatever is
//! killed meanwhile, the next process goes on below them and nothing is left without a parent.
//!
//! ```text
//! trace of the claim     parent ── claim ── attempt of controller.publish ── the executor's spans
//! trace of its release   release ── attempt of agent.detach, of controller.unpublish ── …
//! ```
//!
//! **Promises** that a release is one trace, linked to its claim's, however many workers it takes.
//!
//! **Never** decides anything: a record without a trail is as good as one with it.

use berth_domain::Timestamp;
use serde::{Deserialize, Serialize};

use crate::trace::{SpanId, TraceContext};

/// The spans of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trail {
    /// The span from the claim's first word to its grant.
    pub claim: TraceContext,
    /// The span of the caller, if it is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// When it was asked for.
    pub since: Timestamp,
    /// The span from giving the claim up to its end: the root of a trace of its own.
    pub release: TraceContext,
    /// When it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<Timestamp>,
    /// The span of the attempt on the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<TraceContext>,
}

impl Trail {
    /// The span that what is done for the claim now is part of.
    pub fn now(&self) -> TraceContext {
        if self.released.is_some() { self.release } else { self.claim }
    }
}
