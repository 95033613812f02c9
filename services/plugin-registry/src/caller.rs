//! Whom a request is from, when it came, and until when it is answered.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::{NodeId, Timestamp};
use tokio::time::Instant;

/// The context of a request: all but what it asks for.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The node that the sender acts for, if it acts for one.
    pub node: Option<NodeId>,
    /// When it came, by this host's clock: a node's clock is measured by it.
    pub at: Timestamp,
    /// Whether it came after its caller's deadline, by the caller's clock. The clock of a node that
    /// is behind makes all its requests late.
    pub is_late: bool,
    pub trace: TraceContext,
    /// When nothing is written for it any more.
    pub deadline: Instant,
}

impl Caller {
    /// The node that the sender acts for. Refuses a sender that acts for none.
    pub fn sending_node(&self) -> Result<&NodeId, Problem> {
        self.node
            .as_ref()
            .ok_or_else(|| Problem::new(Code::NotAllowed, "only the agent of a node may send this"))
    }

    /// How long is left until the deadline.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}
