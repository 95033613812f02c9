//! The context of a request: its sender and its deadline.

use berth_contract::actor::Actor;
use berth_contract::trace::TraceContext;
use berth_domain::NodeId;
use tokio::time::Instant;

/// What is known of a request besides its body.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The sender; none if it is unknown.
    pub actor: Option<Actor>,
    pub trace: TraceContext,
    pub deadline: Instant,
}

impl Caller {
    /// The name of the sender in records and events.
    pub fn by(&self) -> Option<String> {
        self.actor.as_ref().map(Actor::tokens)
    }

    /// The node that the sender acts for, if it acts for one.
    pub fn own_node(&self) -> Option<NodeId> {
        self.actor.as_ref().and_then(Actor::node).cloned()
    }
}
