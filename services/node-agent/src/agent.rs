//! The agent: its parts put together, run, and taken apart in order.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_bus::{Bucket, Events, Service};
use berth_contract::{bucket, stream};
use berth_domain::NodeId;
use berth_host::pool::directory_share;
use berth_host::trust::{self, TrustError, TrustedUsers};
use berth_host::{HostOperation, HostPool};
use berth_service::clock;
use berth_service::hung::HungReport;
use berth_service::process::{Fatal, Process};
use berth_service::runs::Runs;
use berth_service::shutdown::Shutdown;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use crate::began;
use crate::comeback;
use crate::config::Config;
use crate::controller::{Hosted, Hosting};
use crate::finish;
use crate::gate::Gate;
use crate::host::Host;
use crate::host_pool::CHANGE_MAX;
use crate::identity::identity;
use crate::journal::Journal;
use crate::lane::Lanes;
use crate::lease::{Holder, Tenure, Ttl};
use crate::look::Looks;
use crate::node::{self, Binds, Mounter, Parts};
use crate::paths::{Paths, STATE_DIR_BYTES_MAX};
use crate::plugin::record::Records;
use crate::plugin::roster::{self, Places, Roster};
use crate::plugin::{self, ORDERS_MAX, Plugins, Supervision};
use crate::report::Reporter;
use crate::runs;
use crate::tell::Teller;
use crate::unaccounted::UnaccountedMounts;

/// How long the last report may take.
const LAST_REPORT: Duration = Duration::from_secs(2);
/// How long the last events may take.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// Why the state directory cannot be used.
#[derive(Debug, Error)]
enum StateDirError {
    /// It cannot be made or followed.
    #[error("the state directory {} cannot be made or opened", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It is a link to a place whose path is too long.
    #[error(
        "the state directory {} is really {}, of more than {STATE_DIR_BYTES_MAX} bytes",
        path.display(),
        real.display()
    )]
    TooLong { path: PathBuf, real: PathBuf },
    /// Others could put files there.
    #[error("the state directory {} may hold what others have put there", path.display())]
    Untrusted {
        path: PathBuf,
        #[source]
        source: TrustError,
    },
}

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let shutdown = process.shutdown.clone();
    let (pool, hung) = (HostPool::of_process(), HungReport::default());
    let State { dir: state_dir, runs, host, id } = State::read(&config, &pool).await?;
    // Opening it also makes sure that no other agent works here.
    let journal = Journal::open(state_dir.join("journal")).await?;
    let paths = Paths::new(&state_dir);
    node::log_what_is_here(&journal, &paths, &host.boot_id).await?;
    let gate = Gate::default();
    let (leases, events, volumes) = process.prepare(open(&process)).await?;
    let tenure = Tenure {
        bucket: leases,
        holder: holder(&host, id),
        ttl: Ttl::new(config.lease_ttl),
        gate: gate.clone(),
    };
    let Some(lease) = tenure.begin(&shutdown).await else { return Ok(()) };
    let began = tokio::select! {
        began = began::read(&volumes) => began,
        () = shutdown.requested() => {
            tenure.give_up(lease).await;
            return Ok(());
        }
    };
    // From here on the end comes when what is under way here is finished, not when it is asked for.
    let (end, shutdown) = {
        let (asked, within) = (shutdown, config.finish_releases);
        let (end, shutdown) = Shutdown::new();
        let (bus, node) = (process.bus.clone(), config.node.clone());
        (tokio::spawn(finish::releases(bus, node, within, asked, end)), shutdown)
    };

    let tell = Teller::new(events.clone(), config.node.clone());
    let plugins = Plugins::new(config.plugin_patience, Some(tell.clone()));
    let hosting = hosting(&config, &process, &tell, Lanes::since(began));
    let hosted = hosting.hosted.clone();
    let roster = roster::Parts {
        plugins: plugins.clone(),
        places: Places {
            configured: config.plugins.clone(),
            plugins_dir: config.plugins_dir.clone(),
            sockets_dir: config.sockets_dir.clone(),
        },
        supervision: Supervision { interval: config.probe_interval, timeout: config.probe_timeout },
        records: Records::new(&state_dir),
        journal: journal.clone(),
        hosting: hosting.clone(),
        bus: process.bus.clone(),
        node: config.node.clone(),
        boot_id: host.boot_id.clone(),
        finish_releases: config.finish_releases,
    };
    let (orders, asked) = mpsc::channel(ORDERS_MAX);
    let roster = Roster::start(roster, shutdown.clone()).await;
    let roster = tokio::spawn(roster.run(asked));
    let controllers = hosting.lanes;
    let mut running = Running { roster, lanes: vec![controllers.clone()] };
    let unaccounted = UnaccountedMounts::default();
    let reporter = Reporter {
        journal: journal.fault(),
        hung: hung.clone(),
        bus: process.bus.clone(),
        host: host.clone(),
        plugins: plugins.clone(),
        interval: config.report_interval,
        ttl: tenure.ttl.clone(),
        gate: gate.clone(),
        unaccounted: unaccounted.clone(),
    };
    let lanes = Lanes::since(began);
    running.lanes.push(lanes.clone());
    let bus = process.bus.clone();
    let at_gate = gate.clone();
    let binds = Binds::new(&pool, &paths, &host.boot_id, &config.bind_below);
    let mounter = Mounter::new(Parts {
        bus,
        host,
        paths,
        binds,
        journal: journal.clone(),
        plugins: plugins.clone(),
        lanes,
        hosted,
        controllers,
        tell,
        gate,
        looks: Looks::new(&pool),
        pool: pool.clone(),
        since: clock::now(),
        runs: runs.clone(),
        unaccounted,
    });
    let service = node::serve(&mounter, &process.bus).await?;
    plugin::serve(&service, &config.node, &plugins, &journal, orders).await?;
    berth_service::notify::ready();

    let keeping = tokio::spawn(journal.clone().keep_open(shutdown.clone()));
    let counting = tokio::spawn(hung.keep(pool, shutdown.clone()));
    let reporting = tokio::spawn(reporter.clone().run(shutdown.clone()));
    let _looking = mounter.keep_looking(config.look_interval, &shutdown);
    let watching = tokio::spawn(runs::watch(runs, process.bus.clone(), shutdown.clone()));
    let coming_back = tokio::spawn(comeback::keep(mounter, at_gate, shutdown.clone()));
    let lease = tenure.keep(lease, &shutdown).await?;
    end.abort();
    reporting.abort();
    keeping.abort();
    counting.abort();
    coming_back.abort();
    watching.abort();
    drain(service, running, &reporter, &events, config.drain).await;
    if let Some(lease) = lease {
        tenure.give_up(lease).await;
    }
    Ok(())
}

/// What the agent keeps on the bus, or reads there: leases, events and volumes.
async fn open(process: &Process) -> Result<(Bucket, Events, Bucket), Fatal> {
    let (bus, replicas) = (&process.bus, process.replicas);
    let leases = bus.bucket(&bucket::LEASES, replicas).await?;
    let events = bus.events(&stream::EVENTS, replicas).await?;
    Ok((leases, events, bus.bucket(&bucket::VOLUMES, replicas).await?))
}

/// What runs until the shutdown.
struct Running {
    /// It ends with the controllers that are still to end.
    roster: JoinHandle<JoinSet<()>>,
    lanes: Vec<Lanes>,
}

/// Takes the agent apart: nothing new, the world told, what is under way finished in time.
async fn drain(
    service: Service,
    mut running: Running,
    reporter: &Reporter,
    events: &Events,
    within: Duration,
) {
    // Every plugin is seen as unhealthy now, which also ends what is hosted.
    let mut hosted = (&mut running.roster).await.unwrap_or_default();
    if let Err(error) = reporter.report_once(LAST_REPORT).await {
        let why = berth_service::process::chain(&error);
        tracing::warn!(why, "the registry was not told that the agent is stopping");
    }
    let busy = async {
        let controllers = async { while hosted.join_next().await.is_some() {} };
        let (answered, ()) = tokio::join!(service.stop(within), controllers);
        let mut idle = answered;
        for lanes in &running.lanes {
            idle &= lanes.idle(within).await;
        }
        !idle
    };
    if tokio::time::timeout(within, busy).await.unwrap_or(true) {
        tracing::warn!("a plugin still works on a call; the journal says what may be mounted");
    }
    events.flush(LAST_EVENTS).await;
}

/// What hosting controllers takes.
fn hosting(config: &Config, process: &Process, tell: &Teller, lanes: Lanes) -> Hosting {
    Hosting {
        bus: process.bus.clone(),
        node: config.node.clone(),
        lanes,
        hosted: Hosted::default(),
        tell: tell.clone(),
        drain: config.drain,
    }
}

fn holder(host: &Host, agent: String) -> Holder {
    Holder {
        node: host.node.clone(),
        agent,
        boot_id: host.boot_id.clone(),
        hostname: host.attributes.get("hostname").cloned().unwrap_or_default(),
        pid: std::process::id(),
        since: clock::now(),
    }
}

/// What the agent reads before it does anything.
struct State {
    /// The state directory.
    dir: PathBuf,
    runs: Runs,
    host: Host,
    /// Which agent it is.
    id: String,
}

impl State {
    async fn read(config: &Config, pool: &HostPool) -> Result<Self, Fatal> {
        let (dir, node) = (config.state_dir.clone(), config.node.clone());
        let operation = HostOperation::new("open", directory_share(&dir), dir.clone());
        pool.run(operation, CHANGE_MAX, move || Self::open(&dir, node)).await?
    }

    fn open(dir: &Path, node: NodeId) -> Result<Self, Fatal> {
        let dir = open_state_dir(dir)?;
        let runs = Runs::below(&dir);
        runs.make()?;
        let id = identity(&dir, rand::random())?;
        Ok(Self { dir, runs, host: Host::read(node), id })
    }
}

/// The state directory, made when missing, by its real path: the mount table knows no other.
fn open_state_dir(path: &Path) -> Result<PathBuf, StateDirError> {
    let failed = |source| StateDirError::Open { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let real = fs::canonicalize(path).map_err(failed)?;
    if real.as_os_str().len() > STATE_DIR_BYTES_MAX {
        return Err(StateDirError::TooLong { path: path.to_owned(), real });
    }
    trust::open(path, &TrustedUsers::own())
        .map_err(|source| StateDirError::Untrusted { path: path.to_owned(), source })?;
    Ok(real)
}
