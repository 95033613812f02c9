//! The agent: started stage by stage, run, and taken apart in order.
//!
//! **Owns** the order of the stages. **Promises** that no stage begins before those that it needs:
//! it takes their values. **Never** decides about a volume or calls a plugin.
//!
//! | stage | needs | because |
//! | --- | --- | --- |
//! | [`LocalState`] | the configuration | |
//! | [`HeldLease`] | the local state | the journal's lock keeps a second agent away |
//! | [`RunningPlugins`] | the lease | controllers are called while the node's lease is held only |
//! | [`AnsweringNode`] | the plugins | the instances of an earlier process are known by then |
//! | [`BackgroundTasks`] | the answering node | the first report opens the gate to mounts |
//!
//! The end goes backwards: [`run`] says it in its last lines.

use std::sync::Arc;
use std::time::Duration;

use berth_bus::{EventSender, KeptLease, Service};
use berth_host::HostPool;
use berth_service::clock;
use berth_service::fault_report::FaultReport;
use berth_service::hung::watch_hung;
use berth_service::process::{Fatal, Process};
use berth_service::shutdown::Shutdown;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::comeback;
use super::compare::ClaimComparison;
use super::local_state::LocalState;
use super::report::Reporter;
use crate::config::Config;
use crate::controllers::{ControllerHosting, CreationAnswers, HostedControllers};
use crate::endpoints::{self, Handlers};
use crate::executor::VolumeExecutor;
use crate::fleet::events::EventPublisher;
use crate::fleet::finish;
use crate::fleet::gate::Gate;
use crate::fleet::hosting::HostingRights;
use crate::fleet::lease::{Holder, LeaseTtl, NodeLease};
use crate::fleet::secret::{SealingKey, SecretsReader};
use crate::fleet::start_revision::StartRevision;
use crate::fleet::unaccounted::UnaccountedMounts;
use crate::mounts::health::MountHealths;
use crate::mounts::runs;
use crate::mounts::{
    Binds, ClaimService, Expanding, Guards, LocalVolumes, MountHandlers, Mounting, NodePlugins,
    NodeStatus, Unmounting, watch_mounts,
};
use crate::plugins::record::InstanceRecords;
use crate::plugins::{Plugins, ProbeTiming};
use crate::roster::{
    ORDERS_MAX, PluginOrders, PluginSources, Roster, RosterContext, RosterRequest,
};

/// Time for the last report.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the last events.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until the shutdown is requested.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let local = LocalState::open(&config).await?;
    let sealing = SealingKey::generate();
    let startup = Startup { config: &config, process: &process, local: &local, sealing };
    let Some(held) = startup.acquire_lease().await? else { return Ok(()) };
    // From here on the shutdown comes when the releases under way here are finished.
    let (end, shutdown) = Shutdown::new();
    let (bus, node, requested) =
        (process.bus.clone(), config.node.clone(), process.shutdown.clone());
    let finishing = finish::finish_releases(bus, node, config.finish_releases, requested, end);
    let finishing = tokio::spawn(finishing);

    let (plugins, requests) = startup.start_plugins(&held, &shutdown).await;
    let answering = startup.start_answering(&held, &plugins, requests).await?;
    require_mounts(&process, &held.gate, local.journal.fault());
    process.report_ready();
    let mut background = startup.start_background(&held, &plugins, &answering, &shutdown);

    let HeldLease { node_lease, lease, events, .. } = held;
    let lease = node_lease.keep(lease, &shutdown).await?;

    finishing.abort();
    background.tasks.abort_all();
    drain(answering, plugins, &background.reporter, config.drain).await;
    events.flush(LAST_EVENTS_TIMEOUT).await;
    if let Some(lease) = lease {
        node_lease.give_up(lease).await;
    }
    Ok(())
}

/// Adds to `/readyz` what a mount needs besides the bus.
fn require_mounts(process: &Process, gate: &Gate, journal: FaultReport) {
    let gate = gate.clone();
    process.readiness.require(move || Some(gate.check_open().err()?.message));
    process.readiness.require(move || Some(format!("the journal: {}", journal.current()?)));
}

/// What every stage after the first needs.
struct Startup<'a> {
    config: &'a Config,
    process: &'a Process,
    local: &'a LocalState,
    /// The key that secrets for this process are sealed for.
    sealing: SealingKey,
}

/// The node's lease is held, and calls up to `started_at` are refused from now on.
struct HeldLease {
    node_lease: NodeLease,
    lease: KeptLease,
    started_at: StartRevision,
    gate: Gate,
    events: EventSender,
    publisher: EventPublisher,
}

/// The plugins of an earlier process and those declared now are taken in, and watched.
struct RunningPlugins {
    plugins: Plugins,
    hosting: ControllerHosting,
    /// Ends at the shutdown, and returns the controllers that are still to end.
    roster: JoinHandle<JoinSet<()>>,
}

/// Requests to this node are answered.
struct AnsweringNode {
    service: Service,
    handlers: Handlers,
}

/// What goes on beside the requests.
struct BackgroundTasks {
    tasks: JoinSet<()>,
    reporter: Reporter,
}

impl Startup<'_> {
    /// Waits for the node's lease. Returns `None` if the shutdown comes first.
    async fn acquire_lease(&self) -> Result<Option<HeldLease>, Fatal> {
        let (host, shutdown) = (&self.local.host, &self.process.shutdown);
        let events = self.process.bus.events_by_request();
        let gate = Gate::default();
        let holder = Holder {
            node: host.node.clone(),
            agent: self.local.agent_id.clone(),
            boot_id: host.boot_id.clone(),
            hostname: host.attributes.get("hostname").cloned().unwrap_or_default(),
            pid: std::process::id(),
            since: clock::now(),
        };
        let ttl = LeaseTtl::new(self.config.lease_ttl);
        let volumes = watch::Sender::new(0);
        let node_lease =
            NodeLease { bus: self.process.bus.clone(), holder, ttl, gate: gate.clone(), volumes };
        let (bus, node, missing) = (&self.process.bus, &host.node, FaultReport::default());
        let why = missing.clone();
        self.process.readiness.require(move || why.current());
        let (lease, started_at) = loop {
            let Some(lease) = node_lease.acquire(shutdown).await else { return Ok(None) };
            tokio::select! {
                started_at = StartRevision::read(bus, node, &lease, &missing) => {
                    break (lease, started_at);
                }
                // Another agent of the node may execute calls again.
                () = lease.lost() => {
                    gate.lease_lost();
                    tracing::warn!(%node, "the node's lease is lost before the start was complete");
                }
                () = shutdown.requested() => {
                    node_lease.give_up(lease).await;
                    return Ok(None);
                }
            }
        };
        let publisher = EventPublisher::new(events.clone(), host.node.clone());
        Ok(Some(HeldLease { node_lease, lease, started_at, gate, events, publisher }))
    }

    /// Takes in the plugins, and returns where requests to the roster go.
    async fn start_plugins(
        &self,
        held: &HeldLease,
        shutdown: &Shutdown,
    ) -> (RunningPlugins, mpsc::Sender<RosterRequest>) {
        let Self { config, process, local, ref sealing } = *self;
        let plugins = Plugins::new(config.plugin_patience, Some(held.publisher.clone()));
        let hosting = ControllerHosting {
            bus: process.bus.clone(),
            node: config.node.clone(),
            executor: VolumeExecutor::new(held.started_at),
            hosted: HostedControllers::default(),
            events: held.publisher.clone(),
            sealing: sealing.clone(),
            answers: CreationAnswers::default(),
            drain: config.drain,
        };
        let context = RosterContext {
            plugins: plugins.clone(),
            sources: PluginSources {
                configured: config.plugins.clone(),
                plugins_dir: config.plugins_dir.clone(),
                sockets_dir: config.sockets_dir.clone(),
            },
            supervision: ProbeTiming {
                interval: config.probe_interval,
                timeout: config.probe_timeout,
            },
            records: InstanceRecords::new(&local.dir),
            journal: local.journal.clone(),
            hosting: hosting.clone(),
            boot_id: local.host.boot_id.clone(),
            finish_releases: config.finish_releases,
        };
        let (sender, requests) = mpsc::channel(ORDERS_MAX);
        let roster = Roster::start(context, shutdown.clone()).await;
        let roster = tokio::spawn(roster.run(requests));
        (RunningPlugins { plugins, hosting, roster }, sender)
    }

    /// Starts answering requests to this node. Mounts are refused until the gate opens.
    async fn start_answering(
        &self,
        held: &HeldLease,
        running: &RunningPlugins,
        orders: mpsc::Sender<RosterRequest>,
    ) -> Result<AnsweringNode, Fatal> {
        let (bus, node, events) = (&self.process.bus, &self.config.node, &held.publisher);
        // What was mounted before this start is told of with its wanter, too.
        for (volume, alloc, entry) in self.local.journal.uses() {
            events.learn(&volume.namespace, &alloc, entry.by.as_ref());
        }
        let handlers = self.handlers(held, running, orders);
        let service = endpoints::serve(&handlers, bus, node, events).await?;
        Ok(AnsweringNode { service, handlers })
    }

    /// Who answers requests to this node.
    fn handlers(
        &self,
        held: &HeldLease,
        running: &RunningPlugins,
        orders: mpsc::Sender<RosterRequest>,
    ) -> Handlers {
        let Self { config, process, local: own, ref sealing } = *self;
        let (pool, boot_id) = (HostPool::of_process(), &own.host.boot_id);
        let (bus, node) = (process.bus.clone(), config.node.clone());
        let (hosting, events) = (&running.hosting, &held.publisher);
        let local = LocalVolumes {
            node: node.clone(),
            boot_id: boot_id.clone(),
            paths: own.paths.clone(),
            journal: own.journal.clone(),
            binds: Binds::new(&pool, &own.paths, boot_id, &config.bind_below),
            unaccounted: UnaccountedMounts::default(),
        };
        let plugins = NodePlugins::new(running.plugins.clone(), pool.clone());
        let executor = VolumeExecutor::new(held.started_at);
        let claims = ClaimService { bus: bus.clone(), node: node.clone() };
        let secrets = SecretsReader { bus: bus.clone(), node, sealing: sealing.clone() };
        let healths = MountHealths::new(&pool);
        let mounting = Arc::new(Mounting {
            local: local.clone(),
            plugins: plugins.clone(),
            executor: executor.clone(),
            gate: held.gate.clone(),
            claims: claims.clone(),
            secrets: secrets.clone(),
            healths: healths.clone(),
            events: events.clone(),
        });
        let requests = MountHandlers::new(Arc::clone(&mounting), &own.runs, config.place_kept);
        let requests = Arc::new(requests);
        let unmounting = Unmounting {
            local: local.clone(),
            plugins: plugins.clone(),
            executor: executor.clone(),
            runs: own.runs.clone(),
            claims: claims.clone(),
            events: events.clone(),
        };
        let expanding = Expanding {
            local: local.clone(),
            plugins,
            executor: executor.clone(),
            secrets,
            events: events.clone(),
        };
        let guards = Guards { claims, runs: own.runs.clone(), boot_id: boot_id.clone() };
        let status = NodeStatus {
            local,
            since: clock::now(),
            healths,
            runs: own.runs.clone(),
            executor,
            controllers: hosting.executor.clone(),
            hosted: hosting.hosted.clone(),
            answers: hosting.answers.clone(),
            requests: Arc::clone(&requests),
            bus,
        };
        let (plugins, journal) = (running.plugins.clone(), own.journal.clone());
        Handlers {
            requests,
            mounting,
            unmounting: Arc::new(unmounting),
            expanding: Arc::new(expanding),
            guards: Arc::new(guards),
            status: Arc::new(status),
            plugins: PluginOrders { plugins, journal, orders },
        }
    }

    /// Starts the reports, and the tasks that watch what is mounted.
    fn start_background(
        &self,
        held: &HeldLease,
        running: &RunningPlugins,
        answering: &AnsweringNode,
        shutdown: &Shutdown,
    ) -> BackgroundTasks {
        let Self { config, process, local, ref sealing } = *self;
        let Handlers { mounting, unmounting, .. } = &answering.handlers;
        let hung = FaultReport::default();
        let unseen = FaultReport::default();
        let compared = watch::Sender::new(0);
        let reporter = Reporter {
            compared: compared.subscribe(),
            journal: local.journal.fault(),
            hung: hung.clone(),
            unseen: unseen.clone(),
            bus: process.bus.clone(),
            host: local.host.clone(),
            plugins: running.plugins.clone(),
            interval: config.report_interval,
            ttl: held.node_lease.ttl.clone(),
            gate: held.gate.clone(),
            unaccounted: mounting.local.unaccounted.clone(),
            sealing: sealing.clone(),
            rights: HostingRights::new(process.bus.clone(), config.node.clone()),
        };
        let comparison = ClaimComparison {
            unmounting: Arc::clone(unmounting),
            unaccounted: mounting.local.unaccounted.clone(),
            events: held.publisher.clone(),
            journal: local.journal.clone(),
            gate: held.gate.clone(),
            bus: process.bus.clone(),
            node: config.node.clone(),
            volumes: held.node_lease.volumes.subscribe(),
            compared,
        };
        let mut tasks = watch_mounts(mounting, config.look_interval, shutdown);
        tasks.spawn(local.journal.clone().keep_open(shutdown.clone()));
        tasks.spawn(watch_hung(hung, HostPool::of_process(), shutdown.clone()));
        tasks.spawn(reporter.clone().run(shutdown.clone()));
        tasks.spawn(comparison.run(shutdown.clone()));
        let bus = process.bus.clone();
        tasks.spawn(runs::watch_runs(local.runs.clone(), bus, unseen, shutdown.clone()));
        tasks.spawn(comeback::undo_when_gone(
            unmounting.clone(),
            held.gate.clone(),
            shutdown.clone(),
        ));
        BackgroundTasks { tasks, reporter }
    }
}

/// Takes no new request, tells the registry, and finishes what is under way within that time.
async fn drain(
    answering: AnsweringNode,
    running: RunningPlugins,
    reporter: &Reporter,
    within: Duration,
) {
    // Every plugin counts as unhealthy now, which also ends its controller here.
    let mut controllers = running.roster.await.unwrap_or_default();
    if let Err(error) = reporter.report_once(LAST_REPORT_TIMEOUT).await {
        let why = berth_service::process::chain(&error);
        tracing::warn!(why, "the registry was not told that the agent is stopping");
    }
    let busy = async {
        let controllers_end = async { while controllers.join_next().await.is_some() {} };
        let (answered, ()) = tokio::join!(answering.service.stop(within), controllers_end);
        let mut idle = answered;
        for executor in [&running.hosting.executor, &answering.handlers.mounting.executor] {
            idle &= executor.wait_idle(within).await;
        }
        !idle
    };
    if tokio::time::timeout(within, busy).await.unwrap_or(true) {
        tracing::warn!("a plugin still works on a call; the journal says what may be mounted");
    }
}
