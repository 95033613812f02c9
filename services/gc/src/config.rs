//! The service's own configuration.

use std::time::Duration;

use berth_contract::decode::{Decode, Decoder};
use berth_contract::decode_struct;
use berth_contract::message::collect::Kind;
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The shortest time from one sweep to the next.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The settings: `[gc]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How long no collector leads after the leader was killed.
    pub lease_ttl: Duration,
    /// `[gc]` itself.
    pub claims: Pace,
    /// `[gc.allocs]`.
    pub allocs: Pace,
    /// `[gc.nodes]`.
    pub nodes: Pace,
    /// `[gc.plugins]`.
    pub plugins: Pace,
}

/// The pace at which one kind is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Time from one sweep to the next, plus or minus a quarter.
    pub interval: Duration,
    /// The age that a candidate must have. For claims: how long the volumewatcher has to release
    /// the claim first.
    pub after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let pace_of = |interval, after| Pace { interval, after };
        Self {
            lease_ttl: Duration::from_secs(10),
            claims: pace_of(MINUTE, MINUTE / 2),
            allocs: pace_of(5 * MINUTE, 4 * HOUR),
            nodes: pace_of(5 * MINUTE, 24 * HOUR),
            plugins: pace_of(5 * MINUTE, HOUR),
        }
    }
}

impl Config {
    /// The pace of this kind.
    pub fn pace(&self, kind: Kind) -> Pace {
        match kind {
            Kind::Claims => self.claims,
            Kind::Allocs => self.allocs,
            Kind::Nodes => self.nodes,
            Kind::Plugins => self.plugins,
        }
    }
}

#[derive(Default)]
struct Fields {
    interval_ms: Option<u64>,
    grace_ms: Option<u64>,
    lease_ttl_s: Option<u64>,
    allocs: Option<PaceFields>,
    nodes: Option<PaceFields>,
    plugins: Option<PaceFields>,
}
decode_struct!(Fields { interval_ms, grace_ms, lease_ttl_s, allocs, nodes, plugins });

#[derive(Default)]
struct PaceFields {
    interval_ms: Option<u64>,
    after_ms: Option<u64>,
}
decode_struct!(PaceFields { interval_ms, after_ms });

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let fields = decoder.field::<Option<Fields>>(&mut object, "gc");
        decoder.finish(&object, &["nats", "log", "telemetry", "gc"]);
        fields?.unwrap_or_default().check(decoder)
    }
}

impl Fields {
    fn check(self, decoder: &mut Decoder) -> Option<Config> {
        let default = Config::default();
        let claims = PaceFields { interval_ms: self.interval_ms, after_ms: self.grace_ms };
        let lease_ttl = self.lease_ttl_s.map_or(default.lease_ttl, Duration::from_secs);
        // The server counts the TTL of a key in whole seconds. No standby should wait for longer
        // than a day.
        let range = Duration::from_secs(1)..=Duration::from_secs(86_400);
        let is_valid = range.contains(&lease_ttl);
        let is_valid = decoder.demand(is_valid, "gc.lease_ttl_s", "must be 1 to 86400");
        let claims = claims.check(default.claims, "gc", decoder);
        let mut own = |fields: Option<PaceFields>, default, table: &str| {
            fields.unwrap_or_default().check(default, table, decoder)
        };
        let allocs = own(self.allocs, default.allocs, "gc.allocs");
        let nodes = own(self.nodes, default.nodes, "gc.nodes");
        let plugins = own(self.plugins, default.plugins, "gc.plugins");
        is_valid.then_some(Config {
            lease_ttl,
            claims: claims?,
            allocs: allocs?,
            nodes: nodes?,
            plugins: plugins?,
        })
    }
}

impl PaceFields {
    fn check(self, default: Pace, table: &str, decoder: &mut Decoder) -> Option<Pace> {
        let ms = |field: Option<u64>, default| field.map_or(default, Duration::from_millis);
        let interval = ms(self.interval_ms, default.interval);
        let path = format!("{table}.interval_ms");
        let sound = decoder.demand(interval >= INTERVAL_MIN, &path, "must be at least 100");
        sound.then_some(Pace { interval, after: ms(self.after_ms, default.after) })
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::decode::{Unknown, decode};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_defaults_stand_and_every_fault_is_named() {
        let input = json!({"gc": {"grace_ms": 0, "nodes": {"after_ms": 5}}});
        let config = decode::<Config>(input, Unknown::Fault).unwrap();
        let default = Config::default();
        let expected = Config {
            claims: Pace { after: Duration::ZERO, ..default.claims },
            nodes: Pace { after: Duration::from_millis(5), ..default.nodes },
            ..default
        };
        assert_eq!(config, expected);
        assert_eq!(decode::<Config>(json!({}), Unknown::Fault).unwrap(), default);
        let input = json!({"gc": {"interval_ms": 1, "lease_ttl_s": 0, "speed": 9,
            "allocs": {"interval_ms": 99, "grace_ms": 1}}});
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        let expected = [
            "gc.allocs.grace_ms",
            "gc.speed",
            "gc.lease_ttl_s",
            "gc.interval_ms",
            "gc.allocs.interval_ms",
        ];
        assert_eq!(paths, expected);
    }
}
