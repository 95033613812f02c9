//! What sweeps share.

use std::sync::Arc;

use berth_bus::{Bucket, Bus, Mirror, MirrorOptions};
use berth_contract::bucket;
use berth_service::process::{Fatal, Process};
use berth_service::projection::{Allocs, Volumes};
use tokio::sync::Mutex;

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
    pub(crate) leases: Bucket,
    pub(crate) volume_mirror: Mirror<Volumes>,
    pub(crate) alloc_mirror: Mirror<Allocs>,
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
        let leases = bus.bucket(&bucket::LEASES, replicas).await?;
        for opened in [&volumes, &allocs, &leases] {
            for drift in opened.drift() {
                tracing::warn!(bucket = opened.name(), %drift, "the bucket is not as it should be");
            }
        }
        let options = MirrorOptions::default();
        Ok(Self(Arc::new(Shared {
            volume_mirror: Mirror::start(&volumes, ">", Volumes::default(), options).await?,
            alloc_mirror: Mirror::start(&allocs, ">", Allocs::default(), options).await?,
            bus,
            config,
            volumes,
            allocs,
            leases,
            turn: Mutex::default(),
        })))
    }
}
