//! The operator's CLI, and `berth dev`: the whole system on one machine.
//!
//! **Owns** the command line ([`args`]), the exit codes ([`exit`]), the form of the output
//! ([`show`], [`output`], [`table`]), explaining one thing ([`why`]) and checking everything
//! ([`doctor`]), running a command with volumes ([`run`]) and running
//! everything on one machine ([`dev`]).
//!
//! **Promises** that stdout is data and stderr is for people, that every error names the next thing
//! to try, and that a command ends: each wait has a deadline, `--timeout` or a default. Only
//! `--follow` and `--watch` continue until Ctrl-C.
//!
//! **Never** decides about a volume: it sends requests to the services. Of the bus, `berth bus
//! copies --raise` changes the number of copies, and `berth bus restore` and `accept` begin a new
//! incarnation of a bucket.

pub mod args;
mod classes;
pub mod command;
mod connection;
pub mod dev;
pub mod doctor;
pub mod exit;
pub mod failure;
mod history;
pub mod output;
mod privilege;
pub mod release;
pub mod run;
pub mod search;
pub mod session;
pub mod show;
pub mod size;
pub mod span;
pub mod storage;
pub mod table;
pub mod wait;
pub mod why;

use std::process::ExitCode;
use std::time::Duration;

use berth_telemetry::TelemetryConfig;
use clap::{CommandFactory as _, Parser as _};

use args::{
    AllocCommand, BusCommand, ClaimCommand, ClassCommand, Cli, Command, Global, GroupCommand,
    NodeCommand, OwnerCommand, PluginCommand, SnapshotCommand, VolumeCommand,
};
use failure::Failure;
use output::Output;
use session::Session;

/// Runs `berth` from its command line to its exit code.
pub fn run_process() -> ExitCode {
    if let Some(code) = run::becomes_the_command(std::env::args_os()) {
        return ExitCode::from(code);
    }
    let cli = Cli::parse();
    let output = Output { json: cli.global.json };
    // One thread: the kernel ends children of `berth dev` when the *thread* that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(exported(perform(cli))),
        Err(error) => Err(Failure::local(error, "look at the limits of this shell: ulimit -a")),
    };
    ExitCode::from(outcome.unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.exit()
    }))
}

/// The longest delay of the exit for the export of the last spans.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// Runs the command while its spans are exported, where the `OTEL_*` variables name a collector.
async fn exported<T>(work: impl Future<Output = T>) -> T {
    let instance = format!("berth/{}", std::process::id());
    let config = TelemetryConfig::default();
    let telemetry = berth_service::telemetry::export("berth", &instance, &config, None);
    let outcome = work.await;
    // Without a Prometheus listener the start cannot fail.
    if let Ok(telemetry) = telemetry {
        telemetry.end(LAST_SPANS).await;
    }
    outcome
}

/// Runs the command. Returns its exit code, unless it fails.
async fn perform(cli: Cli) -> Result<u8, Failure> {
    let Cli { global, command } = cli;
    match &command {
        Command::Run(args) => return run::run(args, &global).await,
        Command::Dev(args) => return dev::dev(args, global.connection.insecure).await,
        Command::Why(args) => return command::why::why(args, &global).await,
        Command::Bus(BusCommand::Copies(args)) => {
            return command::bus::copies(args, &global).await;
        }
        Command::Bus(BusCommand::Backup(args)) => command::restore::backup(args, &global).await?,
        Command::Bus(BusCommand::Restore(args)) => command::restore::restore(args, &global).await?,
        Command::Bus(BusCommand::Accept(args)) => command::restore::accept(args, &global).await?,
        Command::Doctor(args) => return command::doctor::doctor(args, &global).await,
        Command::Explain(args) => command::explain::explain(args, Output { json: global.json }),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "berth", &mut script);
            output::data(String::from_utf8_lossy(&script).trim_end());
        }
        Command::Keygen(args) => command::keygen::keygen(args)?,
        Command::Access(args) => command::access::run_access(args, Output { json: global.json })?,
        Command::Volume(VolumeCommand::Init(args)) => command::volume::init(args, global.json)?,
        Command::Class(ClassCommand::Init(args)) => command::class::init(args, global.json)?,
        Command::Node(NodeCommand::Gone(args)) if !args.yes => command::node::affirm(args)?,
        other => {
            // A check of the input comes before the connection.
            if !check_and_ask(other, &global).await? {
                ask_services(other, &Session::open(&global).await?).await?;
            }
        }
    }
    Ok(exit::OK)
}

/// Runs a command whose input may have faults that are found before anything is sent; false for
/// another command.
async fn check_and_ask(command: &Command, global: &Global) -> Result<bool, Failure> {
    use crate::command as c;
    use {ClassCommand as C, GroupCommand as G, SnapshotCommand as S, VolumeCommand as V};
    let done = match command {
        Command::Volume(V::Register(args)) => c::register::register(args, global).await,
        Command::Volume(V::Create(args)) => c::volume_create::create(args, global).await,
        Command::Volume(V::Expand(args)) => c::volume_change::expand(args, global).await,
        Command::Volume(V::Modify(args)) => c::volume_change::modify(args, global).await,
        Command::Volume(V::Adopt(args)) => c::external::adopt_volume(args, global).await,
        Command::Snapshot(S::Create(args)) => c::snapshot::create(args, global).await,
        Command::Snapshot(S::Restore(args)) => c::volume_create::restore(args, global).await,
        Command::Snapshot(S::Group(G::Create(args))) => {
            c::snapshot::create_group(args, global).await
        }
        Command::Class(C::Create(args)) => c::class::create(args, global).await,
        Command::Plugin(PluginCommand::Capacity(args)) => c::class::capacity(args, global).await,
        _ => return Ok(false),
    };
    done.map(|()| true)
}

/// Runs a command that needs only a connection.
async fn ask_services(command: &Command, session: &Session) -> Result<(), Failure> {
    use crate::command as c;
    match command {
        Command::Volume(VolumeCommand::Status(args)) => c::volume::status(args, session).await,
        Command::Volume(VolumeCommand::Placement(args)) => {
            c::volume::placement(args, session).await
        }
        Command::Volume(VolumeCommand::Delete(args)) => {
            c::volume_delete::delete(args, session).await
        }
        Command::Volume(VolumeCommand::Deregister(args)) => {
            c::volume::deregister(args, session).await
        }
        Command::Volume(VolumeCommand::Detach(args)) => c::detach::detach(args, session).await,
        Command::Volume(VolumeCommand::Republish(args)) => {
            c::republish::republish(args, session).await
        }
        Command::Snapshot(SnapshotCommand::List(args)) => c::snapshot::list(args, session).await,
        Command::Snapshot(SnapshotCommand::Adopt(args)) => {
            c::external::adopt_snapshot(args, session).await
        }
        Command::Snapshot(SnapshotCommand::Delete(args)) => {
            c::snapshot::delete(args, false, session).await
        }
        Command::Snapshot(SnapshotCommand::Group(GroupCommand::Delete(args))) => {
            c::snapshot::delete(args, true, session).await
        }
        Command::Snapshot(SnapshotCommand::Group(GroupCommand::List(args))) => {
            c::snapshot::list_groups(args, session).await
        }
        Command::Class(ClassCommand::List(args)) => c::class::list(args, session).await,
        Command::Class(ClassCommand::Status(args)) => c::class::status(args, session).await,
        Command::Class(ClassCommand::Delete(args)) => c::class::delete(args, session).await,
        Command::Plugin(PluginCommand::Status(args)) => c::plugin::status(args, session).await,
        Command::Plugin(PluginCommand::Expect(args)) => c::plugin::expect(args, session).await,
        Command::Plugin(PluginCommand::Delete(args)) => c::plugin::delete(args, session).await,
        Command::Plugin(PluginCommand::Instances(args)) => {
            c::plugin_here::instances(args, session).await
        }
        Command::Plugin(PluginCommand::Stop(args)) => c::plugin_here::stop(args, session).await,
        Command::Plugin(PluginCommand::Start(args)) => c::plugin_here::start(args, session).await,
        Command::Node(NodeCommand::Status(args)) => c::node::status(args, session).await,
        Command::Node(NodeCommand::Gone(args)) => c::node::gone(args, session).await,
        Command::Node(NodeCommand::Unmount(args)) => c::node::unmount(args, session).await,
        Command::Node(NodeCommand::Leave(args)) => c::node::leave(args, session).await,
        Command::Alloc(AllocCommand::Status(args)) => c::alloc::status(args, session).await,
        Command::Alloc(AllocCommand::Stop(args)) => c::alloc::stop(args, session).await,
        Command::Alloc(AllocCommand::Wait(args)) => c::alloc::wait(args, session).await,
        Command::Alloc(AllocCommand::Adopt(args)) => c::alloc::adopt(args, session).await,
        Command::Owner(OwnerCommand::List(args)) => c::alloc::owners(args, session).await,
        Command::Search(args) => c::search::search(args, session).await,
        Command::Claim(ClaimCommand::Status(args)) => c::claim::status(args, session).await,
        Command::Level(command) => c::level::level(*command, session).await,
        Command::Gc(args) => c::gc::gc(args, session).await,
        Command::Events(args) => c::events::events(args, session).await,
        Command::Trace(args) => c::trace::trace(args, session).await,
        // `perform` and `check_and_ask` have handled these.
        Command::Run(_)
        | Command::Dev(_)
        | Command::Why(_)
        | Command::Bus(_)
        | Command::Doctor(_)
        | Command::Explain(_)
        | Command::Completions { .. }
        | Command::Keygen(_)
        | Command::Access(_)
        | Command::Volume(
            VolumeCommand::Init(_)
            | VolumeCommand::Register(_)
            | VolumeCommand::Create(_)
            | VolumeCommand::Expand(_)
            | VolumeCommand::Modify(_)
            | VolumeCommand::Adopt(_),
        )
        | Command::Snapshot(
            SnapshotCommand::Create(_)
            | SnapshotCommand::Restore(_)
            | SnapshotCommand::Group(GroupCommand::Create(_)),
        )
        | Command::Class(ClassCommand::Init(_) | ClassCommand::Create(_))
        | Command::Plugin(PluginCommand::Capacity(_)) => Ok(()),
    }
}
