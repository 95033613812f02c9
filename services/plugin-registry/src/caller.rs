//! The context of a request: its sender, its receipt and its deadline.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::{NodeId, Timestamp};
use tokio::time::Instant;

/// What is known of a request besides its body.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The node that the sender acts for, if it acts for one.
    pub node: Option<NodeId>,
    /// When the request was received, by this host's clock. A node's clock is compared with it.
    pub at: Timestamp,
    /// Whether the request was received after its caller's deadline, by the caller's clock. If a
    /// node's clock is behind, all its requests are late.
    pub is_late: bool,
    pub trace: TraceContext,
    /// Nothing is written for the request after this time.
    pub deadline: Instant,
}

impl Caller {
    /// The node that the sender acts for. Refuses a sender that acts for none.
    pub fn sending_node(&self) -> Result<&NodeId, Problem> {
        self.node
            .as_ref()
            .ok_or_else(|| Problem::new(Code::NotAllowed, "only the agent of a node may send this"))
    }

    /// The time that is left until the deadline.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}
