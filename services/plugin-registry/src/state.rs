//! What the handlers share.

use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bucket, Bus, Events, Mirror, MirrorOptions};
use berth_contract::problem::Problem;
use berth_contract::{bucket, stream};
use berth_domain::NodeId;
use berth_domain::plugin::Half;
use berth_service::newer::Readers;
use berth_service::process::{Fatal, Process};
use berth_service::projection::{Instances, Nodes};
use tokio::time::Instant;

use crate::decide::NodeRecords;
use crate::leases::Leases;
use crate::pace::Pace;

/// How far ahead of a caller's deadline an answer is given up, so that it still arrives.
const ANSWER_BEFORE: Duration = Duration::from_millis(200);

/// What the handlers share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct State(Arc<StateInner>);

/// See [`State`].
#[derive(Debug)]
pub struct StateInner {
    /// Where others are asked.
    pub bus: Bus,
    /// Where instances are written.
    pub plugins: Bucket,
    /// Where nodes are written.
    pub nodes: Bucket,
    /// Where agents hold their leases.
    pub leases: Bucket,
    /// The instances, as plugins.
    pub plugin_mirror: Mirror<Instances>,
    /// The nodes.
    pub node_mirror: Mirror<Nodes>,
    /// The nodes with a lease.
    pub lease_mirror: Mirror<Leases>,
    /// What is told to others.
    pub events: Events,
    /// Those who wait for something newer.
    pub readers: Readers,
    /// How often agents are to say that they live.
    pub pace: Pace,
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
        let (bus, replicas) = (&process.bus, process.replicas);
        let plugins = bus.bucket(&bucket::PLUGINS, replicas).await?;
        let nodes = bus.bucket(&bucket::NODES, replicas).await?;
        let leases = bus.bucket(&bucket::LEASES, replicas).await?;
        for opened in [&plugins, &nodes, &leases] {
            for drift in opened.drift() {
                tracing::warn!(bucket = opened.name(), %drift, "the bucket is not as it should be");
            }
        }
        nodes.watch_clock();
        let options = MirrorOptions::default();
        Ok(Self(Arc::new(StateInner {
            plugin_mirror: Mirror::start(&plugins, ">", Instances::default(), options).await?,
            node_mirror: Mirror::start(&nodes, ">", Nodes::default(), options).await?,
            lease_mirror: Mirror::start(&leases, Leases::FILTER, Leases::default(), options)
                .await?,
            events: bus.events(&stream::EVENTS, replicas).await?,
            readers: Readers::default(),
            pace,
            bus: bus.clone(),
            plugins,
            nodes,
            leases,
        })))
    }
}

impl StateInner {
    /// What the mirrors know of a node.
    pub fn standing(&self, node: &NodeId) -> NodeRecords {
        let mut standing = NodeRecords {
            node: self.node_mirror.read(|nodes| nodes.get(node).cloned()),
            ..NodeRecords::default()
        };
        self.plugin_mirror.read(|plugins| {
            for (id, plugin) in plugins.iter() {
                for half in [Half::Controller, Half::Node] {
                    if let Some(instance) = plugin.instances.get(&(node.clone(), half)) {
                        standing.instances.insert((id.clone(), half), instance.clone());
                    }
                }
            }
        });
        standing
    }

    /// Waits until the mirrors show everything that was stored before the call, whichever replica
    /// stored it.
    pub async fn catch_up(&self, step: &str, deadline: Instant) -> Result<(), Problem> {
        let deadline = deadline.checked_sub(ANSWER_BEFORE).unwrap_or(deadline);
        // Not their heads: those fall when a marker is purged, and a mirror that missed the delete
        // would seem to be there already.
        let (plugins, nodes) = tokio::join!(self.plugins.newest(), self.nodes.newest());
        let plugins = plugins.map_err(|error| error.into_problem(step))?;
        let nodes = nodes.map_err(|error| error.into_problem(step))?;
        let (plugins, nodes) = tokio::join!(
            self.plugin_mirror.reach(plugins, deadline),
            self.node_mirror.reach(nodes, deadline),
        );
        plugins.and(nodes).map_err(|error| error.into_problem(step))
    }
}
