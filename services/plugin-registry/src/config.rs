//! The service's own configuration.

use std::time::Duration;

use berth_contract::decode::{Decode, Decoder};
use berth_contract::decode_struct;
use serde_json::Value;

use crate::store::pace::Pace;

/// The table `[registry]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Interval at which all nodes are compared with their leases. It repairs what a lost change
    /// left.
    pub rescan: Duration,
    /// How often agents are to say that they live.
    pub pace: Pace,
}

impl Default for Config {
    fn default() -> Self {
        let pace = Pace { renewals_per_second: RENEWALS_PER_SECOND };
        Self { rescan: Duration::from_millis(RESCAN_MS), pace }
    }
}

const RESCAN_MS: u64 = 30_000;
const RENEWALS_PER_SECOND: u32 = 50;

struct Fields {
    rescan_ms: u64,
    renewals_per_second: u32,
}
decode_struct!(Fields {
    rescan_ms = RESCAN_MS,
    renewals_per_second = RENEWALS_PER_SECOND,
});

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let fields = decoder.field::<Option<Fields>>(&mut object, "registry");
        decoder.finish(&object, &["nats", "log", "telemetry", "registry"]);
        let Some(Fields { rescan_ms, renewals_per_second }) = fields? else {
            return Some(Self::default());
        };
        let mut sound =
            decoder.demand(rescan_ms >= 100, "registry.rescan_ms", "must be at least 100");
        sound &= decoder.demand(
            renewals_per_second >= 1,
            "registry.renewals_per_second",
            "must be at least 1",
        );
        let (rescan, pace) = (Duration::from_millis(rescan_ms), Pace { renewals_per_second });
        sound.then_some(Self { rescan, pace })
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
        let input = json!({
            "registry": {"rescan_ms": 1, "rescan": 2, "renewals_per_second": 0}, "gc": {},
        });
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        let wrong = ["registry.rescan", "gc", "registry.rescan_ms", "registry.renewals_per_second"];
        assert_eq!(paths, wrong);
    }
}
