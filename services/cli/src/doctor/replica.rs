//! What one replica of a service answers to `$SRV.STATS`.

use std::collections::BTreeMap;

use berth_contract::code::Code;
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
}

/// One endpoint of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EndpointStats {
    /// Its name.
    pub name: String,
    /// The last problem that it answered: code and message.
    #[serde(default)]
    pub last_error: String,
    /// The rest.
    #[serde(default)]
    pub data: EndpointData,
}

/// Berth's own part of an endpoint's statistics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct EndpointData {
    /// Requests in progress.
    #[serde(default)]
    pub in_flight: u64,
    /// The most that may be in progress.
    #[serde(default)]
    pub max_in_flight: u64,
    /// When it last answered a problem.
    #[serde(default)]
    pub last_error_at: Option<Timestamp>,
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
        Code::ALL.iter().find(|known| known.as_str() == code).copied()
    }

    /// Whether every place for a request is taken.
    pub fn is_full(&self) -> bool {
        self.data.max_in_flight > 0 && self.data.in_flight >= self.data.max_in_flight
    }
}
