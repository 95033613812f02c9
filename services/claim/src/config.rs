//! The service's own configuration.

use std::path::PathBuf;
use std::time::Duration;

use berth_contract::decode::{Decode, Decoder};
use berth_contract::decode_struct;
use berth_domain::limits;
use berth_domain::retry::Schedule;
use berth_domain::volume::Policy;
use serde_json::Value;

/// The configuration of the service. All replicas must have the same policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Timeouts and intervals.
    pub policy: Policy,
    /// The file with the keys for which secrets are sealed; without it no volume has secrets.
    pub key_file: Option<PathBuf>,
    /// How long requests may still run after the shutdown.
    pub drain: Duration,
}

#[expect(clippy::struct_field_names, reason = "the unit stands last in every name")]
struct PolicyFields {
    call_timeout_ms: u64,
    clock_margin_ms: u64,
    abandoned_after_ms: u64,
    place_kept_ms: u64,
    retry_first_ms: u64,
    retry_max_ms: u64,
}
decode_struct!(PolicyFields {
    call_timeout_ms = ms(limits::CALL_TIMEOUT),
    clock_margin_ms = ms(limits::CLOCK_MARGIN),
    abandoned_after_ms = ms(limits::ABANDONED_AFTER),
    place_kept_ms = ms(limits::PLACE_KEPT),
    retry_first_ms = ms(limits::RETRY_FIRST),
    retry_max_ms = ms(limits::RETRY_MAX),
});

struct SecretsFields {
    key_file: Option<String>,
}
decode_struct!(SecretsFields { key_file });

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let policy = decoder.field::<Option<PolicyFields>>(&mut object, "policy");
        let secrets = decoder.field::<Option<SecretsFields>>(&mut object, "secrets");
        let drain_ms = decoder.field::<Option<u64>>(&mut object, "drain_ms");
        decoder.finish(&object, &["nats", "log", "telemetry", "policy", "secrets", "drain_ms"]);
        let policy = match policy? {
            Some(fields) => fields.check(decoder)?,
            None => Policy::default(),
        };
        let key_file = secrets?.and_then(|secrets| secrets.key_file).map(PathBuf::from);
        Some(Self { policy, key_file, drain: Duration::from_millis(drain_ms?.unwrap_or(10_000)) })
    }
}

impl PolicyFields {
    fn check(self, decoder: &mut Decoder) -> Option<Policy> {
        let (timeout, margin) = (self.call_timeout_ms, self.clock_margin_ms);
        let (first, max) = (self.retry_first_ms, self.retry_max_ms);
        let longest = u64::try_from(limits::CALL_TIMEOUT_MAX.as_millis()).unwrap_or(u64::MAX);
        let sound = decoder.demand(timeout >= 100, "policy.call_timeout_ms", "is below 100")
            & decoder.demand(timeout <= longest, "policy.call_timeout_ms", "is more than an hour")
            & decoder.demand(
                (1..timeout).contains(&margin),
                "policy.clock_margin_ms",
                "must be at least 1 and less than call_timeout_ms",
            )
            & decoder.demand(self.place_kept_ms >= 100, "policy.place_kept_ms", "is below 100")
            & decoder.demand(first >= 1, "policy.retry_first_ms", "must be at least 1")
            & decoder.demand(first <= max, "policy.retry_max_ms", "is less than retry_first_ms");
        sound.then(|| Policy {
            call_timeout: Duration::from_millis(self.call_timeout_ms),
            clock_margin: Duration::from_millis(self.clock_margin_ms),
            abandoned_after: Duration::from_millis(self.abandoned_after_ms),
            place_kept: Duration::from_millis(self.place_kept_ms),
            retry: Schedule {
                first: Duration::from_millis(self.retry_first_ms),
                max: Duration::from_millis(self.retry_max_ms),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::decode::{Unknown, decode};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_that_contradicts_itself_is_refused_with_every_fault() {
        let input = json!({"policy": {"call_timeout_ms": 50, "clock_margin_ms": 60,
            "retry_first_ms": 9, "retry_max_ms": 3}});
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(
            paths,
            ["policy.call_timeout_ms", "policy.clock_margin_ms", "policy.retry_max_ms"]
        );
        let input = json!({"policy": {"call_timeout_ms": 3_600_001}});
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        assert_eq!(faults[0].path, "policy.call_timeout_ms");
        let config = decode::<Config>(json!({}), Unknown::Fault).unwrap();
        assert_eq!(config.policy, Policy::default());
    }
}
