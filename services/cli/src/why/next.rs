//! The commands that help, with the names of the case filled in.

use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId};

use super::Facts;

/// Shows what hangs on a node.
pub fn node_status(node: &NodeId) -> String {
    format!("berth node status {}", quoted(node.as_str()))
}

/// Shows a plugin's process on a node.
pub fn plugin_process(node: &NodeId, plugin: &PluginId) -> String {
    format!(
        "berth plugin instances {} --plugin {}   # its process: read its log, and restart it if \
         it stays so",
        quoted(node.as_str()),
        quoted(plugin.as_str())
    )
}

/// Shows how a plugin's instances are.
pub fn plugin_status(plugin: &PluginId) -> String {
    format!("berth plugin status {}", quoted(plugin.as_str()))
}

/// Starts a program's unit on a host.
pub fn start_service(service: &str, host: &str) -> String {
    format!("systemctl restart {service}   # on {host}")
}

/// Starts the agent of a node.
pub fn start_agent(node: &NodeId) -> String {
    start_service("berth-node-agent", &format!("node {node}"))
}

/// Says that nothing on a node can write any more.
pub fn node_gone(node: &NodeId, revision: u64) -> String {
    format!(
        "berth node gone {} --seen {revision} --kind powered-off   # with --yes, once the host is \
         without power: docs/failover.md",
        quoted(node.as_str())
    )
}

/// Says that an alloc has ended.
pub fn stop_alloc(alloc: &AllocId, namespace: &Namespace, when: &str) -> String {
    format!(
        "berth alloc stop {}{}   # {when}",
        quoted(alloc.as_str()),
        Facts::namespace_option(namespace)
    )
}

/// Brings a dead mount back.
pub fn republish(
    volume: &VolumeId,
    node: &NodeId,
    alloc: &AllocId,
    namespace: &Namespace,
) -> String {
    format!(
        "berth volume republish {} --node {} --alloc {}{}",
        quoted(volume.as_str()),
        quoted(node.as_str()),
        quoted(alloc.as_str()),
        Facts::namespace_option(namespace)
    )
}

/// Shows why a volume of any namespace hangs.
pub fn why_volume(volume: &VolumeId, namespace: &Namespace) -> String {
    format!(
        "berth why {}{}",
        quoted(&format!("volume/{volume}")),
        Facts::namespace_option(namespace)
    )
}

/// As a shell takes it for one word.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
