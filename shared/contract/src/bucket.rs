//! The KV buckets, each with one writer (blueprint 4).
//!
//! **Owns** names, descriptions, history and marker lifetimes.
//!
//! **Promises** that nothing but the claim service names the bucket of volumes to write it, so that
//! there may be more than one some day.

use std::time::Duration;

/// A bucket as it is to be: `bus` makes it so at start, and reports what differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSpec {
    /// The bucket's name; its stream is `KV_<name>`.
    pub name: &'static str,
    /// What a person reads in `nats kv ls`.
    pub description: &'static str,
    /// The one service that writes it.
    pub writer: &'static str,
    /// Values kept per key, 1 to 64.
    pub history: u8,
    /// How long a delete or expiry marker stays; with it, keys may have a TTL of their own.
    pub marker_ttl: Duration,
}

const HOUR: Duration = Duration::from_secs(3600);

/// Volumes: a spec and one key per claim, `<ns>.<vol>.spec` and `<ns>.<vol>.claim.<alloc>`.
pub const VOLUMES: BucketSpec = BucketSpec {
    name: "berth-volumes",
    description: "Volumes and their claims: <ns>.<vol>.spec, <ns>.<vol>.claim.<alloc>",
    writer: "claim",
    history: 8,
    marker_ttl: HOUR,
};

/// Allocs: who runs where, terminal or not, `<ns>.<alloc>`.
pub const ALLOCS: BucketSpec = BucketSpec {
    name: "berth-allocs",
    description: "Allocs: one placed run of a workload on a node, <ns>.<alloc>",
    writer: "claim",
    history: 4,
    marker_ttl: HOUR,
};

/// Secrets of volumes, each giving under an id of its own that the volume's spec names.
pub const SECRETS: BucketSpec = BucketSpec {
    name: "berth-secrets",
    description: "Secrets of volumes, sealed for the claim service: <ns>.<vol>.<id>",
    writer: "claim",
    history: 1,
    marker_ttl: HOUR,
};

/// Plugins: `<plugin>.instance.<node>.<type>` and `<plugin>.job.<ns>.<job>`; a plugin is the fold
/// of its keys.
pub const PLUGINS: BucketSpec = BucketSpec {
    name: "berth-plugins",
    description: "Plugins: <plugin>.instance.<node>.<type>, <plugin>.job.<ns>.<job>",
    writer: "plugin-registry",
    history: 4,
    marker_ttl: HOUR,
};

/// Nodes: `<node>`.
pub const NODES: BucketSpec = BucketSpec {
    name: "berth-nodes",
    description: "Nodes that run an agent: address, version, clock skew; alive is in berth-leases",
    writer: "plugin-registry",
    history: 4,
    marker_ttl: HOUR,
};

/// Leases: `node.<node>` and `leader.<service>`; history 1, because more would lengthen every TTL.
pub const LEASES: BucketSpec = BucketSpec {
    name: "berth-leases",
    description: "Leases that expire unless renewed: node.<node>, leader.<service>",
    writer: "each its own key",
    history: 1,
    marker_ttl: HOUR,
};

/// Every bucket.
pub const ALL: [BucketSpec; 6] = [VOLUMES, ALLOCS, SECRETS, PLUGINS, NODES, LEASES];
