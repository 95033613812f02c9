//! The state that all handlers share: buckets, mirrors, events.

use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bucket, Bus, Events, Mirror, MirrorOptions};
use berth_contract::problem::Problem;
use berth_contract::{bucket, stream};
use berth_service::process::{Fatal, Process};
use berth_service::projection::{Instances, Nodes};
use berth_service::record_table::{RecordTable, open_bucket};
use tokio::time::Instant;

use super::event_shares::EventShares;
use super::held_leases::HeldLeases;
use super::pace::Pace;
use super::volumes_incarnation::VolumesIncarnation;

/// A wait ends this long before the caller's deadline, so that the answer still arrives in time.
const ANSWER_BEFORE: Duration = Duration::from_millis(200);

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct State(Arc<StateInner>);

#[derive(Debug)]
pub struct StateInner {
    pub bus: Bus,
    /// Instances and jobs, folded into plugins.
    pub plugins: RecordTable<Instances>,
    pub nodes: RecordTable<Nodes>,
    /// Read to verify what a node reports of an alloc.
    pub allocs: Bucket,
    /// Read for the claim of an alloc that has no record.
    pub volume_records: Bucket,
    /// Leases of nodes are written here on behalf of their agents.
    pub leases: Bucket,
    pub lease_mirror: Mirror<HeldLeases>,
    pub events: Events,
    /// The rest of each node's share of the stream of events.
    pub event_shares: EventShares,
    pub pace: Pace,
    pub volumes: VolumesIncarnation,
}

impl std::ops::Deref for State {
    type Target = StateInner;
    fn deref(&self) -> &StateInner {
        &self.0
    }
}

impl State {
    /// Opens the buckets and reads them.
    pub async fn open(process: &Process, pace: Pace) -> Result<Self, Fatal> {
        let plugins = RecordTable::open(process, &bucket::PLUGINS, Instances::default()).await?;
        let nodes = RecordTable::open(process, &bucket::NODES, Nodes::default()).await?;
        nodes.bucket.watch_clock();
        let leases = open_bucket(process, &bucket::LEASES).await?;
        let allocs = open_bucket(process, &bucket::ALLOCS).await?;
        let volume_records = open_bucket(process, &bucket::VOLUMES).await?;
        let options = MirrorOptions::default();
        Ok(Self(Arc::new(StateInner {
            bus: process.bus.clone(),
            lease_mirror: Mirror::start(
                &leases,
                HeldLeases::FILTER,
                HeldLeases::default(),
                options,
            )
            .await?,
            events: process.bus.events(&stream::EVENTS, process.replicas).await?,
            event_shares: EventShares::default(),
            pace,
            volumes: VolumesIncarnation::default(),
            plugins,
            nodes,
            allocs,
            volume_records,
            leases,
        })))
    }
}

impl StateInner {
    /// Waits until the mirrors show everything that was stored before the call, whichever replica
    /// stored it.
    pub async fn catch_up(&self, deadline: Instant) -> Result<(), Problem> {
        let deadline = deadline.checked_sub(ANSWER_BEFORE).unwrap_or(deadline);
        // Not the buckets' heads: a head falls when a marker is purged, and then a mirror that
        // missed the delete would seem to be up to date.
        let (plugins, nodes) =
            tokio::join!(self.plugins.bucket.newest(), self.nodes.bucket.newest());
        let plugins = plugins?;
        let nodes = nodes?;
        let (plugins, nodes) = tokio::join!(
            self.plugins.mirror.reach(plugins, deadline),
            self.nodes.mirror.reach(nodes, deadline),
        );
        plugins.and(nodes).map_err(Problem::from)
    }
}
