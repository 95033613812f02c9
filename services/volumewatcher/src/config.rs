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

struct Fields {
    max_in_flight: u32,
    rescan_ms: u64,
    drain_ms: u64,
}
decode_struct!(Fields { max_in_flight = 256, rescan_ms = 5_000, drain_ms = 5_000 });

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let watcher = decoder.field::<Option<Fields>>(&mut object, "watcher");
        decoder.finish(&object, &["nats", "log", "watcher"]);
        let fields =
            watcher?.unwrap_or(Fields { max_in_flight: 256, rescan_ms: 5_000, drain_ms: 5_000 });
        let mut sound = true;
        for (field, holds) in
            [("max_in_flight", fields.max_in_flight > 0), ("rescan_ms", fields.rescan_ms >= 10)]
        {
            if !holds {
                sound = false;
                decoder.at(format!(".watcher.{field}"), |decoder| decoder.fault("is too small"));
            }
        }
        sound.then_some(Self {
            max_in_flight: usize::try_from(fields.max_in_flight).ok()?,
            rescan: Duration::from_millis(fields.rescan_ms),
            drain: Duration::from_millis(fields.drain_ms),
        })
    }
}
