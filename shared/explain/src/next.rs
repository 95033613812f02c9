//! The commands that help, with the names of the case filled in.

use berth_contract::hint;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId};

/// Shows what blocks a node.
pub fn node_status(node: &NodeId) -> String {
    format!("berth node status {}", hint::quoted(node.as_str()))
}

/// A command for the node, with the advice of its agent as the comment.
pub fn advice(node: &NodeId, advice: &str) -> String {
    format!("# on node {node}: {advice}")
}

/// Shows a plugin's process on a node.
pub fn plugin_process(node: &NodeId, plugin: &PluginId) -> String {
    format!(
        "berth plugin instances {} --plugin {}   # its process: read its log, and restart it if \
         it stays so",
        hint::quoted(node.as_str()),
        hint::quoted(plugin.as_str())
    )
}

/// Shows the health of a plugin's instances.
pub fn plugin_status(plugin: &PluginId) -> String {
    format!("berth plugin status {}", hint::quoted(plugin.as_str()))
}

/// Starts a program's unit on a host.
pub fn start_service(service: &str, host: &str) -> String {
    format!("systemctl restart {service}   # on {host}")
}

/// Frees the disk of a server that stores nothing, and starts it again.
pub fn after_full_store() -> [String; 2] {
    let disk = "df -h   # on the host of nats-server: free some space first".to_owned();
    [disk, start_service("nats-server", "the same host")]
}

/// Shows whether a service runs.
pub fn ping(service: &str) -> String {
    format!("nats micro ping {service}   # whether one runs")
}

/// Sets the clock of a host.
pub fn set_clock(host: &str) -> String {
    format!("chronyc makestep   # on {host}; or whatever sets its clock")
}

/// Starts the agent of a node.
pub fn start_agent(node: &NodeId) -> String {
    start_service("berth-node-agent", &format!("node {node}"))
}

/// Declares that nothing on a node can write any more.
pub fn node_gone(node: &NodeId, revision: u64) -> String {
    format!(
        "berth node gone {} --seen {revision} --kind powered-off   # with --yes, once the host is \
         without power: docs/failover.md",
        hint::quoted(node.as_str())
    )
}

/// Reports that an alloc has ended, without a comment.
pub fn alloc_stop(alloc: &AllocId, namespace: &Namespace) -> String {
    let namespace = hint::namespace_option(namespace);
    format!("berth alloc stop {}{namespace}", hint::quoted(alloc.as_str()))
}

/// Reports that an alloc has ended.
pub fn stop_alloc(alloc: &AllocId, namespace: &Namespace, when: &str) -> String {
    format!("{}   # {when}", alloc_stop(alloc, namespace))
}

/// Repairs a dead mount. Its workload must end first.
pub fn republish(
    volume: &VolumeId,
    node: &NodeId,
    alloc: &AllocId,
    namespace: &Namespace,
) -> String {
    format!(
        "berth volume republish {} --node {} --alloc {}{}   # while its workload is stopped",
        hint::quoted(volume.as_str()),
        hint::quoted(node.as_str()),
        hint::quoted(alloc.as_str()),
        hint::namespace_option(namespace)
    )
}

/// Shows what blocks a volume of any namespace.
pub fn why_volume(volume: &VolumeId, namespace: &Namespace) -> String {
    format!(
        "berth why {}{}",
        hint::quoted(&format!("volume/{volume}")),
        hint::namespace_option(namespace)
    )
}

/// Shows the snapshots of a volume.
pub fn snapshot_list(volume: &VolumeId, namespace: &Namespace) -> String {
    format!(
        "berth snapshot list {}{}",
        hint::quoted(volume.as_str()),
        hint::namespace_option(namespace)
    )
}
