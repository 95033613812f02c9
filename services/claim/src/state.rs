//! What the handlers share.

use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bucket, Bus, Events, Mirror, MirrorOptions};
use berth_contract::{bucket, stream};
use berth_domain::volume::{Context, NoRoute, Policy, Route};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeKey, WorkerId};
use berth_service::clock;
use berth_service::locks::KeyedLocks;
use berth_service::process::{Fatal, Process};
use berth_service::projection::{Allocs, Instances, Nodes, Volumes};
use berth_service::seal::Keys;

use crate::config::Config;
use crate::secrets::Vault;

/// What the handlers share. Cheap to clone.
#[derive(Clone)]
pub struct State(Arc<Shared>);

pub struct Shared {
    pub bus: Bus,
    pub events: Events,
    pub policy: Policy,
    pub worker: WorkerId,
    pub volumes: Bucket,
    pub allocs: Bucket,
    pub node_records: Bucket,
    pub vault: Vault,
    pub volume_mirror: Mirror<Volumes>,
    pub alloc_mirror: Mirror<Allocs>,
    pub plugins: Mirror<Instances>,
    pub nodes: Mirror<Nodes>,
    /// Held from load to commit: saves replicas of one process from racing themselves.
    pub locks: KeyedLocks<VolumeKey>,
}

impl std::ops::Deref for State {
    type Target = Shared;
    fn deref(&self) -> &Shared {
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
        let events = bus.events(&stream::EVENTS, replicas).await?;
        let options = MirrorOptions::default();
        Ok(Self(Arc::new(Shared {
            bus: bus.clone(),
            events,
            policy: config.policy,
            worker: process.worker.clone(),
            volume_mirror: Mirror::start(&volumes, ">", Volumes::default(), options).await?,
            alloc_mirror: Mirror::start(&allocs, ">", Allocs::default(), options).await?,
            plugins: Mirror::start(&plugins, ">", Instances::default(), options).await?,
            nodes: Mirror::start(&nodes, ">", Nodes::default(), options).await?,
            volumes,
            allocs,
            node_records: nodes,
            vault: Vault::new(secrets, keys),
            locks: KeyedLocks::default(),
        })))
    }
}

impl Shared {
    /// What a decision needs besides the record.
    pub fn context(&self) -> Context {
        Context {
            now: clock::now(),
            attempt: clock::new_attempt(),
            jitter: clock::jitter(),
            policy: self.policy,
        }
    }

    /// How a plugin's volume gets to a node, or why it cannot now.
    pub fn route(&self, plugin: &PluginId, node: &NodeId) -> Result<Route, NoRoute> {
        self.nodes.read(|nodes| {
            if let Some(known) = nodes.get(node) {
                let skew = Duration::from_millis(known.clock_skew_ms.unsigned_abs());
                if skew > self.policy.clock_margin {
                    return Err(NoRoute::Clock(format!(
                        "node {node} is {} ms off, more than the margin of {:?}; \
                         set its clock, or deadlines mean nothing there",
                        known.clock_skew_ms, self.policy.clock_margin
                    )));
                }
            }
            let route = self.plugins.read(|plugins| match plugins.get(plugin) {
                None => Err(format!("no agent has reported plugin {plugin}")),
                Some(found) => found.route(node, |node| nodes.is_ready(node)),
            });
            route.map_err(NoRoute::Plugin)
        })
    }

    /// Whether the alloc has not ended, and so wants its claims.
    pub fn is_wanted(&self, namespace: &Namespace, alloc: &AllocId) -> bool {
        self.alloc_mirror.read(|allocs| allocs.is_live(namespace, alloc))
    }
}
