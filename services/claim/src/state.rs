//! The state that all handlers share: buckets, mirrors, locks; and what is read from several
//! mirrors.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_bus::{Bus, Events, Mirror, MirrorOptions};
use berth_contract::message::call::Call;
use berth_contract::record::UnreadableRecord;
use berth_contract::service::CLAIM;
use berth_contract::{bucket, key, stream};
use berth_domain::limits::RUN_REGISTERED_WITHIN;
use berth_domain::placement::{self, Site};
use berth_domain::plugin::{ControllerChoice, Half, Plugin, UnaccountedMount};
use berth_domain::volume::{
    CallOwner, Context, HandleUse, NoRoute, Policy, Route, Volume, VolumeSpec,
};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeKey, WorkerId};
use berth_service::clock;
use berth_service::locks::KeyedLocks;
use berth_service::newer::Readers;
use berth_service::process::{Fatal, Process};
use berth_service::projection::{Allocs, Instances, Nodes, Volumes};
use berth_service::record_table::{RecordTable, open_bucket};
use berth_service::refusals::RefusalTeller;
use berth_service::seal::Keys;

use crate::config::Config;
use crate::owner_leases::OwnerLeases;
use crate::vault::Vault;

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
    /// Who holds the leases of owners. The bucket has those of nodes, too.
    pub owners: RecordTable<OwnerLeases>,
    /// The plugin registry writes these two; this service only reads them.
    pub plugins: RecordTable<Instances>,
    pub nodes: RecordTable<Nodes>,
    pub vault: Vault,
    /// Held from decision to commit, so that requests of one process do not race each other.
    pub volume_locks: KeyedLocks<VolumeKey>,
    /// Held from the count of a node's volumes to the commit, where a plugin limits that count.
    pub node_limit_locks: KeyedLocks<(PluginId, NodeId)>,
    /// The requests that wait for something newer.
    pub readers: Readers,
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
        // First: a service that cannot open secrets must not answer for volumes that have some.
        let keys = config.key_file.as_deref().map(Keys::read).transpose()?;
        let projection = Volumes::default().with_call_timeout(config.policy.call_timeout);
        let volumes = RecordTable::open(process, &bucket::VOLUMES, projection).await?;
        volumes.bucket.watch_clock();
        let allocs = RecordTable::open(process, &bucket::ALLOCS, Allocs::default()).await?;
        let leases = open_bucket(process, &bucket::LEASES).await?;
        let (filter, options) = (OwnerLeases::FILTER, MirrorOptions::default());
        let mirror = Mirror::start(&leases, filter, OwnerLeases::default(), options).await?;
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
            vault: Vault::new(secrets, keys),
            volume_locks: KeyedLocks::default(),
            node_limit_locks: KeyedLocks::default(),
            readers: Readers::default(),
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
        }
    }

    /// How many volumes of the volume's plugin the node has, in all namespaces; none when it
    /// already has this volume.
    pub fn count_other_volumes(&self, volume: &VolumeKey, node: &NodeId) -> Option<u64> {
        self.volumes.mirror.read(|volumes| {
            let spec = volumes.get(volume)?.volume.spec.as_ref()?;
            count_other_volumes(volumes, volume, &spec.plugin, node)
        })
    }

    /// The volume's plugin, if it limits how many volumes the node may have.
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
    ) -> Result<Route, NoRoute> {
        self.nodes.mirror.read(|nodes| {
            self.plugins.mirror.read(|plugins| {
                check_node_readable(nodes, plugins, &spec.plugin, node)?;
                let (id, record) = (&spec.plugin, nodes.get(node));
                let unaccounted = unaccounted_elsewhere(nodes, volume, node);
                let plugin = plugins.get(id);
                let volumes = other_volumes;
                let site = Site { node, record, id, plugin, unaccounted, volumes };
                placement::route(spec, site, |node| nodes.is_ready(node), self.policy.clock_margin)
            })
        })
    }

    /// The call with the plugin's id of the node. A claim of an older version has none (D9): then
    /// it is the id that the plugin's instance there last reported. No controller is called without
    /// it, because CSI takes an unpublish without a node as one from every node.
    pub fn with_external_node(&self, mut call: Call) -> Call {
        if call.external_node.is_none() {
            call.external_node = self.plugins.mirror.read(|plugins| {
                let instances = &plugins.get(&call.plugin)?.instances;
                let abilities = instances.get(&(call.node.clone(), Half::Node))?.node.as_ref()?;
                Some(abilities.external_node.clone()).filter(|node| !node.is_empty())
            });
        }
        call
    }

    /// A controller call with the controller that has to get it, and with the agents that may still
    /// be at an earlier one (rule 4). A node call is returned as it is.
    pub fn with_controller(&self, mut call: Call, volume: &Volume) -> Call {
        if !call.call.is_controller() {
            return call;
        }
        let topologies = volume.spec.as_ref().map_or(&[][..], |spec| &spec.topologies);
        self.nodes.mirror.read(|nodes| {
            self.plugins.mirror.read(|plugins| {
                let Some(plugin) = plugins.get(&call.plugin) else { return };
                let ready = |node: &NodeId| nodes.is_ready(node);
                call.controller = plugin.controller_beside(&call.node, topologies, ready);
                let owner = CallOwner::Claim(call.alloc.clone());
                let others = busy_controllers(volume, &owner, plugin, ready).into_iter();
                // The controller that gets the call makes one call after the other.
                let others = others.filter(|node| Some(*node) != call.controller.as_ref());
                call.ask_first = others.cloned().collect();
            });
        });
        call
    }

    /// Whether the alloc that the volume was created for would be registered by now.
    pub fn is_older_than_registration(&self, volume: &VolumeKey) -> bool {
        let requested = self.volumes.mirror.read(|volumes| {
            let spec = volumes.get(volume)?.volume.spec.as_ref()?;
            Some(spec.provision()?.requested)
        });
        requested.is_some_and(|at| at.after(RUN_REGISTERED_WITHIN) < clock::now())
    }

    /// Whether the alloc has not ended, and so wants its claims, as far as this replica knows.
    pub fn is_wanted(&self, namespace: &Namespace, alloc: &AllocId) -> bool {
        self.allocs.mirror.read(|allocs| allocs.is_live(namespace, alloc))
    }
}

/// The nodes whose controller may still be at an earlier call for the volume.
pub fn busy_controllers<'a>(
    volume: &'a Volume,
    owner: &CallOwner,
    plugin: &'a Plugin,
    ready: impl Fn(&NodeId) -> bool,
) -> BTreeSet<&'a NodeId> {
    let topologies = volume.spec.as_ref().map_or(&[][..], |spec| &spec.topologies);
    let mut busy = plugin.may_be_calling(volume.unsettled(owner), topologies, &ready);
    if volume.is_storage_unsettled(owner) {
        // No other than the volume's own was called: then no other node has to answer. The call of
        // a group was made where its leader is.
        let reach = volume.spec.as_ref().map_or(&[][..], VolumeSpec::reach);
        let is_elsewhere = |node: &NodeId| {
            let mut groups = volume.snapshots.values().filter(|one| one.group.is_some());
            groups.any(|one| {
                one.call().is_some()
                    && one.progress.is_unsettled()
                    && one.progress.executor.as_ref() != Some(node)
            })
        };
        let alone = match plugin.controller_of(reach) {
            ControllerChoice::Only(node) if !is_elsewhere(node) => Some(node),
            _ => None,
        };
        let hosts = plugin.controller_hosts().filter(|node| alone.is_none_or(|it| it == *node));
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

/// A mount of the volume on another node that no claim covers. The mounts of the node itself are
/// judged by its own agent when it mounts.
fn unaccounted_elsewhere<'a>(
    nodes: &'a Nodes,
    volume: &VolumeKey,
    node: &NodeId,
) -> Option<(&'a NodeId, &'a UnaccountedMount)> {
    nodes.unaccounted().find(|(other, mount)| mount.is_of(volume) && *other != node)
}

/// The facts about a node that decide whether it can have the volume.
pub fn placement_site<'a>(
    volumes: &Volumes,
    nodes: &'a Nodes,
    plugins: &'a Instances,
    volume: &VolumeKey,
    plugin: &'a PluginId,
    node: &'a NodeId,
) -> Site<'a> {
    Site {
        node,
        record: nodes.get(node),
        id: plugin,
        plugin: plugins.get(plugin),
        unaccounted: unaccounted_elsewhere(nodes, volume, node),
        volumes: count_other_volumes(volumes, volume, plugin, node),
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
