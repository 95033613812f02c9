//! What the handlers share.

use std::sync::Arc;

use berth_bus::{Bucket, Bus, Events, Mirror, MirrorOptions};
use berth_contract::message::call::Call;
use berth_contract::record::UnreadableRecord;
use berth_contract::service::CLAIM;
use berth_contract::{bucket, key, stream};
use berth_domain::placement::{self, Site};
use berth_domain::plugin::{Half, UnaccountedMount};
use berth_domain::volume::{Context, HandleUse, NoRoute, Policy, Route, Volume, VolumeSpec};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeKey, WorkerId};
use berth_service::clock;
use berth_service::locks::KeyedLocks;
use berth_service::newer::Readers;
use berth_service::process::{Fatal, Process};
use berth_service::projection::{Allocs, Instances, Nodes, Volumes};
use berth_service::refusals::RefusalTeller;
use berth_service::seal::Keys;

use crate::config::Config;
use crate::secrets::Vault;

/// What the handlers share. Cheap to clone.
#[derive(Clone)]
pub struct State(Arc<StateInner>);

pub struct StateInner {
    pub bus: Bus,
    pub events: Events,
    pub refusals: RefusalTeller,
    pub policy: Policy,
    pub worker: WorkerId,
    pub volumes: Bucket,
    pub allocs: Bucket,
    pub node_records: Bucket,
    pub plugin_records: Bucket,
    pub vault: Vault,
    pub volume_mirror: Mirror<Volumes>,
    pub alloc_mirror: Mirror<Allocs>,
    pub plugins: Mirror<Instances>,
    pub nodes: Mirror<Nodes>,
    /// Held from load to commit: saves replicas of one process from racing themselves.
    pub locks: KeyedLocks<VolumeKey>,
    /// Held from counting a node's volumes to commit, where a plugin takes only so many there.
    pub rooms: KeyedLocks<(PluginId, NodeId)>,
    /// Those who wait for something newer.
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
        let bus = &process.bus;
        let replicas = process.replicas;
        let volumes = bus.bucket(&bucket::VOLUMES, replicas).await?;
        let allocs = bus.bucket(&bucket::ALLOCS, replicas).await?;
        let secrets = bus.bucket(&bucket::SECRETS, replicas).await?;
        let plugins = bus.bucket(&bucket::PLUGINS, replicas).await?;
        let nodes = bus.bucket(&bucket::NODES, replicas).await?;
        for opened in [&volumes, &allocs, &secrets, &plugins, &nodes] {
            for drift in opened.drift() {
                tracing::warn!(bucket = opened.name(), %drift, "the bucket is not as it should be");
            }
        }
        volumes.watch_clock();
        let events = bus.events(&stream::EVENTS, replicas).await?;
        let options = MirrorOptions::default();
        let projection = Volumes::default().with_call_timeout(config.policy.call_timeout);
        Ok(Self(Arc::new(StateInner {
            bus: bus.clone(),
            refusals: RefusalTeller::new(events.clone(), CLAIM),
            events,
            policy: config.policy,
            worker: process.worker.clone(),
            volume_mirror: Mirror::start(&volumes, ">", projection, options).await?,
            alloc_mirror: Mirror::start(&allocs, ">", Allocs::default(), options).await?,
            plugins: Mirror::start(&plugins, ">", Instances::default(), options).await?,
            nodes: Mirror::start(&nodes, ">", Nodes::default(), options).await?,
            volumes,
            allocs,
            node_records: nodes,
            plugin_records: plugins,
            vault: Vault::new(secrets, keys),
            locks: KeyedLocks::default(),
            rooms: KeyedLocks::default(),
            readers: Readers::default(),
        })))
    }
}

impl StateInner {
    /// What a decision needs besides the record.
    pub fn context(&self) -> Context {
        Context {
            now: clock::now(),
            attempt: clock::new_attempt(),
            jitter: clock::jitter(),
            policy: self.policy,
            handle: HandleUse::default(),
        }
    }

    /// How many other volumes of its plugin the node has besides this one, in all namespaces; none
    /// when it has this one already.
    pub fn others_on(&self, volume: &VolumeKey, node: &NodeId) -> Option<u64> {
        self.volume_mirror.read(|volumes| {
            let spec = volumes.get(volume)?.volume.spec.as_ref()?;
            others_on(volumes, volume, &spec.plugin, node)
        })
    }

    /// Whether the plugin takes only so many volumes on the node.
    pub fn is_bounded(&self, volume: &VolumeKey, node: &NodeId) -> Option<PluginId> {
        let plugin = self
            .volume_mirror
            .read(|volumes| Some(volumes.get(volume)?.volume.spec.as_ref()?.plugin.clone()))?;
        let bounded = self.plugins.read(|plugins| {
            let instance = plugins.get(&plugin)?.instances.get(&(node.clone(), Half::Node))?;
            instance.node.as_ref()?.max_volumes
        });
        bounded.map(|_| plugin)
    }

    /// How a volume gets to a node that has so many others, or why it cannot now.
    pub fn route(
        &self,
        volume: &VolumeKey,
        spec: &VolumeSpec,
        node: &NodeId,
        volumes: Option<u64>,
    ) -> Result<Route, NoRoute> {
        self.nodes.read(|nodes| {
            self.plugins.read(|plugins| {
                readable(nodes, plugins, &spec.plugin, node)?;
                let (id, record) = (&spec.plugin, nodes.get(node));
                let unaccounted = unaccounted_elsewhere(nodes, volume, node);
                let plugin = plugins.get(id);
                let site = Site { node, record, id, plugin, unaccounted, volumes };
                placement::route(spec, site, |node| nodes.is_ready(node), self.policy.clock_margin)
            })
        })
    }

    /// The call with what the plugin calls the node. Claims of an older version do not say (D9):
    /// then it is what the plugin's instance there last said. No controller is asked without it,
    /// since CSI takes an unpublish that names no node for one from every node.
    pub fn with_external_node(&self, mut call: Call) -> Call {
        if call.external_node.is_none() {
            call.external_node = self.plugins.read(|plugins| {
                let instances = &plugins.get(&call.plugin)?.instances;
                let abilities = instances.get(&(call.node.clone(), Half::Node))?.node.as_ref()?;
                Some(abilities.external_node.clone()).filter(|node| !node.is_empty())
            });
        }
        call
    }

    /// The call, to the controller that has to be the one to get it, if it is one to a controller;
    /// with those who may be at an earlier one.
    pub fn addressed(&self, mut call: Call, volume: &Volume) -> Call {
        if !call.call.is_controller() {
            return call;
        }
        let topologies = volume.spec.as_ref().map_or(&[][..], |spec| &spec.topologies);
        self.nodes.read(|nodes| {
            self.plugins.read(|plugins| {
                let Some(plugin) = plugins.get(&call.plugin) else { return };
                let ready = |node: &NodeId| nodes.is_ready(node);
                call.controller = plugin.controller_beside(&call.node, topologies, ready);
                let unsettled = volume.unsettled(&call.alloc);
                let others = plugin.may_be_calling(unsettled, topologies, ready).into_iter();
                // The one that gets the call makes one after the other.
                let others = others.filter(|node| Some(*node) != call.controller.as_ref());
                call.ask_first = others.cloned().collect();
            });
        });
        call
    }

    /// Whether the alloc has not ended, and so wants its claims.
    pub fn is_wanted(&self, namespace: &Namespace, alloc: &AllocId) -> bool {
        self.alloc_mirror.read(|allocs| allocs.is_live(namespace, alloc))
    }
}

/// Whether all that is recorded of the node, and of the plugin there, can be read.
pub fn readable(
    nodes: &Nodes,
    plugins: &Instances,
    plugin: &PluginId,
    node: &NodeId,
) -> Result<(), NoRoute> {
    if let Some(record) = nodes.unreadable().get(node) {
        return Err(NoRoute::Node(record.to_string()));
    }
    let here = |record: &&UnreadableRecord| {
        key::parse_instance(&record.key).is_some_and(|(_, on, _)| on == *node)
    };
    match plugins.unreadable_of(plugin).find(here) {
        Some(record) => Err(NoRoute::Plugin(record.to_string())),
        None => Ok(()),
    }
}

/// A mount of the volume on another node that no claim covers. What the node itself has mounted,
/// its own agent judges when it mounts.
fn unaccounted_elsewhere<'a>(
    nodes: &'a Nodes,
    volume: &VolumeKey,
    node: &NodeId,
) -> Option<(&'a NodeId, &'a UnaccountedMount)> {
    nodes.unaccounted().find(|(other, mount)| mount.is_of(volume) && *other != node)
}

/// What is known of a node, for a volume of a plugin.
pub fn site<'a>(
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
        volumes: others_on(volumes, volume, plugin, node),
    }
}

fn others_on(
    volumes: &Volumes,
    volume: &VolumeKey,
    plugin: &PluginId,
    node: &NodeId,
) -> Option<u64> {
    let here = volumes.get(volume).is_some_and(|subtree| subtree.volume.claims.held_on(node));
    (!here).then(|| volumes.load().of(plugin, node))
}
