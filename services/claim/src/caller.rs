//! Whom a request is from, and until when it is answered.

use berth_contract::actor::Actor;
use berth_contract::trace::TraceContext;
use berth_domain::NodeId;
use tokio::time::Instant;

/// The context of a request: all but what it asks for.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who sent it.
    pub actor: Option<Actor>,
    pub trace: TraceContext,
    pub deadline: Instant,
}

impl Caller {
    /// As records and events name the sender.
    pub fn by(&self) -> Option<String> {
        self.actor.as_ref().map(Actor::tokens)
    }

    /// The node that the sender acts for, if it acts for one.
    pub fn own_node(&self) -> Option<NodeId> {
        self.actor.as_ref().and_then(Actor::node).cloned()
    }
}
