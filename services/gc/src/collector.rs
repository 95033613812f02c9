//! The parts that all sweeps share, and the order of one sweep.

use std::sync::Weak;
use std::time::Duration;

use berth_bus::{Bucket, Bus, KeptLease};
use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::message::collect::Kind;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_service::process::{Fatal, Process};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config::Config;

/// The parts that all sweeps share.
#[derive(Debug)]
pub struct Collector {
    pub(crate) bus: Bus,
    pub(crate) config: Config,
    pub(crate) volumes: Bucket,
    pub(crate) allocs: Bucket,
    pub(crate) nodes: Bucket,
    pub(crate) plugins: Bucket,
    pub(crate) leases: Bucket,
    /// One sweep at a time.
    pub(crate) turn: Mutex<Cursors>,
}

/// Where the next sweep goes on in each list: `after` of its page. None for the beginning.
#[derive(Debug, Default)]
pub struct Cursors {
    pub closing: Option<String>,
    pub claims: Option<String>,
    pub allocs: Option<String>,
    pub nodes: Option<String>,
}

impl Collector {
    /// Opens the buckets.
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
        nodes.watch_clock();
        let turn = Mutex::default();
        Ok(Self { bus, config, volumes, allocs, nodes, plugins, leases, turn })
    }
}

/// The order of a sweep: what it looks for, for whom and until when.
#[derive(Debug)]
pub struct Order {
    /// The kinds to look for, each with the age that a candidate must have.
    pub kinds: Vec<(Kind, Duration)>,
    /// Every request of the sweep belongs to this trace.
    pub trace: TraceContext,
    /// Candidates that are not collected by then are left to the next sweep.
    pub deadline: Instant,
    /// Whether it is a request, whose sender waits for the answer.
    pub is_forced: bool,
    /// Nothing is requested once this lease may have ended.
    pub lease: Weak<KeptLease>,
}

impl Order {
    /// Refuses unless the collector surely leads now.
    pub fn check_lead(&self) -> Result<(), Problem> {
        if self.lease.upgrade().is_some_and(|lease| lease.is_held()) {
            return Ok(());
        }
        let message = "this collector has just lost its place to another";
        Err(Problem::new(Code::NoResponder, message).retryable())
    }
}
