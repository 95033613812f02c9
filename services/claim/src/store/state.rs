//! The state that all handlers share: buckets, mirrors, locks; and what is read from several
//! mirrors.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bus, Events, Incarnation, Mirror, MirrorOptions};
use berth_contract::message::call::ClaimCall;
use berth_contract::problem::Problem;
use berth_contract::record::{self, UnreadableRecord};
use berth_contract::service::CLAIM;
use berth_contract::{bucket, key, stream};
use berth_domain::limits::RUN_REGISTERED_WITHIN;
use berth_domain::placement::{self, Site};
use berth_domain::plugin::{ControllerChoice, Half, Plugin};
use berth_domain::room::Rooms;
use berth_domain::volume::{
    CallOwner, Context, HandleUse, NoRoute, Policy, Route, Volume, VolumeSpec,
};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeKey, WorkerId};
use berth_service::clock;
use berth_service::first_seen::FirstSeen;
use berth_service::locks::KeyedLocks;
use berth_service::process::{Fatal, Process};
use berth_service::projection::{Allocs, Instances, LostClaims, Nodes, Volumes};
use berth_service::record_table::{RecordTable, open_bucket};
use berth_service::refusals::RefusalTeller;
use berth_service::seal::Keys;

use crate::config::Config;
use crate::store::level::LevelWatch;
use crate::store::mounts::{handle_of, mounted_elsewhere, unreported};
use crate::store::node_leases::NodeLeases;
use crate::store::open_requests::OpenRequests;
use crate::store::owner_leases::OwnerLeases;
use crate::store::refuse;
use crate::store::room_table::RoomTable;
use crate::store::vault::Vault;

/// Nodes that have not reported and are listed, at most.
const UNREPORTED_MAX: usize = 9;
/// How long agents have to get their leases back after the bucket of nodes was restored. An agent
/// tries at least every 5 s: it waits up to 3 s for an answer, and pauses for 2 s between two
/// tries.
const NODES_RETURN_WITHIN: Duration = Duration::from_secs(15);

/// Cheap to clone.
#[derive(Clone)]
pub struct State(Arc<StateInner>);

pub struct StateInner {
    pub bus: Bus,
    pub events: Events,
    pub refusals: RefusalTeller,
    pub policy: Policy,
    pub worker: WorkerId,
    pub volumes: RecordTable<Volumes>,
    pub allocs: RecordTable<Allocs>,
    /// The holders of owners' leases. The bucket also has the leases of nodes.
    pub owners: RecordTable<OwnerLeases>,
    /// The plugin registry writes these two; this service only reads them.
    pub plugins: RecordTable<Instances>,
    pub nodes: RecordTable<Nodes>,
    /// The nodes whose agents run, even if a restored `berth-nodes` lacks them.
    pub node_leases: Mirror<NodeLeases>,
    pub vault: Vault,
    /// Held from decision to commit, so that requests of one process do not race each other.
    pub volume_locks: KeyedLocks<VolumeKey>,
    /// Held around the volume's lock by takes alone. So one take at most stands before a release,
    /// an answer or a checkpoint at that lock, however many there are.
    pub take_turns: KeyedLocks<VolumeKey>,
    /// The takes that wait at this replica.
    pub open_requests: OpenRequests,
    /// Claims that were deleted by hand, and whose volumes may be mounted.
    pub lost: LostClaims,
    /// Held from the count of a node's volumes to the commit, if a plugin limits that count.
    pub node_limit_locks: KeyedLocks<(PluginId, NodeId)>,
    /// When this replica first saw a volume that was created for an alloc which is not registered.
    pub runs_seen: FirstSeen<(VolumeKey, u64)>,
    /// When this replica first used an incarnation of the bucket of nodes.
    pub nodes_seen: FirstSeen<u64>,
    /// What plugins last said of their room.
    pub rooms: RoomTable,
    /// What keeps the level of records from rising.
    pub level: LevelWatch,
}

impl std::ops::Deref for State {
    type Target = StateInner;
    fn deref(&self) -> &StateInner {
        &self.0
    }
}

impl State {
    /// Opens the buckets and reads them.
    pub async fn open(config: &Config, process: &Process) -> Result<Self, Fatal> {
        // First, because a service that cannot open secrets must not answer for volumes that have
        // some.
        let keys = config.key_file.as_deref().map(Keys::read).transpose()?;
        let projection = Volumes::default().with_policy(&config.policy);
        let lost = projection.lost().clone();
        let volumes = RecordTable::open(process, &bucket::VOLUMES, projection).await?;
        volumes.bucket.watch_clock();
        let allocs = RecordTable::open(process, &bucket::ALLOCS, Allocs::default()).await?;
        let leases = open_bucket(process, &bucket::LEASES).await?;
        let (filter, options) = (OwnerLeases::FILTER, MirrorOptions::default());
        let mirror = Mirror::start(&leases, filter, OwnerLeases::default(), options).await?;
        let (filter, options) = (NodeLeases::FILTER, MirrorOptions::default());
        let node_leases = Mirror::start(&leases, filter, NodeLeases::default(), options).await?;
        let owners = RecordTable { bucket: leases, mirror };
        let plugins = RecordTable::open(process, &bucket::PLUGINS, Instances::default()).await?;
        let nodes = RecordTable::open(process, &bucket::NODES, Nodes::default()).await?;
        let secrets = open_bucket(process, &bucket::SECRETS).await?;
        let events = process.bus.events(&stream::EVENTS, process.replicas).await?;
        Ok(Self(Arc::new(StateInner {
            bus: process.bus.clone(),
            refusals: RefusalTeller::new(events.sender(), CLAIM),
            events,
            policy: config.policy,
            worker: process.worker.clone(),
            volumes,
            allocs,
            owners,
            plugins,
            nodes,
            node_leases,
            vault: Vault::new(secrets, keys),
            lost,
            volume_locks: KeyedLocks::default(),
            take_turns: KeyedLocks::default(),
            open_requests: OpenRequests::default(),
            node_limit_locks: KeyedLocks::default(),
            runs_seen: FirstSeen::new(RUN_REGISTERED_WITHIN),
            nodes_seen: FirstSeen::new(NODES_RETURN_WITHIN),
            rooms: RoomTable::default(),
            level: LevelWatch::default(),
        })))
    }
}

impl StateInner {
    /// What a decision needs besides the record.
    pub fn decision_context(&self) -> Context {
        Context {
            now: clock::now(),
            attempt: clock::new_attempt(),
            jitter: clock::jitter(),
            policy: self.policy,
            handle: HandleUse::default(),
            copies: Vec::new(),
            mounts: Vec::new(),
        }
    }

    /// How many volumes of the volume's plugin the node has, in all namespaces; none if this volume
    /// is already among them.
    pub fn count_other_volumes(&self, volume: &VolumeKey, node: &NodeId) -> Option<u64> {
        self.volumes.mirror.read(|volumes| {
            let spec = volumes.get(volume)?.volume.spec.as_ref()?;
            count_other_volumes(volumes, volume, &spec.plugin, node)
        })
    }

    /// The volume's plugin, if it limits the number of the node's volumes.
    pub fn plugin_with_limit(&self, volume: &VolumeKey, node: &NodeId) -> Option<PluginId> {
        let plugin = self
            .volumes
            .mirror
            .read(|volumes| Some(volumes.get(volume)?.volume.spec.as_ref()?.plugin.clone()))?;
        let max_volumes = self.plugins.mirror.read(|plugins| {
            let instance = plugins.get(&plugin)?.instances.get(&(node.clone(), Half::Node))?;
            instance.node.as_ref()?.max_volumes
        });
        max_volumes.map(|_| plugin)
    }

    /// How the volume gets to the node, which has this many other volumes of the plugin; or why it
    /// cannot get there now.
    pub fn route(
        &self,
        volume: &VolumeKey,
        spec: &VolumeSpec,
        node: &NodeId,
        other_volumes: Option<u64>,
        rooms: Option<&Rooms>,
    ) -> Result<Route, NoRoute> {
        self.check_nodes_had_time(spec)?;
        self.nodes.mirror.read(|nodes| {
            self.plugins.mirror.read(|plugins| {
                check_node_readable(nodes, plugins, &spec.plugin, node)?;
                let (id, record) = (&spec.plugin, nodes.get(node));
                let handle = spec.handle(&volume.volume);
                let mounted = mounted_elsewhere(nodes, volume, handle.as_ref(), node);
                let plugin = plugins.get(id);
                let incarnation = self.volumes.bucket.incarnation();
                let suspects = self.suspects(nodes, volume, handle.as_ref());
                let unreported = &unreported_elsewhere(nodes, incarnation, &suspects, node)[..];
                let volumes = other_volumes;
                let site = Site { node, record, id, plugin, mounted, unreported, volumes, rooms };
                placement::route(spec, site, |node| nodes.is_ready(node), self.policy.clock_margin)
            })
        })
    }

    /// How the plugin attaches a volume that is mounted on the node already. The plugin may be away
    /// by now.
    pub fn attachment(&self, plugin: &PluginId, node: &NodeId) -> Result<Route, NoRoute> {
        self.plugins.mirror.read(|plugins| {
            let unknown = || NoRoute::Plugin(format!("nobody knows plugin {plugin}"));
            let plugin_state = plugins.get(plugin).ok_or_else(unknown)?;
            plugin_state.attachment(node).map_err(NoRoute::Plugin)
        })
    }

    /// Refuses to attach for a claim from before a restore while another node has, or may have, a
    /// mount that no claim covers. A new claim is refused by its route.
    pub fn check_mounts_elsewhere(&self, volume: &VolumeKey, node: &NodeId) -> Result<(), Problem> {
        let incarnation = self.volumes.bucket.incarnation();
        let checked = self.volumes.mirror.read(|volumes| {
            let spec = volumes.get(volume).and_then(|subtree| subtree.volume.spec.as_ref());
            let Some(spec) = spec else { return Ok(()) };
            self.check_nodes_had_time(spec)?;
            self.nodes.mirror.read(|nodes| {
                let handle = spec.handle(&volume.volume);
                let mounted = mounted_elsewhere(nodes, volume, handle.as_ref(), node);
                let suspects = self.suspects(nodes, volume, handle.as_ref());
                let unreported = unreported_elsewhere(nodes, incarnation, &suspects, node);
                placement::check_mounts_elsewhere(spec, mounted.as_ref(), &unreported)
            })
        });
        checked.map_err(|refusal| refuse::to_problem(volume, &refusal.into()))
    }

    /// The call with the plugin's id of the node. A claim of an older version has none (D9): then
    /// it is the id that the plugin's instance there last reported. No controller is called without
    /// it, because CSI takes an unpublish without a node for one from every node.
    pub fn with_external_node(&self, mut call: ClaimCall) -> ClaimCall {
        if call.details.external_node.is_none() {
            call.details.external_node = self.plugins.mirror.read(|plugins| {
                let instances = &plugins.get(&call.plugin)?.instances;
                let abilities =
                    instances.get(&(call.details.node.clone(), Half::Node))?.node.as_ref()?;
                Some(abilities.external_node.clone()).filter(|node| !node.is_empty())
            });
        }
        call
    }

    /// Whether a registered volume may get a home: older versions cannot read such a record.
    pub fn may_store_homes(&self) -> bool {
        let check = |volumes: &_| self.level.check(volumes, record::SCHEMA_STORAGE);
        self.volumes.mirror.read(check).is_ok()
    }

    /// Adds to a controller call the controller that has to get it, and the agents that may still
    /// be at an earlier one (rule 4). A node call is returned unchanged.
    pub fn with_controller(&self, mut call: ClaimCall, volume: &Volume) -> ClaimCall {
        if !call.call.is_controller() {
            return call;
        }
        // The registration may be for another volume by now.
        let is_its_own = |spec: &&VolumeSpec| {
            let handle = spec.handle(&call.volume);
            handle.is_some_and(|handle| {
                handle.plugin == call.plugin && handle.external_id == call.external_id
            })
        };
        let spec = volume.spec.as_ref().filter(is_its_own);
        let topologies = spec.map_or(&[][..], |spec| &spec.topologies);
        self.nodes.mirror.read(|nodes| {
            self.plugins.mirror.read(|plugins| {
                let Some(plugin) = plugins.get(&call.plugin) else { return };
                let ready = |node: &NodeId| nodes.is_ready(node);
                call.details.controller =
                    plugin.controller_beside(&call.details.node, topologies, ready);
                // The volume's topology was lost with its registration. Another controller may not
                // know the volume, and answer OK.
                if spec.is_none() && !plugin.local_hosts().is_empty() {
                    call.details.controller = Some(call.details.node.clone());
                }
                let owner = CallOwner::Claim(call.details.alloc.clone());
                let others = busy_controllers(volume, &owner, plugin, ready).into_iter();
                // The controller that gets the call makes its calls one after the other.
                let others = others.filter(|node| Some(*node) != call.details.controller.as_ref());
                call.ask_first = others.cloned().collect();
            });
        });
        call
    }

    /// Whether the alloc that the volume was created for would be registered by now. This replica
    /// measures the time itself: the clock of the replica that wrote the volume may be wrong.
    pub fn is_older_than_registration(&self, volume: &VolumeKey) -> bool {
        let create_index = self
            .volumes
            .mirror
            .read(|volumes| Some(volumes.get(volume)?.volume.spec.as_ref()?.create_index));
        create_index.is_some_and(|create_index| {
            self.runs_seen.has_reached_age((volume.clone(), create_index))
        })
    }

    /// Whether the alloc has not ended, and so wants its claims, as far as this replica knows.
    pub fn is_wanted(&self, namespace: &Namespace, alloc: &AllocId) -> bool {
        self.allocs.mirror.read(|allocs| allocs.is_live(namespace, alloc))
    }
}

/// The nodes whose controllers may still be at an earlier call for the volume.
pub fn busy_controllers<'a>(
    volume: &'a Volume,
    owner: &CallOwner,
    plugin: &'a Plugin,
    ready: impl Fn(&NodeId) -> bool,
) -> BTreeSet<&'a NodeId> {
    let topologies = volume.spec.as_ref().map_or(&[][..], |spec| &spec.topologies);
    let mut busy = plugin.may_be_calling(volume.unsettled(owner), topologies, &ready);
    if volume.is_storage_unsettled(owner) {
        // If only the volume's own controller was called, no other node has to answer. The call of
        // a group was made where its leader is.
        let places = volume.spec.as_ref().map_or(&[][..], VolumeSpec::accessible_from);
        let is_elsewhere = |node: &NodeId| {
            let mut groups = volume.snapshots.values().filter(|snapshot| snapshot.group.is_some());
            groups.any(|snapshot| {
                snapshot.call().is_some()
                    && snapshot.progress.calls.is_unsettled()
                    && snapshot.progress.executor.as_ref() != Some(node)
            })
        };
        let home = volume.spec.as_ref().and_then(VolumeSpec::home);
        let alone = match plugin.controller_with_home(home, places) {
            ControllerChoice::Only(node) if !is_elsewhere(node) => Some(node),
            _ => None,
        };
        let hosts = plugin.controller_hosts().filter(|node| alone.is_none_or(|only| only == *node));
        busy.extend(hosts.filter(|node| ready(node)));
    }
    busy
}

/// Refuses a node whose record, or whose records of the plugin, cannot be read.
pub fn check_node_readable(
    nodes: &Nodes,
    plugins: &Instances,
    plugin: &PluginId,
    node: &NodeId,
) -> Result<(), NoRoute> {
    if let Some(record) = nodes.unreadable().get(node) {
        return Err(NoRoute::Node(record.to_string()));
    }
    let is_on_node = |record: &&UnreadableRecord| {
        key::parse_instance(&record.key).is_some_and(|(_, on, _)| on == *node)
    };
    match plugins.unreadable_of(plugin).find(is_on_node) {
        Some(record) => Err(NoRoute::Plugin(record.to_string())),
        None => Ok(()),
    }
}

/// Some of the other nodes that may have mounts without a claim.
pub fn unreported_elsewhere(
    nodes: &Nodes,
    incarnation: Incarnation,
    suspects: &[NodeId],
    node: &NodeId,
) -> Vec<NodeId> {
    let others = unreported(nodes, incarnation, suspects).filter(|other| *other != node);
    others.take(UNREPORTED_MAX).cloned().collect()
}

/// The facts about a node that decide whether it can have the volume.
pub fn placement_site<'a>(
    volumes: &Volumes,
    nodes: &'a Nodes,
    plugins: &'a Instances,
    unreported: &'a [NodeId],
    volume: &VolumeKey,
    plugin: &'a PluginId,
    node: &'a NodeId,
) -> Site<'a> {
    let handle = volumes.get(volume).and_then(|subtree| handle_of(volume, &subtree.volume));
    Site {
        node,
        record: nodes.get(node),
        id: plugin,
        plugin: plugins.get(plugin),
        mounted: mounted_elsewhere(nodes, volume, handle.as_ref(), node),
        unreported,
        volumes: count_other_volumes(volumes, volume, plugin, node),
        rooms: None,
    }
}

fn count_other_volumes(
    volumes: &Volumes,
    volume: &VolumeKey,
    plugin: &PluginId,
    node: &NodeId,
) -> Option<u64> {
    let has_volume = volumes.get(volume).is_some_and(|subtree| subtree.volume.claims.held_on(node));
    (!has_volume).then(|| volumes.load().count(plugin, node))
}
