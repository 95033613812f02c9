//! The service's own configuration.

use std::time::Duration;

use berth_contract::decode::{Decode, Decoder};
use berth_contract::decode_struct;
use serde_json::Value;

/// What may be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Claims worked on at once.
    pub max_in_flight: usize,
    /// How often everything is looked through, whatever was seen to change.
    pub rescan: Duration,
    /// How long calls under way may go on after the shutdown; what is not done by then is taken
    /// over from its record.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_in_flight: 256, rescan: Duration::from_secs(5), drain: Duration::from_secs(5) }
    }
}

struct Fields {
    max_in_flight: Option<u32>,
    rescan_ms: Option<u64>,
    drain_ms: Option<u64>,
}
decode_struct!(Fields { max_in_flight, rescan_ms, drain_ms });

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
        let sound = decoder.demand(
            self.max_in_flight != Some(0),
            "watcher.max_in_flight",
            "must be at least 1",
        ) & decoder.demand(
            rescan >= Duration::from_millis(10),
            "watcher.rescan_ms",
            "must be at least 10",
        );
        let in_flight = self.max_in_flight.and_then(|many| usize::try_from(many).ok());
        sound.then_some(Config {
            max_in_flight: in_flight.unwrap_or(default.max_in_flight),
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
        let input = json!({"watcher": {"max_in_flight": 0, "rescan_ms": 1, "speed": 2}});
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["watcher.speed", "watcher.max_in_flight", "watcher.rescan_ms"]);
    }
}
