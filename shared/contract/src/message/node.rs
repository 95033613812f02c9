//! What an agent has the registry write for it: its node's lease, and its events.
//!
//! An agent may write no stream itself. A node's identity can be stolen, and nats-server publishes
//! the answer to a write at any subject that the writer names, also at the key of a record.
//!
//! **Never** lets a node write for another node: the registry compares the sender.

use berth_domain::{NodeId, limits};
use serde::{Deserialize, Serialize};

use crate::decode::Fault;
use crate::decode_struct;
use crate::event::Event;
use crate::lease::Holder;
use crate::service::NODE_AGENT;
use crate::trace::TraceContext;

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
    /// The number of this request among those of the agent's process, which grows with each. Absent
    /// from an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<u64>,
}
decode_struct!(Holder {
    node,
    agent,
    hostname = String::new(),
    boot_id = String::new(),
    pid,
    since,
});
decode_struct!(Hold { holder, ttl_s, over, renewal });

impl Hold {
    /// What is wrong with it, by field.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut add = |path: &str, problem| {
            faults.push(Fault { path: path.to_owned(), problem, line: None });
        };
        let Holder { agent, hostname, boot_id, .. } = &self.holder;
        for (field, text) in
            [("holder.agent", agent), ("holder.hostname", hostname), ("holder.boot_id", boot_id)]
        {
            if text.chars().count() > HOLDER_CHARS_MAX {
                add(field, format!("has more than {HOLDER_CHARS_MAX} characters"));
            }
        }
        let longest = limits::LEASE_TTL_MAX.as_secs();
        if !(1..=longest).contains(&self.ttl_s) {
            add("ttl_s", format!("is {}; it must be 1 to {longest}", self.ttl_s));
        }
        faults
    }
}

/// `node.hold` was answered. Without a revision and a lease that was found, the key was at another
/// revision, and nobody holds the lease any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeaseAnswer {
    /// The agent holds the lease, at this revision of its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// It does not: the key has this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<FoundLease>,
    /// The incarnation of the volumes bucket, if records may be missing in it. When it is a new
    /// one, the agent compares what is mounted with the claims at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<u64>,
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
pub struct TellEvents {
    /// The events.
    pub events: Vec<ToldEvent>,
}
decode_struct!(TellEvents { events });

/// An event, and the trace that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldEvent {
    /// The event.
    pub event: Event,
    /// The trace and the span in it.
    pub traceparent: TraceContext,
}
decode_struct!(ToldEvent { event, traceparent });

impl TellEvents {
    /// What is wrong with it, by field. Agents tell of mounts, calls and plugins alone.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut add = |path, problem| faults.push(Fault { path, problem, line: None });
        let count = self.events.len();
        if count > TOLD_MAX {
            add("events".to_owned(), format!("has {count} entries; at most {TOLD_MAX} are taken"));
        }
        for (at, ToldEvent { event, .. }) in self.events.iter().enumerate() {
            if !event.event.is_of_agents() || event.service != NODE_AGENT.name {
                let problem = format!("{} is no event that agents tell", event.event);
                add(format!("events[{at}].event"), problem);
            }
        }
        faults
    }
}

/// `node.tell` was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvents {
    /// How many of the events are stored. The others exceed the node's share of the stream.
    pub stored: usize,
}

#[cfg(test)]
mod tests {
    use berth_domain::Timestamp;

    use super::*;
    use crate::event::EventName;
    use crate::service::CLAIM;

    #[test]
    fn an_agent_tells_what_agents_see_and_nothing_else() {
        let at = Timestamp::from_unix_ms(1);
        let mounted = Event::new(EventName::VolumeMounted, at, NODE_AGENT);
        let traceparent = TraceContext::begin(&mut rand::rng());
        let tell = |event: Event| TellEvents { events: vec![ToldEvent { event, traceparent }] };
        assert_eq!(tell(mounted.clone()).faults(), []);
        for forged in [
            Event::new(EventName::ClaimTaken, at, NODE_AGENT),
            Event::new(EventName::NodeGone, at, NODE_AGENT),
            Event::new(EventName::VolumeMounted, at, CLAIM),
        ] {
            assert_eq!(tell(forged).faults()[0].path, "events[0].event");
        }
        let many = vec![tell(mounted).events.remove(0); TOLD_MAX + 1];
        assert_eq!(TellEvents { events: many }.faults()[0].path, "events");
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
        let hold = Hold { holder, ttl_s: 10, over: None, renewal: None };
        assert_eq!(hold.faults(), []);
        let agent = "a".repeat(HOLDER_CHARS_MAX + 1);
        let bad = Hold { holder: Holder { agent, ..hold.holder }, ttl_s: 0, ..hold };
        let fields: Vec<_> = bad.faults().into_iter().map(|fault| fault.path).collect();
        assert_eq!(fields, ["holder.agent", "ttl_s"]);
    }
}
