//! What one replica of a service answers to `$SRV.STATS`.

use std::collections::BTreeMap;

use berth_bus::event::KeptCounts;
use berth_contract::code::Code;
use berth_contract::message::access::AccessReport;
use berth_domain::{NodeId, Timestamp};
use serde::Deserialize;

/// One replica, one node's agent, or one hosted controller.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Replica {
    /// Its id in `nats micro ls`.
    pub id: String,
    /// Its version.
    pub version: String,
    /// Its worker or node, and its clock's skew.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Its endpoints.
    #[serde(default)]
    pub endpoints: Vec<EndpointStats>,
    /// What its identity lacks; none if it lacks nothing.
    #[serde(default)]
    pub access: Option<AccessReport>,
    /// The buckets whose writes nats-server does not store, in words.
    #[serde(default)]
    pub store_faults: Vec<String>,
    /// Its events that nats-server refused.
    #[serde(default)]
    pub events: KeptCounts,
}

/// One endpoint of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EndpointStats {
    /// Its name.
    pub name: String,
    /// The last problem that it answered: code and message.
    #[serde(default)]
    pub last_error: String,
    /// Berth's own part of the endpoint's statistics.
    #[serde(default)]
    pub data: EndpointData,
}

/// Berth's own part of an endpoint's statistics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct EndpointData {
    /// Requests at work.
    #[serde(default)]
    pub in_flight: u64,
    /// Bounds: requests at work, and requests that wait.
    #[serde(default)]
    pub max_in_flight: u64,
    /// Requests that wait for a turn or a change.
    #[serde(default)]
    pub waiting: u64,
    /// Bound of requests of one sender, at work and waiting.
    #[serde(default)]
    pub max_per_sender: Option<u64>,
    /// The sender with the most.
    #[serde(default)]
    pub busiest: Option<BusiestSender>,
    /// When it last answered a problem.
    #[serde(default)]
    pub last_error_at: Option<Timestamp>,
}

/// The sender with the most requests in progress at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BusiestSender {
    /// Its actor, such as `user.anna`.
    pub sender: String,
    /// Its requests in progress at the endpoint.
    pub requests: u64,
}

impl Replica {
    /// How far its clock is ahead of nats-server's, once measured.
    pub fn clock_skew_ms(&self) -> Option<i64> {
        self.metadata.get("clock_skew_ms")?.parse().ok()
    }

    /// The node of an agent.
    pub fn node(&self) -> Option<NodeId> {
        NodeId::new(self.metadata.get("node")?.as_str()).ok()
    }

    /// Its worker's name, or else its id.
    pub fn name(&self) -> &str {
        self.metadata.get("worker").map_or(&self.id, |worker| worker)
    }
}

impl EndpointStats {
    /// The code of the last problem.
    pub fn last_code(&self) -> Option<Code> {
        let (code, _) = self.last_error.split_once(':')?;
        Code::ALL.iter().find(|listed_code| listed_code.as_str() == code).copied()
    }

    /// Names the bounds of requests that are reached.
    pub fn describe_full(&self) -> Option<String> {
        let Self { name, data, .. } = self;
        let max = data.max_in_flight;
        let is_full = |taken: u64| max > 0 && taken >= max;
        if is_full(data.in_flight) {
            return Some(format!(
                "endpoint {name} has {max} requests in progress, the most it takes"
            ));
        }
        if is_full(data.waiting) {
            return Some(format!("endpoint {name} has {max} requests waiting, the most it holds"));
        }
        let BusiestSender { sender, requests } = data.busiest.as_ref()?;
        let is_at_share = data.max_per_sender.is_some_and(|share| *requests >= share);
        is_at_share.then(|| {
            format!("endpoint {name} has {requests} requests of {sender}, the most of one sender")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn reached_bounds_of_an_endpoint_are_described() {
        let full = |data: Value| {
            let data = serde_json::from_value(data).unwrap();
            let endpoint =
                EndpointStats { name: "alloc-wait".to_owned(), last_error: String::new(), data };
            endpoint.describe_full()
        };
        let with = |more: Value| {
            let mut data = json!({"in_flight": 1, "max_in_flight": 8,
                "waiting": 1, "max_per_sender": 2,
                "busiest": {"sender": "user.bob", "requests": 1}});
            data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            full(data)
        };
        assert_eq!(with(json!({})), None);
        assert_eq!(full(json!({})), None, "of an older service");
        let of = |more: Value| with(more).unwrap();
        let working = of(json!({"in_flight": 8}));
        assert!(working.contains("8 requests in progress"), "{working}");
        let waiting = of(json!({"waiting": 8}));
        assert!(waiting.contains("8 requests waiting"), "{waiting}");
        let busiest = json!({"busiest": {"sender": "user.bob", "requests": 2}});
        assert!(of(busiest.clone()).contains("2 requests of user.bob"), "{}", of(busiest));
    }
}
