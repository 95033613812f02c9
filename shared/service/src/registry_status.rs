//! The answers of `plugin.status` and `node.status`, made from records; pure. The claim service
//! explains its claims by the same status.
//!
//! **Promises** that the health of an instance is derived here, from its report and its node's
//! state, and never stored (D8).

use std::collections::{BTreeMap, BTreeSet};

use berth_contract::message::registry::{InstanceStatus, JobStatus, NodeStatus, PluginStatus};
use berth_domain::plugin::{Half, Instance, Job, Node, NodeIdFault, NodeState, Plugin};
use berth_domain::{JobId, Namespace, NodeId, PluginId};

use crate::projection::{Instances, Nodes};

/// The status of a plugin with the given instances.
pub fn plugin_status(
    id: &PluginId,
    plugin: &Plugin,
    nodes: &Nodes,
    instances: Vec<InstanceStatus>,
) -> PluginStatus {
    let count = |half| plugin.count(half, |node| nodes.is_ready(node));
    // An instance that has not answered yet has no version.
    let versions = plugin.instances.values().map(|instance| &instance.version);
    let versions: BTreeSet<&String> = versions.filter(|version| !version.is_empty()).collect();
    PluginStatus {
        id: id.clone(),
        provider: provider(plugin).to_owned(),
        versions: versions.into_iter().cloned().collect(),
        controllers: plugin.has_controller().then(|| count(Half::Controller)),
        nodes: count(Half::Node),
        attaches: plugin.controller_attaches().unwrap_or(false),
        instances,
        jobs: plugin.jobs.iter().map(job_status).collect(),
    }
}

/// For each plugin, the nodes to which it gives no id of their own.
pub type NodeIdFaults<'a> = BTreeMap<&'a PluginId, BTreeMap<&'a NodeId, NodeIdFault<'a>>>;

/// The nodes that have no id of their own.
pub fn node_id_faults(plugins: &Instances) -> NodeIdFaults<'_> {
    let all = plugins.iter().map(|(id, plugin)| (id, plugin.node_id_faults()));
    all.filter(|(_, faults)| !faults.is_empty()).collect()
}

/// The node's instances of all plugins.
pub fn instances_on(
    id: &NodeId,
    node: &Node,
    plugins: &Instances,
    faults: &NodeIdFaults<'_>,
) -> Vec<InstanceStatus> {
    let fault = |plugin| faults.get(plugin).and_then(|faults| faults.get(id)).copied();
    let of_plugin = |(plugin, found)| halves_on((plugin, found), id, Some(node), fault(plugin));
    plugins.iter().flat_map(of_plugin).collect()
}

/// The instances of one plugin on a node. `fault` is that of the plugin's id of the node.
pub fn halves_on(
    (plugin, found): (&PluginId, &Plugin),
    id: &NodeId,
    node: Option<&Node>,
    fault: Option<NodeIdFault<'_>>,
) -> Vec<InstanceStatus> {
    let status = |half| {
        let instance = found.instances.get(&(id.clone(), half))?;
        Some(instance_status((plugin, id, half), instance, node, fault))
    };
    [Half::Controller, Half::Node].into_iter().filter_map(status).collect()
}

/// The status of a node with the given instances.
pub fn node_status(
    id: &NodeId,
    (node, revision): (&Node, u64),
    instances: Vec<InstanceStatus>,
) -> NodeStatus {
    NodeStatus {
        id: id.clone(),
        state: node.state,
        since: node.since,
        revision,
        clock_skew_ms: node.clock_skew_ms,
        version: node.version.clone(),
        boot_id: node.boot_id.clone(),
        attributes: node.attributes.clone(),
        gone: node.gone.clone(),
        back: node.back,
        unaccounted: node.unaccounted.clone(),
        instances,
    }
}

/// The provider's name, from a healthy instance if there is one.
pub fn provider(plugin: &Plugin) -> &str {
    let mut instances = plugin.instances.values();
    let healthy = instances.clone().find(|instance| instance.healthy);
    healthy.or_else(|| instances.next()).map_or("", |instance| &instance.provider)
}

fn job_status(((namespace, id), job): (&(Namespace, JobId), &Job)) -> JobStatus {
    JobStatus {
        namespace: namespace.clone(),
        job: id.clone(),
        controllers: job.controllers,
        nodes: job.nodes,
        since: job.since,
    }
}

/// The status of an instance, from its node's record and the fault of the plugin's id of the node.
pub fn instance_status(
    (plugin, node, half): (&PluginId, &NodeId, Half),
    instance: &Instance,
    on: Option<&Node>,
    fault: Option<NodeIdFault<'_>>,
) -> InstanceStatus {
    let report = &instance.description;
    let fault = fault.filter(|_| half == Half::Node);
    let absent = match on {
        Some(Node { gone: Some(proof), .. }) => {
            Some(format!("its node is gone: {proof}; before that: {report}"))
        }
        Some(Node { state: NodeState::Ready, .. }) => None,
        Some(Node { state: NodeState::Down, .. }) => {
            Some(format!("its node is down: the agent's lease has ended; before that: {report}"))
        }
        None => Some(format!("its node is not known; it said: {report}")),
    };
    let is_there = absent.is_none();
    // A healthy instance becomes unhealthy, and healthy again, together with its node.
    let since = match on {
        Some(on) if instance.healthy => on.since.max(instance.since),
        _ => instance.since,
    };
    InstanceStatus {
        plugin: plugin.clone(),
        node: node.clone(),
        half,
        healthy: instance.healthy && absent.is_none() && fault.is_none(),
        description: match (absent, fault) {
            (Some(absent), _) => absent,
            (None, Some(fault)) if instance.healthy => fault.to_string(),
            (None, Some(fault)) => format!("{report}; and {fault}"),
            (None, None) => report.clone(),
        },
        shares_id_with: fault.filter(|_| is_there).and_then(|fault| match fault {
            NodeIdFault::Shared { first, .. } => Some(first.clone()),
            NodeIdFault::Missing => None,
        }),
        version: instance.version.clone(),
        since,
        process: instance.process.clone(),
        controller: instance.controller,
        abilities: instance.node.clone(),
    }
}
