//! The service's own configuration.

use std::time::Duration;

use berth_contract::decode::{Decode, Decoder};
use berth_contract::decode_struct;
use serde_json::Value;

/// The settings of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Most requests to the claim service in progress at once.
    pub max_in_flight: usize,
    /// Most calls in progress for each plugin's controller, and for each plugin on each node.
    /// Claims whose last call failed have as many of their own, so that hung calls do not delay the
    /// others.
    pub per_plugin: usize,
    /// Mean time between early tries of a claim, which changes cause. A few may follow each other
    /// at once.
    pub early: Duration,
    /// How often all claims are checked, whether or not a change was seen.
    pub rescan: Duration,
    /// How long calls in progress may continue after the shutdown. A later call is taken over from
    /// its record.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_in_flight: 256,
            per_plugin: 128,
            early: Duration::from_secs(15),
            rescan: Duration::from_secs(5),
            drain: Duration::from_secs(5),
        }
    }
}

struct Fields {
    max_in_flight: Option<u32>,
    per_plugin: Option<u32>,
    early_ms: Option<u64>,
    rescan_ms: Option<u64>,
    drain_ms: Option<u64>,
}
decode_struct!(Fields { max_in_flight, per_plugin, early_ms, rescan_ms, drain_ms });

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let fields = decoder.field::<Option<Fields>>(&mut object, "watcher");
        decoder.finish(&object, &["nats", "log", "telemetry", "watcher"]);
        match fields? {
            Some(fields) => fields.check(decoder),
            None => Some(Self::default()),
        }
    }
}

impl Fields {
    fn check(self, decoder: &mut Decoder) -> Option<Config> {
        let default = Config::default();
        let rescan = self.rescan_ms.map_or(default.rescan, Duration::from_millis);
        let early = self.early_ms.map_or(default.early, Duration::from_millis);
        let count = |count: Option<u32>| count.and_then(|count| usize::try_from(count).ok());
        let sound = decoder.demand(
            self.max_in_flight != Some(0),
            "watcher.max_in_flight",
            "must be at least 1",
        ) & decoder.demand(
            self.per_plugin != Some(0),
            "watcher.per_plugin",
            "must be at least 1",
        ) & decoder.demand(
            early >= Duration::from_millis(100),
            "watcher.early_ms",
            "must be at least 100",
        ) & decoder.demand(
            rescan >= Duration::from_millis(10),
            "watcher.rescan_ms",
            "must be at least 10",
        );
        sound.then_some(Config {
            max_in_flight: count(self.max_in_flight).unwrap_or(default.max_in_flight),
            per_plugin: count(self.per_plugin).unwrap_or(default.per_plugin),
            early,
            rescan,
            drain: self.drain_ms.map_or(default.drain, Duration::from_millis),
        })
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::decode::{Unknown, decode};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_default_stands_and_nonsense_is_named() {
        assert_eq!(decode::<Config>(json!({}), Unknown::Fault).unwrap(), Config::default());
        let input = json!({"watcher": {
            "max_in_flight": 0, "per_plugin": 0, "early_ms": 9, "rescan_ms": 1, "speed": 2,
        }});
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        let expected = ["speed", "max_in_flight", "per_plugin", "early_ms", "rescan_ms"];
        assert_eq!(paths, expected.map(|field| format!("watcher.{field}")));
    }
}
