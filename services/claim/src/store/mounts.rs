//! Where a volume may be mounted without a claim, according to the registry's records; pure.
//!
//! **Promises** that mounts are found by the volume's handle, whatever its name was at the mount,
//! and that no name of another namespace is shown.

use berth_bus::Incarnation;
use berth_domain::in_doubt::mounts_in_doubt;
use berth_domain::plugin::UnaccountedMount;
use berth_domain::volume::{Handle, MountDoubt, Volume};
use berth_domain::{AllocId, NodeId, VolumeKey};
use berth_service::projection::{Instances, Nodes};

/// The handle of a volume that was created or registered.
pub fn handle_of(volume: &VolumeKey, now: &Volume) -> Option<Handle> {
    now.spec.as_ref()?.handle(&volume.volume)
}

/// Nodes that may have mounts of a volume without a claim.
///
/// Either records of claims may be missing in this incarnation of their bucket, and the node has
/// not compared its mounts with it: this counts for each node, whatever plugins it has now. Or the
/// node is among the volume's `suspects` ([`suspects`](crate::store::state::StateInner::suspects)).
pub fn unreported<'a>(
    nodes: &'a Nodes,
    incarnation: Incarnation,
    suspects: &'a [NodeId],
) -> impl Iterator<Item = &'a NodeId> {
    let is_due = incarnation.origin.may_lack_records();
    let unreported_nodes =
        is_due.then(|| nodes.unreported(incarnation.number)).into_iter().flatten();
    let is_gone = |node: &NodeId| nodes.get(node).is_some_and(|node| node.gone.is_some());
    unreported_nodes.chain(suspects.iter().filter(move |node| !is_gone(node)))
}

/// Whether the node of a claim that was deleted by hand has reported its mount, or is gone.
pub fn is_reported(nodes: &Nodes, volume: &VolumeKey, alloc: &AllocId, node: &NodeId) -> bool {
    let is_it = |mount: &UnaccountedMount| mount.is_of(volume, alloc);
    nodes.get(node).is_some_and(|node| node.gone.is_some() || node.unaccounted.iter().any(is_it))
}

/// Where the volume with this handle may be mounted without a claim.
pub fn mounts_of(
    nodes: &Nodes,
    plugins: &Instances,
    incarnation: Incarnation,
    suspects: &[NodeId],
    volume: &VolumeKey,
    handle: &Handle,
) -> Vec<MountDoubt> {
    let reported = nodes.unaccounted_of(volume, Some(handle));
    let doubts = mounts_in_doubt(
        reported,
        nodes.silent(),
        unreported(nodes, incarnation, suspects),
        plugins.get(&handle.plugin),
    );
    doubts.into_iter().map(|doubt| doubt.as_seen_in(&volume.namespace)).collect()
}

/// A mount without a claim on another node. The node's own agent judges the mounts of the node
/// itself when it mounts.
///
/// A node that has not reported its mounts since its agent started is no reason to refuse a claim:
/// its earlier report is still on its record.
pub fn mounted_elsewhere(
    nodes: &Nodes,
    volume: &VolumeKey,
    handle: Option<&Handle>,
    node: &NodeId,
) -> Option<MountDoubt> {
    let reported =
        nodes.unaccounted_of(volume, handle).filter(|(other_node, _)| *other_node != node);
    let first = mounts_in_doubt(reported.take(1), [], [], None).into_iter().next();
    first.map(|doubt| doubt.as_seen_in(&volume.namespace))
}
