//! What an agent has the registry write for it: its node's lease, and its events.
//!
//! An agent may write no stream itself. A node's identity can be stolen, and nats-server publishes
//! the answer to a write at any subject that the writer names, also at the key of a record.
//!
//! **Never** lets a node write for another node: the registry compares the sender.

use berth_domain::{NodeId, limits};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decode::{Decode, Decoder};
use crate::event::Event;
use crate::lease::Holder;
use crate::service::NODE_AGENT;
use crate::trace::TraceContext;
use crate::{decode_leaf, decode_struct};

/// Most events in one `node.tell`.
pub const TOLD_MAX: usize = 64;
/// Characters of a holder's texts. A host's name and the ids are far shorter.
const HOLDER_CHARS_MAX: usize = 256;

/// `node.hold`: takes the lease of the sender's node, or renews it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The agent.
    pub holder: Holder,
    /// How long the lease lives without renewal, in seconds.
    pub ttl_s: u64,
    /// Only if the lease's key is still at this revision: that of this agent's own lease, or of a
    /// value that it takes over. None: only if nobody holds the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<u64>,
}
decode_leaf!(Holder);
decode_struct!(Hold { holder, ttl_s, over });

impl Hold {
    /// What is wrong with it, by field.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let Holder { agent, hostname, boot_id, .. } = &self.holder;
        for (field, text) in
            [("holder.agent", agent), ("holder.hostname", hostname), ("holder.boot_id", boot_id)]
        {
            if text.chars().count() > HOLDER_CHARS_MAX {
                faults.push((field, format!("has more than {HOLDER_CHARS_MAX} characters")));
            }
        }
        let longest = limits::LEASE_TTL_MAX.as_secs();
        if !(1..=longest).contains(&self.ttl_s) {
            faults.push(("ttl_s", format!("is {}; it must be 1 to {longest}", self.ttl_s)));
        }
        faults
    }
}

/// `node.hold` was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// The agent holds the lease, at this revision of its key.
    ByYou(u64),
    /// It does not: the key has this value.
    ByAnother(FoundLease),
    /// It does not, and nobody else does: the key was at another revision.
    ByNobody,
}

/// The value of a lease that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLease {
    /// Its revision.
    pub revision: u64,
    /// As it is stored: an agent's [`Holder`], or what somebody wrote by hand.
    pub value: String,
    /// Whether it ends by itself. A value that was written by hand does not.
    pub has_ttl: bool,
}

/// `node.yield`: gives the lease up, if its key is still at this revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yield {
    /// The node.
    pub node: NodeId,
    /// The revision of the agent's last renewal.
    pub revision: u64,
}
decode_struct!(Yield { node, revision });

/// `node.yield` was done; again is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yielded {}

/// `node.tell`: events of the sender's node, oldest first, at most [`TOLD_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tell {
    /// The events.
    pub events: Vec<ToldEvent>,
}
decode_struct!(Tell { events });

/// An event, and the trace that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldEvent {
    /// The event.
    pub event: Event,
    /// The trace and the span in it.
    pub traceparent: TraceContext,
}
decode_struct!(ToldEvent { event, traceparent });

/// An event of an agent. Any other is refused: agents tell of mounts, calls and plugins.
impl Decode for Event {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let event: Self = decoder.leaf(value)?;
        let is_of_agents = event.event.is_of_agents();
        decoder.demand(is_of_agents, "event", "is no event that agents tell");
        decoder.demand(event.service == NODE_AGENT.name, "service", "is not the node agent");
        (is_of_agents && event.service == NODE_AGENT.name).then_some(event)
    }
}

/// `node.tell` was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// How many of the events are stored. The others exceed the node's share of the stream.
    pub stored: usize,
}

#[cfg(test)]
mod tests {
    use berth_domain::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::decode::{Unknown, decode};
    use crate::event::EventName;
    use crate::service::CLAIM;

    #[test]
    fn an_agent_tells_what_agents_see_and_nothing_else() {
        let at = Timestamp::from_unix_ms(1);
        let mounted = Event::new(EventName::VolumeMounted, at, NODE_AGENT);
        let tell = |event: &Event| {
            let event =
                json!({"event": event, "traceparent": TraceContext::begin(&mut rand::rng())});
            decode::<Tell>(json!({"events": [event]}), Unknown::Ignore)
        };
        assert!(tell(&mounted).is_ok());
        for forged in [
            Event::new(EventName::ClaimTaken, at, NODE_AGENT),
            Event::new(EventName::NodeGone, at, NODE_AGENT),
            Event::new(EventName::VolumeMounted, at, CLAIM),
        ] {
            let faults = tell(&forged).unwrap_err();
            assert!(faults[0].path.starts_with("events[0].event."), "{faults:?}");
        }
    }

    #[test]
    fn a_lease_is_bounded_in_time_and_size() {
        let holder = Holder {
            node: NodeId::new("n1").unwrap(),
            agent: "a".to_owned(),
            hostname: "h".repeat(HOLDER_CHARS_MAX),
            boot_id: String::new(),
            pid: 1,
            since: Timestamp::from_unix_ms(1),
        };
        let hold = Hold { holder, ttl_s: 10, over: None };
        assert_eq!(hold.faults(), []);
        let agent = "a".repeat(HOLDER_CHARS_MAX + 1);
        let bad = Hold { holder: Holder { agent, ..hold.holder }, ttl_s: 0, over: None };
        let fields: Vec<_> = bad.faults().into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["holder.agent", "ttl_s"]);
    }
}
