//! The KV buckets, each with one writer.
//!
//! **Owns** names, descriptions, history and marker lifetimes.
//!
//! **Promises** that only the claim service names the bucket of volumes in order to write: there
//! may be several such buckets some day.

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
    /// How many tokens of a key name the subtree that its writes are guarded over; 0 when the guard
    /// is over the key alone. The newest marker of such a subtree stays (decision 0022).
    pub guard_tokens: usize,
    /// How many writes have to follow a delete before it leaves for good (decision 0030).
    pub purged_after: u64,
}

impl BucketSpec {
    /// The filter that guards writes of this key cover.
    pub fn guard_filter(&self, key: &str) -> String {
        let Some(last) = self.guard_tokens.checked_sub(1) else { return key.to_owned() };
        let end = key.match_indices('.').nth(last);
        end.map_or_else(|| key.to_owned(), |(at, _)| format!("{}.>", &key[..at]))
    }
}

const HOUR: Duration = Duration::from_secs(3600);
/// As many writes as fill a file of the server: 8 MiB, of at least 128 bytes each.
const WRITES_PER_FILE: u64 = 65_536;

/// Volumes: a spec and one key per claim, `<ns>.<vol>.spec` and `<ns>.<vol>.claim.<alloc>`; and
/// `=handle.<plugin>.<external id>` for each volume of a plugin, so that none is registered twice.
pub const VOLUMES: BucketSpec = BucketSpec {
    name: "berth-volumes",
    description: "Volumes and their claims: <ns>.<vol>.spec, <ns>.<vol>.claim.<alloc>",
    writer: "claim",
    history: 8,
    marker_ttl: HOUR,
    guard_tokens: 2,
    purged_after: WRITES_PER_FILE,
};

/// Allocs: which alloc runs on which node, or has ended, `<ns>.<alloc>`.
pub const ALLOCS: BucketSpec = BucketSpec {
    name: "berth-allocs",
    description: "Allocs: one placed run of a workload on a node, <ns>.<alloc>",
    writer: "claim",
    history: 4,
    marker_ttl: HOUR,
    guard_tokens: 0,
    purged_after: WRITES_PER_FILE,
};

/// Secrets of volumes, each giving under an id of its own that the volume's spec names.
pub const SECRETS: BucketSpec = BucketSpec {
    name: "berth-secrets",
    description: "Secrets of volumes, sealed for the claim service: <ns>.<vol>.<id>",
    writer: "claim",
    history: 1,
    marker_ttl: HOUR,
    guard_tokens: 0,
    purged_after: WRITES_PER_FILE,
};

/// Plugins: `<plugin>.instance.<node>.<type>` and `<plugin>.job.<ns>.<job>`; a plugin is the fold
/// of its keys.
pub const PLUGINS: BucketSpec = BucketSpec {
    name: "berth-plugins",
    description: "Plugins: <plugin>.instance.<node>.<type>, <plugin>.job.<ns>.<job>",
    writer: "plugin-registry",
    history: 4,
    marker_ttl: HOUR,
    guard_tokens: 0,
    purged_after: WRITES_PER_FILE,
};

/// Nodes: `<node>`.
pub const NODES: BucketSpec = BucketSpec {
    name: "berth-nodes",
    description: "Nodes that run an agent: address, version, clock skew; alive is in berth-leases",
    writer: "plugin-registry",
    history: 4,
    marker_ttl: HOUR,
    guard_tokens: 0,
    purged_after: WRITES_PER_FILE,
};

/// Leases: `node.<node>`, `owner.<ns>.<owner>` and `leader.<service>`; history 1, because more
/// would lengthen every TTL.
pub const LEASES: BucketSpec = BucketSpec {
    name: "berth-leases",
    description: "Leases that expire: node.<node>, owner.<ns>.<owner>, leader.<service>",
    writer: "plugin-registry for nodes, claim for owners, gc for its leader",
    history: 1,
    marker_ttl: HOUR,
    guard_tokens: 0,
    purged_after: WRITES_PER_FILE,
};

/// The record of which buckets were made: one key per bucket. A bucket that is on record and not
/// there was deleted (decision 0023).
pub const BUCKETS: BucketSpec = BucketSpec {
    name: "berth-buckets",
    description: "Which buckets were made, and when: <bucket>; see docs/backup.md",
    writer: "the process that opens a bucket first",
    history: 8,
    marker_ttl: HOUR,
    guard_tokens: 0,
    purged_after: WRITES_PER_FILE,
};

/// Every bucket of records.
pub const ALL: [BucketSpec; 6] = [VOLUMES, ALLOCS, SECRETS, PLUGINS, NODES, LEASES];

/// Raised when the description of a bucket or stream, or what its metadata says, changes. A service
/// corrects the words of an older number, and leaves those of a newer one.
pub const SETTINGS: u32 = 1;

/// Buckets whose content shows that this one was made before: their writers open it before they
/// write anything. For installations of before [`BUCKETS`].
pub fn implied_by(name: &str) -> &'static [&'static str] {
    const CLAIM: &[&str] = &[VOLUMES.name, ALLOCS.name, SECRETS.name];
    const REGISTRY: &[&str] = &[VOLUMES.name, ALLOCS.name, SECRETS.name, PLUGINS.name, NODES.name];
    match name {
        _ if CLAIM.contains(&name) => CLAIM,
        _ if name == PLUGINS.name || name == NODES.name => REGISTRY,
        _ if name == LEASES.name => &[PLUGINS.name, NODES.name],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_covers_the_volume_or_the_key() {
        assert_eq!(VOLUMES.guard_filter("ns.vol.claim.a"), "ns.vol.>");
        assert_eq!(VOLUMES.guard_filter("ns.vol"), "ns.vol");
        assert_eq!(ALLOCS.guard_filter("ns.a"), "ns.a");
    }
}
