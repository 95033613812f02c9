//! The service's own configuration.

use std::time::Duration;

use berth_contract::decode::{Decode, Decoder};
use berth_contract::decode_struct;
use serde_json::Value;

/// What may be configured: `[gc]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// From one sweep to the next, give or take a quarter.
    pub interval: Duration,
    /// How long others may take to see what has ended, before it is collected or named.
    pub grace: Duration,
    /// How long the leader's place stays empty when it is killed.
    pub lease_ttl: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            grace: Duration::from_secs(30),
            lease_ttl: Duration::from_secs(10),
        }
    }
}

struct Fields {
    interval_ms: Option<u64>,
    grace_ms: Option<u64>,
    lease_ttl_s: Option<u64>,
}
decode_struct!(Fields { interval_ms, grace_ms, lease_ttl_s });

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let fields = decoder.field::<Option<Fields>>(&mut object, "gc");
        decoder.finish(&object, &["nats", "log", "telemetry", "gc"]);
        match fields? {
            Some(fields) => fields.check(decoder),
            None => Some(Self::default()),
        }
    }
}

impl Fields {
    fn check(self, decoder: &mut Decoder) -> Option<Config> {
        let default = Config::default();
        let ms = |given: Option<u64>, default| given.map_or(default, Duration::from_millis);
        let interval = ms(self.interval_ms, default.interval);
        let lease_ttl = self.lease_ttl_s.map_or(default.lease_ttl, Duration::from_secs);
        // The server counts the TTL of a key in seconds, and a day is more than any standby waits.
        let range = Duration::from_secs(1)..=Duration::from_secs(86_400);
        let sound =
            decoder.demand(
                interval >= Duration::from_millis(100),
                "gc.interval_ms",
                "must be at least 100",
            ) & decoder.demand(range.contains(&lease_ttl), "gc.lease_ttl_s", "must be 1 to 86400");
        sound.then_some(Config { interval, grace: ms(self.grace_ms, default.grace), lease_ttl })
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::decode::{Unknown, decode};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_defaults_stand_and_every_fault_is_named() {
        let config = decode::<Config>(json!({"gc": {"grace_ms": 0}}), Unknown::Fault).unwrap();
        assert_eq!(config, Config { grace: Duration::ZERO, ..Config::default() });
        let input = json!({"gc": {"interval_ms": 1, "lease_ttl_s": 0, "speed": 9}});
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["gc.speed", "gc.interval_ms", "gc.lease_ttl_s"]);
    }
}
