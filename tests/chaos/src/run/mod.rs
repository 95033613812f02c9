//! Carries out a plan.
//!
//! Owns: the start of each operation and fault at its moment, each in its own task. Promises: all
//! of them have ended, and every fault is mended, when [`Run::carry_out`] returns. Never: decides
//! what is done; see [`crate::plan`].

mod client;
mod lost_record;
mod node_absence;
mod reads;
mod records;
mod restored;
mod settle;
mod snapshots;
mod storage;
mod storage_lists;
mod strike;
mod volume;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use berth_bus::Bucket;
use berth_contract::bucket;
use berth_contract::message::registry::Plugins;
use berth_contract::verb::{self, Verb as _};
use berth_harness::wait;
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::ledger::Ledger;
use crate::plan::{
    Action, CREATED_NUMBERS, Event, EventKind, Operation, SCRATCH, Shape, Target, VOLUMES, kind_of,
};
use crate::site::Site;

/// How long the whole system may take to come up.
const READY: Duration = Duration::from_secs(90);
/// How long operations may go on after the last one began. Each operation gives up earlier.
const LAST: Duration = Duration::from_secs(150);

/// How long after the last fault everything must work.
const CALM: Duration = Duration::from_secs(90);

/// The lock that a fault holds while its target suffers.
type Turn = tokio::sync::Mutex<()>;

/// A run of a plan on a system.
pub(crate) struct Run {
    pub site: Site,
    pub ledger: Ledger,
    /// The claims as the stream's leader has them. This connection uses none of the cables.
    volumes: Bucket,
    books: Vec<volume::Book>,
    /// The processes that are down because the plan says so.
    down: Mutex<BTreeSet<Target>>,
    /// One lock for each target, so that one fault at a time strikes it.
    turns: BTreeMap<Target, Turn>,
    /// When the last event of the plan begins.
    last: OnceLock<Instant>,
}

impl Run {
    /// Starts the system, and registers or creates the volumes.
    pub(crate) async fn start(shape: Shape) -> Arc<Self> {
        let site = Site::start(shape).await;
        let volumes = site.bus.bucket(&bucket::VOLUMES, site.nats.copies()).await;
        let run = Self {
            site,
            ledger: Ledger::default(),
            volumes: volumes.expect("the bucket of volumes can be opened"),
            books: (0..SCRATCH).map(|_| volume::Book::default()).collect(),
            down: Mutex::new(BTreeSet::new()),
            turns: Target::all(shape).into_iter().map(|target| (target, Turn::default())).collect(),
            last: OnceLock::new(),
        };
        wait::until("every plugin is healthy everywhere", READY, || run.healthy()).await;
        for volume in 0..VOLUMES.len() {
            run.register_first(volume).await;
        }
        for volume in CREATED_NUMBERS {
            let created = run.create_again(volume).await;
            assert!(created.is_ok() || !run.can_create(volume), "{created:?}");
        }
        Arc::new(run)
    }

    /// Whether all instances of each plugin are there and healthy.
    async fn healthy(&self) -> Result<(), String> {
        let plugins = self.ask::<Plugins>(&verb::PluginStatus::subject(&()), &json!({})).await;
        let plugins = plugins.map_err(|problem| problem.to_string())?.plugins;
        let nodes = self.site.shape.nodes;
        let well = |count: usize| count == nodes;
        let all_healthy = plugins.iter().all(|plugin| {
            let controllers = plugin.controllers.is_none_or(|count| well(count.healthy));
            well(plugin.nodes.healthy) && controllers
        });
        if all_healthy && plugins.len() == crate::plan::PLUGINS.len() {
            return Ok(());
        }
        Err(serde_json::to_string(&plugins).unwrap_or_default())
    }

    /// Carries out all events of the plan, and mends all faults.
    pub(crate) async fn carry_out(self: &Arc<Self>, plan: Vec<Event>) {
        let keeper = Keeper(tokio::spawn(Arc::clone(self).keep_running()));
        let start = Instant::now();
        let last = plan.last().map_or(Duration::ZERO, |event| event.at);
        self.last.get_or_init(|| start + last);
        let mut tasks = JoinSet::new();
        for event in plan {
            sleep_until(start + event.at).await;
            self.ledger.note(&event.kind);
            let run = Arc::clone(self);
            tasks.spawn(async move {
                match event.kind {
                    EventKind::Operation(operation) => run.operate(operation).await,
                    EventKind::Strike(strike) => run.strike(strike).await,
                }
            });
        }
        let last = async {
            while let Some(ended) = tasks.join_next().await {
                if let Err(defect) = ended {
                    self.ledger.violated("a task of the test failed", defect);
                }
            }
        };
        if timeout(LAST, last).await.is_err() {
            self.ledger.violated("stuck", format!("operations go on {LAST:?} after the last"));
        }
        drop(keeper);
        self.revive();
    }

    async fn operate(&self, operation: Operation) {
        let kind = operation.kind();
        let alloc = format!("a{}", operation.number);
        let end = match &operation.action {
            Action::Workload(workload) => self.workload(&alloc, workload).await,
            Action::Update { volume } => self.update(*volume).await,
            Action::Renew { volume, force, pause } => self.renew(*volume, *force, *pause).await,
            Action::Detach { volume, node } => self.detach(*volume, *node).await,
            Action::Storage(action) => self.store(operation.number, action).await,
            Action::Collect => self.collect().await,
            Action::Read(read) => self.read_once(*read).await,
        };
        self.ledger.ended(kind, end);
    }

    /// The moment from which something that may take `patience` counts as stuck. Other faults
    /// keep three servers without a quorum for minutes, so that moment is some time after the last
    /// event.
    fn stuck_at(&self, patience: Duration) -> Instant {
        let last = self.last.get().copied().unwrap_or_else(Instant::now);
        (Instant::now() + patience).max(last + CALM)
    }

    /// Whether the volume exists before the run, or its plugin can create it.
    fn can_create(&self, volume: usize) -> bool {
        volume < VOLUMES.len()
            || kind_of(volume).plugin == 0
            || self.site.shape.lacks != "--no-controller"
    }

    fn down(&self) -> std::sync::MutexGuard<'_, BTreeSet<Target>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that keeps the processes running. It ends when this is dropped.
struct Keeper(JoinHandle<()>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}
