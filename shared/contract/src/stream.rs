//! The streams that are no buckets.
//!
//! **Owns** the event stream's name, subjects and bounds. Events tell people and programs what
//! happened; no service decides by them, so the stream may lose its last second in a power cut.

use std::time::Duration;

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
