//! What sweeps share.

use std::sync::Arc;

use berth_bus::{Bucket, Bus, Mirror, MirrorOptions};
use berth_contract::bucket;
use berth_contract::problem::Problem;
use berth_service::process::{Fatal, Process};
use berth_service::projection::{Allocs, Instances, Nodes, Volumes};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config::Config;

/// What sweeps share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Collector(Arc<Shared>);

/// See [`Collector`].
#[derive(Debug)]
pub struct Shared {
    pub(crate) bus: Bus,
    pub(crate) config: Config,
    pub(crate) volumes: Bucket,
    pub(crate) allocs: Bucket,
    pub(crate) nodes: Bucket,
    pub(crate) plugins: Bucket,
    pub(crate) leases: Bucket,
    pub(crate) volume_mirror: Mirror<Volumes>,
    pub(crate) alloc_mirror: Mirror<Allocs>,
    pub(crate) node_mirror: Mirror<Nodes>,
    pub(crate) plugin_mirror: Mirror<Instances>,
    /// One sweep at a time.
    pub(crate) turn: Mutex<()>,
}

impl std::ops::Deref for Collector {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Collector {
    /// Opens the buckets and reads them.
    pub async fn open(config: Config, process: &Process) -> Result<Self, Fatal> {
        let (bus, replicas) = (process.bus.clone(), process.replicas);
        let volumes = bus.bucket(&bucket::VOLUMES, replicas).await?;
        let allocs = bus.bucket(&bucket::ALLOCS, replicas).await?;
        let nodes = bus.bucket(&bucket::NODES, replicas).await?;
        let plugins = bus.bucket(&bucket::PLUGINS, replicas).await?;
        let leases = bus.bucket(&bucket::LEASES, replicas).await?;
        for opened in [&volumes, &allocs, &nodes, &plugins, &leases] {
            for drift in opened.drift() {
                tracing::warn!(bucket = opened.name(), %drift, "the bucket is not as it should be");
            }
        }
        let options = MirrorOptions::default();
        Ok(Self(Arc::new(Shared {
            volume_mirror: Mirror::start(&volumes, ">", Volumes::default(), options).await?,
            alloc_mirror: Mirror::start(&allocs, ">", Allocs::default(), options).await?,
            node_mirror: Mirror::start(&nodes, ">", Nodes::default(), options).await?,
            plugin_mirror: Mirror::start(&plugins, ">", Instances::default(), options).await?,
            bus,
            config,
            volumes,
            allocs,
            nodes,
            plugins,
            leases,
            turn: Mutex::default(),
        })))
    }
}

impl Shared {
    /// Waits until the mirrors show everything that was stored before.
    pub(crate) async fn catch_up(&self, step: &str, deadline: Instant) -> Result<(), Problem> {
        let heads = tokio::try_join!(
            self.volumes.head(">"),
            self.allocs.head(">"),
            self.nodes.head(">"),
            self.plugins.head(">"),
        );
        let (volumes, allocs, nodes, plugins) = heads.map_err(|error| error.into_problem(step))?;
        let reached = tokio::try_join!(
            self.volume_mirror.reach(volumes, deadline),
            self.alloc_mirror.reach(allocs, deadline),
            self.node_mirror.reach(nodes, deadline),
            self.plugin_mirror.reach(plugins, deadline),
        );
        reached.map(drop).map_err(|error| error.into_problem(step))
    }
}
