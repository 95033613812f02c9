//! A service's process: configuration, logs, telemetry, connection, run, drain.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

pub use berth_bus::chain;
use berth_bus::serve::ServeError;
use berth_bus::{Bus, Copies, Service, ServiceSpec};
use berth_contract::decode::Decode;
use berth_contract::role::Role;
use berth_contract::service::{self, ServiceName};
use berth_domain::WorkerId;
use berth_domain::retry::Schedule;
use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches as _, value_parser};
use thiserror::Error;
use tokio::time::sleep;

use crate::access_check::{check_access, report_access};
use crate::clock;
use crate::config::{self, Config};
use crate::connection::{ConnectionArgs, NatsConfig};
use crate::kept_events;
use crate::notify;
use crate::readiness::Readiness;
use crate::shutdown::Shutdown;
use crate::telemetry;

/// With the system's allocator, allocations take a quarter of the time that a service spends on a
/// claim. This allocator is faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long the last messages may take to be sent.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// How long the server may take to process the subscriptions before that is logged.
const SUBSCRIBED_MAX: Duration = Duration::from_secs(2);

/// Interval at which a service checks whether its buckets have as many copies as the cluster could
/// hold.
const COPIES_CHECK_INTERVAL: Duration = Duration::from_secs(300);

/// The pauses before the server is asked again whether it knows the subscriptions.
const SUBSCRIBED_RETRY: Schedule =
    Schedule { first: Duration::from_millis(200), max: Duration::from_secs(5) };

/// How long `--check-access` waits for the bus.
const CHECK_CONNECT_MAX: Duration = Duration::from_secs(5);

/// Bad configuration (`EX_USAGE` of `sysexits.h`).
const EXIT_CONFIG: u8 = 64;

/// The parts that a running service gets.
#[derive(Debug, Clone)]
pub struct Process {
    /// The bus.
    pub bus: Bus,
    /// The request to shut down.
    pub shutdown: Shutdown,
    /// The name of this process in attempts.
    pub worker: WorkerId,
    /// Which service this process is.
    pub name: ServiceName,
    /// Copies of each stream that the process makes.
    pub replicas: Copies,
    /// The state that `/readyz` answers.
    pub readiness: Readiness,
}

/// Any error that ends a service; its chain is joined once, when it is logged.
pub type Fatal = Box<dyn std::error::Error + Send + Sync>;

/// The shutdown was requested before the service was ready.
#[derive(Debug, Error)]
#[error("told to end before it served")]
struct EndedEarly;

/// Runs a service from the command line to the end of the process: `main` only calls this. The
/// role says who the service is to the others, and which rights its identity needs.
pub fn run<Own, F>(
    name: ServiceName,
    role: impl FnOnce(&Own) -> Role,
    service: impl FnOnce(Own, Process) -> F,
) -> ExitCode
where
    Own: Decode,
    F: Future<Output = Result<(), Fatal>>,
{
    let arguments = command(name).get_matches();
    let file = arguments.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let flags = ConnectionArgs::from_arg_matches(&arguments).unwrap_or_else(|error| error.exit());
    let config: Config<Own> = match config::load(file, &flags, std::env::vars()) {
        Ok(config) => config,
        Err(error) => {
            complain(name, &error);
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    if arguments.get_flag("check-config") {
        return ExitCode::SUCCESS;
    }
    let role = role(&config.own);
    if arguments.get_flag("check-access") {
        return check_access_and_end(name, &role, &config.nats);
    }
    if let Err(error) = telemetry::start(&config.log) {
        complain(name, &error);
        return ExitCode::from(EXIT_CONFIG);
    }
    // One thread: a request passes through six tasks, and waking another thread for each costs more
    // than the tasks' work. Blocking operations have threads of their own.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(name, &error);
            return ExitCode::FAILURE;
        }
    };
    let Config { nats, telemetry: exported, own, .. } = config;
    let ended = runtime.block_on(async {
        let worker = worker(name)?;
        let readiness = Readiness::default();
        let ready = Some(readiness.as_check());
        let exporting = telemetry::export(name.name, worker.as_str(), &exported, ready)?;
        let ended = async {
            let process = start(name, &role, worker, &nats, readiness).await?;
            let bus = process.bus.clone();
            tracing::info!(worker = %process.worker, nats = ?nats, "started");
            kept_events::take_up(&bus);
            let ended = service(own, process).await;
            kept_events::leave(&bus);
            bus.drain(DRAIN_MAX).await;
            ended
        };
        let ended = ended.await;
        exporting.end(DRAIN_MAX).await;
        ended
    });
    // A blocking call, such as a hung unmount, must not keep the process from ending.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        Ok(()) => {
            tracing::info!("ended");
            ExitCode::SUCCESS
        }
        Err(error) if error.is::<EndedEarly>() => {
            tracing::info!("ended before it served");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(error = chain(error.as_ref()), "ended");
            ExitCode::FAILURE
        }
    }
}

impl Process {
    /// Waits for the buckets and other things that the service needs. A bus without a quorum delays
    /// them; the shutdown ends the wait.
    pub async fn prepare<T>(
        &self,
        ready: impl Future<Output = Result<T, Fatal>>,
    ) -> Result<T, Fatal> {
        or_ended(&self.shutdown, ready).await
    }

    /// Reports *ready* to the service manager, and at `/readyz`, once the server knows every
    /// subscription: a unit that starts after this one relies on an answer. A task waits for that,
    /// so that no work of the service does.
    pub fn report_ready(&self) {
        let (bus, shutdown) = (self.bus.clone(), self.shutdown.clone());
        let readiness = self.readiness.clone();
        let subscribed = async move {
            let mut tries = 0;
            while !bus.flush(SUBSCRIBED_MAX).await {
                tries += 1;
                tracing::warn!(tries, "not ready: nats-server does not answer");
                sleep(SUBSCRIBED_RETRY.wait(tries, clock::jitter())).await;
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = subscribed => {
                    readiness.record_serving();
                    notify::ready();
                }
                () = shutdown.requested() => {}
            }
        });
    }

    /// Starts this process as a micro service, which `nats micro ls` shows from now on.
    pub async fn announce(&self) -> Result<Service, ServeError> {
        self.bus
            .service(ServiceSpec::describe(
                self.name,
                berth_version::current(),
                &[("worker", self.worker.as_str())],
            ))
            .await
    }
}

/// The name of this process in attempts and leases.
fn worker(name: ServiceName) -> Result<WorkerId, Fatal> {
    let short = name.short();
    Ok(WorkerId::new(format!("{short}/{}/{}", telemetry::host(), std::process::id()))?)
}

async fn start(
    name: ServiceName,
    role: &Role,
    worker: WorkerId,
    nats: &NatsConfig,
    readiness: Readiness,
) -> Result<Process, Fatal> {
    let shutdown = Shutdown::on_signals()?;
    // The connection refuses credentials that cannot be read.
    if let Ok(Some(check)) = check_access(role, &nats.credentials) {
        check.warn(clock::now());
    }
    let config = nats.bus(worker.as_str(), role.actor());
    let bus = or_ended(&shutdown, async { Ok(Bus::connect(config).await?) }).await?;
    let reporting = report_access(role.clone(), bus.clone());
    tokio::spawn(reporting);
    // Agents do not check the copies: there may be thousands, and the services use the same
    // buckets.
    if ![service::NODE_AGENT, service::DOCKER].contains(&name) {
        bus.watch_copies(nats.replicas, COPIES_CHECK_INTERVAL);
    }
    readiness.record_connected(bus.clone(), shutdown.clone());
    Ok(Process { bus, shutdown, worker, name, replicas: nats.replicas, readiness })
}

async fn or_ended<T>(
    shutdown: &Shutdown,
    ready: impl Future<Output = Result<T, Fatal>>,
) -> Result<T, Fatal> {
    tokio::select! {
        ready = ready => ready,
        () = shutdown.requested() => Err(EndedEarly.into()),
    }
}

/// The command line of a service.
pub fn command(name: ServiceName) -> Command {
    // A service has variables of its own, so a user's variables for `berth` do not apply.
    ConnectionArgs::augment_args(Command::new(name.name))
        .mut_args(|flag| flag.env(None))
        .about(name.description)
        .version(berth_version::current())
        .after_help(
            "Every field of the configuration file can be given by a variable instead:\n\
             BERTH__NATS__URL replaces `url` in `[nats]`. A flag replaces both.\n\n\
             Exit codes: 0 ended when told to, 1 failed, 64 bad configuration.",
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Configuration, in TOML"),
        )
        .arg(
            Arg::new("check-config")
                .long("check-config")
                .action(ArgAction::SetTrue)
                .help("Read the configuration, say what is wrong with it, and end"),
        )
        .arg(
            Arg::new("check-access")
                .long("check-access")
                .action(ArgAction::SetTrue)
                .help("Say which rights the identity lacks, connect, and end: 0 has all, 1 not"),
        )
}

/// Carries out `--check-access`.
fn check_access_and_end(name: ServiceName, role: &Role, nats: &NatsConfig) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let checked = runtime
        .map_err(Fatal::from)
        .and_then(|runtime| runtime.block_on(print_access(name, role, nats)));
    match checked {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(name, error.as_ref());
            ExitCode::FAILURE
        }
    }
}

/// Prints the rights that the identity lacks, and connects. Returns whether none is missing.
#[expect(clippy::print_stdout, reason = "the report is the output of `--check-access`")]
async fn print_access(name: ServiceName, role: &Role, nats: &NatsConfig) -> Result<bool, Fatal> {
    let mut has_all = true;
    if let Some(check) = check_access(role, &nats.credentials)? {
        let (report, is_whole) = check.report(clock::now());
        print!("{report}");
        has_all = is_whole;
    } else {
        println!("not checked: only a .creds file says what it allows; nats-server decides");
    }
    let mut config = nats.bus(name.name, role.actor());
    config.start_timeout = CHECK_CONNECT_MAX;
    let bus = Bus::connect(config).await?;
    println!("ok: connected to nats-server {}", bus.report_server().name);
    bus.drain(DRAIN_MAX).await;
    Ok(has_all)
}

#[expect(clippy::print_stderr, reason = "before logs are configured there is nothing else")]
fn complain(name: ServiceName, error: &dyn std::error::Error) {
    eprintln!("{}: {}", name.name, chain(error));
}
