//! The services as micro services: the names that `nats micro ls` shows.

/// A service's name and what a person reads about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceName {
    /// The name.
    pub name: &'static str,
    /// In one line.
    pub description: &'static str,
}

/// Volumes, claims and allocs.
pub const CLAIM: ServiceName = ServiceName {
    name: "berth-claim",
    description: "Registers volumes, grants claims, records every transition",
};
/// Plugins and nodes.
pub const PLUGIN_REGISTRY: ServiceName = ServiceName {
    name: "berth-plugin-registry",
    description: "Knows plugins and nodes, and what can run where",
};
/// Releases.
pub const VOLUMEWATCHER: ServiceName = ServiceName {
    name: "berth-volumewatcher",
    description: "Drives every release: unpublish, unstage, controller unpublish, free",
};
/// Collection.
pub const GC: ServiceName = ServiceName {
    name: "berth-gc",
    description: "Finds claims of dead allocs and other things nobody else saw",
};
/// Node agents.
pub const NODE_AGENT: ServiceName = ServiceName {
    name: "berth-node-agent",
    description: "Stages and publishes volumes on its node",
};
/// A controller that an agent hosts: one per healthy controller instance.
pub const CONTROLLER: ServiceName = ServiceName {
    name: "berth-controller",
    description: "A plugin's controller, hosted by the agent beside it",
};
