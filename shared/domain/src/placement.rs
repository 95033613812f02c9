//! Which nodes can host a set of volumes, and why the others cannot (D6).
//!
//! **Owns** what a node needs for a plugin's volume ([`route`]): it is ready, its clock is right,
//! it has a healthy instance, it is in the volume's topology, it reaches the plugin's storage, and
//! it has room for one more volume; for one that is not created yet, the storage has room there, or
//! nowhere else.
//!
//! **Promises** that a placement is decided in the same way as a claim: [`obstacles`] calls
//! [`step`], and claims use [`route`]. The result holds for the moment only: a later claim may be
//! refused.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::alloc::VolumeRequest;
use crate::plugin::{Half, Node, NodeIdFault, NodeState, Plugin, keeping_out};
use crate::room::Rooms;
use crate::topology::{reaches, segments};
use crate::volume::storage::Stage;
use crate::volume::{
    Command, Context, HandleUse, MountDoubt, NoRoute, Refusal, Route, Take, Volume, VolumeSpec,
    step,
};
use crate::{AllocId, NodeId, PluginId, VolumeId, WorkerId};

/// How many nodes that have not reported are named.
const UNREPORTED_NAMED_MAX: usize = 8;

/// What decides whether a volume of one plugin may be placed on a node.
#[derive(Debug, Clone)]
pub struct Site<'a> {
    /// The node.
    pub node: &'a NodeId,
    /// The node's record. None if it has never reported.
    pub record: Option<&'a Node>,
    /// The plugin's id.
    pub id: &'a PluginId,
    /// The plugin. None if it has no instance.
    pub plugin: Option<&'a Plugin>,
    /// A mount of the volume on another node that no claim covers.
    pub mounted: Option<MountDoubt>,
    /// Other nodes that may have a mount of the volume that no claim covers: the bucket of claims
    /// may lack records, and they have not said since what is mounted there.
    pub unreported: &'a [NodeId],
    /// How many volumes of the plugin, in all namespaces, have a claim on the node. None if the
    /// requested volume already has a claim there: it needs no more room.
    pub volumes: Option<u64>,
    /// Where the plugin has room for the volume. None unless its first claim has it created.
    pub rooms: Option<&'a Rooms>,
}

/// The route of the volume to the node, or why there is none now. `ready` says which nodes are
/// ready, and `margin` is the largest allowed clock difference.
pub fn route(
    spec: &VolumeSpec,
    site: Site<'_>,
    ready: impl Fn(&NodeId) -> bool,
    margin: Duration,
) -> Result<Route, NoRoute> {
    let Site { node, record, id, plugin, mounted, unreported, volumes, rooms } = site;
    check_mounts_elsewhere(spec, mounted.as_ref(), unreported)?;
    if let Some(record) = record {
        present(node, record)?;
        on_time(node, record, margin)?;
    }
    let Some(plugin) = plugin else {
        return Err(NoRoute::Plugin(format!("no agent has reported plugin {id}")));
    };
    if let Some(fault) = plugin.node_id_fault(node) {
        let why = format!("plugin {id} cannot serve node {node}: {fault}");
        return Err(match fault {
            NodeIdFault::Missing => NoRoute::Plugin(why),
            NodeIdFault::Shared { .. } => NoRoute::SharedId(why),
        });
    }
    let route = plugin.route(node, ready).map_err(NoRoute::Plugin)?;
    let instance = plugin.instances.get(&(node.clone(), Half::Node));
    // Without abilities there is no route.
    let Some(abilities) = instance.and_then(|instance| instance.node.as_ref()) else {
        return Ok(route);
    };
    let within = spec.accessible_from();
    if !reaches(within, &abilities.topology) {
        return Err(NoRoute::Topology(format!(
            "it can be reached in {}, and node {node} is in {}",
            within.iter().map(segments).collect::<Vec<_>>().join(" or "),
            segments(&abilities.topology)
        )));
    }
    let fs_type = spec.mount.fs_type.as_deref();
    if let Some(trouble) = keeping_out(&abilities.storage, &spec.capabilities, fs_type) {
        return Err(NoRoute::Storage(format!(
            "plugin {id} cannot reach its storage from node {node}: {}",
            trouble.said
        )));
    }
    // Zero means no bound (CSI 1.13, `NodeGetInfoResponse.max_volumes_per_node`).
    let max = abilities.max_volumes.filter(|max| *max > 0);
    if let (Some(max), Some(volumes)) = (max, volumes)
        && volumes >= max
    {
        return Err(NoRoute::Full(format!(
            "node {node} has {volumes} volumes of plugin {id}, and the plugin takes {max} there"
        )));
    }
    // A volume that has a claim there needs no more room.
    if let (Some(why), Some(_)) = (&abilities.full, volumes) {
        return Err(NoRoute::Full(format!(
            "node {node} has no room for another volume of plugin {id} now: {why}"
        )));
    }
    let rooms = rooms.filter(|_| spec.stage() == Stage::Unused);
    if let Some(lacking) = rooms.and_then(|rooms| rooms.lacking_at(&abilities.topology)) {
        return Err(NoRoute::Room(format!("plugin {id} last said that it has room for {lacking}")));
    }
    Ok(route)
}

/// Refuses a volume that allows one node while another node has a mount of it that no claim covers,
/// or may have one.
pub fn check_mounts_elsewhere(
    spec: &VolumeSpec,
    mounted: Option<&MountDoubt>,
    unreported: &[NodeId],
) -> Result<(), NoRoute> {
    if spec.capabilities.iter().all(|one| one.access.is_shared()) {
        return Ok(());
    }
    if let Some(mounted) = mounted {
        return Err(NoRoute::Unaccounted(mounted.to_string()));
    }
    if unreported.is_empty() {
        return Ok(());
    }
    Err(NoRoute::Unreported(name_unreported(unreported)))
}

fn name_unreported(nodes: &[NodeId]) -> String {
    let named: Vec<_> = nodes.iter().take(UNREPORTED_NAMED_MAX).map(NodeId::as_str).collect();
    let more = if nodes.len() > named.len() { " and more" } else { "" };
    format!(
        "records of claims were restored, replaced or deleted, and these nodes have not said since \
         what is mounted there: {}{more}",
        named.join(", ")
    )
}

fn present(node: &NodeId, record: &Node) -> Result<(), NoRoute> {
    if let Some(proof) = &record.gone {
        return Err(NoRoute::Node(format!("node {node} is gone: {proof}")));
    }
    if record.state == NodeState::Down {
        let since = record.since;
        return Err(NoRoute::Node(format!(
            "node {node} is down since {since}: its agent's lease has ended"
        )));
    }
    Ok(())
}

fn on_time(node: &NodeId, record: &Node, margin: Duration) -> Result<(), NoRoute> {
    let off = record.clock_skew_ms;
    if Duration::from_millis(off.unsigned_abs()) <= margin {
        return Ok(());
    }
    Err(NoRoute::Clock(format!(
        "node {node} is {off} ms off, more than the margin of {margin:?}; \
         set its clock, or deadlines mean nothing there"
    )))
}

/// A volume that a workload would request.
#[derive(Debug, Clone)]
pub struct RequestedVolume<'a> {
    /// Its id, as the workload's index makes it.
    pub id: &'a VolumeId,
    /// The request.
    pub request: &'a VolumeRequest,
    /// The volume. None if it is not registered.
    pub volume: Option<&'a Volume>,
    /// Other registrations of its handle.
    pub handle: HandleUse,
}

/// Why a node cannot host a volume now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The volume.
    pub volume: VolumeId,
    /// Why a claim would be refused.
    pub refusal: Refusal,
}

/// The alloc that would claim.
#[derive(Debug, Clone)]
pub struct NewClaimant {
    /// An alloc that has no claim yet.
    pub alloc: AllocId,
    /// The worker that would call the controller.
    pub worker: WorkerId,
}

/// All obstacles of a new alloc with these volumes on this node. Empty if it can run there. `site`
/// looks up the node's data for a volume and its plugin.
pub fn obstacles<'a>(
    newcomer: &NewClaimant,
    wanted: &[RequestedVolume<'a>],
    node: &NodeId,
    site: impl Fn(&'a VolumeId, &'a PluginId) -> Site<'a>,
    ready: impl Fn(&NodeId) -> bool,
    context: &Context,
) -> Vec<Obstacle> {
    let mut found = Vec::new();
    // Volumes of one plugin take room from each other.
    let mut asked: BTreeMap<&PluginId, u64> = BTreeMap::new();
    for one in wanted {
        let mut add = |refusal| found.push(Obstacle { volume: one.id.clone(), refusal });
        let volume = one.volume;
        let Some((volume, spec)) = volume.and_then(|it| Some((it, it.spec.as_ref()?))) else {
            add(Refusal::NoSuchVolume);
            continue;
        };
        let context = &Context { handle: one.handle.clone(), ..context.clone() };
        let mut site = site(one.id, &spec.plugin);
        if let Some(volumes) = &mut site.volumes {
            let before = asked.entry(&spec.plugin).or_default();
            *volumes += *before;
            *before += 1;
        }
        let way = route(spec, site, &ready, context.policy.clock_margin);
        // The call that would be made does not matter.
        let way_in = Route { controller: false, ..way.clone().unwrap_or_default() };
        if let Err(refusal) = claimed(newcomer, volume, one.request, node, way_in, context) {
            add(refusal);
        }
        if let Err(why) = way {
            add(why.into());
        }
    }
    found
}

/// Why the volume and its other claims would refuse a claim, on any node.
fn claimed(
    newcomer: &NewClaimant,
    volume: &Volume,
    request: &VolumeRequest,
    node: &NodeId,
    route: Route,
    context: &Context,
) -> Result<(), Refusal> {
    let take = Command::Take(Take {
        alloc: newcomer.alloc.clone(),
        node: node.clone(),
        mode: request.mode(),
        capability: request.capability(),
        wait: false,
        route: Ok(route),
        worker: newcomer.worker.clone(),
    });
    match step(volume, &take, context) {
        // A call that is under way ends by itself.
        Ok(_) | Err(Refusal::Busy { .. }) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

#[cfg(test)]
mod tests;
