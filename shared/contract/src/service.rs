//! The services as micro services: the names that `nats micro ls` shows.

use std::collections::BTreeMap;

use crate::bucket;

/// The page that explains every service and verb, from the top of the repository.
pub const PAGE: &str = "docs/contract.md";

/// A service's name and what a person reads about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceName {
    /// The name.
    pub name: &'static str,
    /// In one line.
    pub description: &'static str,
    /// The key, or keys, that it writes in the bucket of leases.
    pub lease: Option<&'static str>,
}

impl ServiceName {
    /// The name without the product's: `claim`.
    pub fn short(&self) -> &'static str {
        self.name.trim_start_matches("berth-")
    }

    /// What it writes: buckets, each with this one writer, and its own lease.
    pub fn writes(&self) -> Vec<String> {
        let buckets = bucket::ALL.iter().filter(|bucket| bucket.writer == self.short());
        let lease = self.lease.map(|key| format!("{} {key}", bucket::LEASES.name));
        buckets.map(|bucket| bucket.name.to_owned()).chain(lease).collect()
    }

    /// Facts for people who look with `nats micro info`.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let writes = match self.writes() {
            none if none.is_empty() => "nothing".to_owned(),
            some => some.join(", "),
        };
        let reference = format!("{PAGE}#{}", self.name);
        BTreeMap::from([("writes".to_owned(), writes), ("reference".to_owned(), reference)])
    }
}

/// The services that read records.
pub const READERS: [ServiceName; 4] = [CLAIM, PLUGIN_REGISTRY, VOLUMEWATCHER, GC];

/// Every service.
pub const ALL: [ServiceName; 7] =
    [CLAIM, PLUGIN_REGISTRY, VOLUMEWATCHER, GC, NODE_AGENT, CONTROLLER, DOCKER];

/// Volumes, claims and allocs.
pub const CLAIM: ServiceName = ServiceName {
    name: "berth-claim",
    description: "Registers volumes, grants claims, records every transition",
    lease: Some("owner.>"),
};
/// Plugins and nodes.
pub const PLUGIN_REGISTRY: ServiceName = ServiceName {
    name: "berth-plugin-registry",
    description: "Knows plugins and nodes, and what can run where",
    lease: Some("node.*"),
};
/// Releases, and changes at the storage.
pub const VOLUMEWATCHER: ServiceName = ServiceName {
    name: "berth-volumewatcher",
    description: "Drives every release, and every change of volumes and snapshots at the storage",
    lease: None,
};
/// Collection.
pub const GC: ServiceName = ServiceName {
    name: "berth-gc",
    description: "Finds claims of dead allocs and other things nobody else saw",
    lease: Some("leader.gc"),
};
/// Node agents.
pub const NODE_AGENT: ServiceName = ServiceName {
    name: "berth-node-agent",
    description: "Stages and publishes volumes on its node",
    lease: None,
};
/// A controller that an agent hosts: one per healthy controller instance.
pub const CONTROLLER: ServiceName = ServiceName {
    name: "berth-controller",
    description: "A plugin's controller, hosted by the agent beside it",
    lease: None,
};
/// Docker's volume plugin, one on each host with an engine.
pub const DOCKER: ServiceName = ServiceName {
    name: "berth-docker",
    description: "Docker's volume plugin on its node, a client of the others",
    lease: None,
};
