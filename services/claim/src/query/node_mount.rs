//! What a granted claim waits for on its node, and what an operator can do about it; pure.

use berth_contract::hint;
use berth_contract::message::claim::ClaimWait;
use berth_domain::plugin::{Node, NodeState};
use berth_domain::volume::{Claim, NodeMount, NodeMountState};
use berth_domain::{Timestamp, VolumeKey};

/// What the claim waits for, and the hint; none for a mounted claim, or while its ready node has
/// not reported anything of it.
pub fn waits_for(
    volume: &VolumeKey,
    plugin: Option<&str>,
    claim: &Claim,
    node: Option<&Node>,
) -> Option<((ClaimWait, String), Option<String>)> {
    if let Some(Node { state: NodeState::Down, since, .. }) = node {
        let (waits_for, hint) = waits_for_down_node(claim, *since);
        return Some(((ClaimWait::Node, waits_for), hint));
    }
    let mount = claim.mount.as_ref()?;
    let waits_for = describe_wait(claim, mount)?;
    let plugin = plugin.unwrap_or("the volume's plugin");
    Some(((ClaimWait::Mount, waits_for), hint(volume, plugin, claim, mount)))
}

fn waits_for_down_node(claim: &Claim, since: Timestamp) -> (String, Option<String>) {
    let node = &claim.node;
    let last = claim.mount.as_ref().map_or_else(String::new, |mount| {
        format!("; its last report: {} since {}", mount.state, mount.since)
    });
    let waits_for = format!("the agent of node {node}, which is down since {since}{last}");
    (waits_for, Some(format!("start the agent of node {node}; what is mounted there is not known")))
}

fn describe_wait(claim: &Claim, mount: &NodeMount) -> Option<String> {
    let (node, since) = (&claim.node, mount.since);
    let rpc = mount.rpc.as_deref();
    Some(match mount.state {
        NodeMountState::Mounted | NodeMountState::Unknown => return None,
        NodeMountState::Staging | NodeMountState::Publishing => match rpc {
            Some(rpc) => format!("{rpc} on node {node}, under way since {since}"),
            None => format!("the mount on node {node}, begun at {since}"),
        },
        NodeMountState::Failing => {
            format!("its caller to ask node {node} for the mount again; it fails since {since}")
        }
        NodeMountState::Hung => match rpc {
            Some(rpc) => format!("{rpc} on node {node}, not answered since {since}"),
            None => format!("the mount on node {node}, which does not answer since {since}"),
        },
        NodeMountState::Missing => {
            format!("nothing, but its mount is missing on node {node} since {since}")
        }
        NodeMountState::Dead => {
            format!("nothing, but its mount on node {node} fails since {since}")
        }
    })
}

fn hint(volume: &VolumeKey, plugin: &str, claim: &Claim, mount: &NodeMount) -> Option<String> {
    let id = &claim.node;
    match mount.state {
        NodeMountState::Hung if mount.rpc.is_some() => Some(format!(
            "plugin {plugin} on node {id} does not answer: read its log there, and see whether its \
             storage does; `berth node status {id}` shows the call, which goes on by itself"
        )),
        NodeMountState::Hung => Some(format!(
            "see on node {id} whether the storage of plugin {plugin} answers; `berth node status \
             {id}` shows the mount"
        )),
        NodeMountState::Failing => Some(format!(
            "mend what the last error says; `berth plugin status {plugin}` shows how the plugin is"
        )),
        NodeMountState::Missing | NodeMountState::Dead => {
            let volume = hint::volume_argument(volume);
            Some(format!(
                "bring it back with `berth volume republish {volume} --node {id}`; the \
                 workload may have to be started again"
            ))
        }
        NodeMountState::Staging
        | NodeMountState::Publishing
        | NodeMountState::Mounted
        | NodeMountState::Unknown => None,
    }
}

#[cfg(test)]
mod tests;
