//! The streams that are no buckets, and which service owns each stream.
//!
//! **Owns** the event stream's name, subjects and bounds. Events tell people and programs what
//! happened; no service decides by them, so the stream may lose its last second in a power cut.

use std::time::Duration;

use crate::bucket::{ALL, BUCKETS, LEASES};
use crate::service::{CLAIM, PLUGIN_REGISTRY, ServiceName};

/// A stream as it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamSpec {
    /// The stream's name.
    pub name: &'static str,
    /// What a person reads in `nats stream ls`.
    pub description: &'static str,
    /// What it keeps.
    pub subjects: &'static [&'static str],
    /// Messages older than this go.
    pub max_age: Duration,
    /// The oldest go beyond this size, in bytes.
    pub max_bytes: i64,
    /// Whether writes may be synced later (on one server): right only for what may be lost.
    pub asynchronous: bool,
}

/// What happened to every volume, claim, plugin, node and alloc, in order.
pub const EVENTS: StreamSpec = StreamSpec {
    name: "BERTH_EVENTS",
    description: "What happened to volumes, claims, allocs, plugins and nodes, in order",
    subjects: &["berth.v1.event.>"],
    max_age: Duration::from_secs(7 * 24 * 3600),
    max_bytes: 256 * 1024 * 1024,
    asynchronous: true,
};

/// The service that corrects the words of a stream. Each opens its own at its start.
pub fn stream_owner(stream: &str) -> Option<ServiceName> {
    let bucket = stream.strip_prefix("KV_");
    match bucket {
        Some(name) if name == LEASES.name => Some(PLUGIN_REGISTRY),
        Some(name) if name == BUCKETS.name => Some(CLAIM),
        Some(name) => {
            let spec = ALL.iter().find(|spec| spec.name == name)?;
            [CLAIM, PLUGIN_REGISTRY].into_iter().find(|service| service.short() == spec.writer)
        }
        None => (stream == EVENTS.name).then_some(PLUGIN_REGISTRY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::SETTINGS;

    /// A service of the last version must know that these words are newer.
    #[test]
    fn changed_words_have_a_new_number() {
        let mut words = vec![EVENTS.description];
        for spec in ALL.iter().chain([&BUCKETS]) {
            words.extend([spec.description, spec.writer]);
            assert!(stream_owner(&format!("KV_{}", spec.name)).is_some(), "{}", spec.name);
        }
        // FNV-1a, so that the words do not stand here a second time.
        let hash = words.join("\n").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let known = (1, 3_213_625_469_596_467_749);
        assert_eq!((SETTINGS, hash), known, "raise SETTINGS, and enter the new hash here");
        assert_eq!(stream_owner(EVENTS.name), Some(PLUGIN_REGISTRY));
        assert_eq!(stream_owner("KV_other").or(stream_owner("other")), None);
    }
}
