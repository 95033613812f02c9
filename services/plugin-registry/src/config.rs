//! The service's own configuration.

use std::time::Duration;

use berth_contract::decode::{Decode, Decoder};
use berth_contract::decode_struct;
use serde_json::Value;

/// What may be configured: `[registry]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How often all nodes are compared with their leases, whatever was seen or missed.
    pub rescan: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { rescan: Duration::from_secs(30) }
    }
}

struct Fields {
    rescan_ms: u64,
}
decode_struct!(Fields { rescan_ms = 30_000 });

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let fields = decoder.field::<Option<Fields>>(&mut object, "registry");
        decoder.finish(&object, &["nats", "log", "telemetry", "registry"]);
        let Some(fields) = fields? else { return Some(Self::default()) };
        let sound =
            decoder.demand(fields.rescan_ms >= 100, "registry.rescan_ms", "must be at least 100");
        sound.then(|| Self { rescan: Duration::from_millis(fields.rescan_ms) })
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
        let input = json!({"registry": {"rescan_ms": 1, "rescan": 2}, "gc": {}});
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["registry.rescan", "gc", "registry.rescan_ms"]);
    }
}
