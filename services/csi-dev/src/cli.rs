//! The command line of `berth-csi-dev`.
//!
//! Owns: arguments, exit codes, and what is printed. Promises: stdout is data, stderr is talk.
//! Never: does the work itself.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use berth_judge::{Finding, Summary, judge};
use clap::{ArgGroup, Args, Parser, Subcommand};
use serde::Serialize;

use crate::ability::{Abilities, Ability};
use crate::backend::{Backend, BackendError, Backing, FsType, Meta, Provisioned, State};
use crate::driver::{Ignored, Profile, Serves, chain};
use crate::faults;
use crate::log::Recorder;
use crate::mounts;
use crate::mute::Speaks;
use crate::serve::{self, Config, ServeError};

/// Everything went well; `judge` found nothing.
pub const EXIT_OK: u8 = 0;
/// The work failed; `judge` found violations.
pub const EXIT_FAILED: u8 = 1;
/// The arguments are wrong.
pub const EXIT_USAGE: u8 = 64;

/// The development CSI driver: a whole plugin with real mounts, and a judge of call order
#[derive(Debug, Parser)]
#[command(name = "berth-csi-dev", version)]
#[command(after_help = "Exit codes: 0 done; 1 failed, or violations found; 64 wrong arguments.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the plugin for one node, until SIGTERM
    Serve(Box<ServeArgs>),
    /// Make a volume beforehand, or list the volumes
    Provision(ProvisionArgs),
    Faults(FaultsArgs),
    /// Fence a node at the storage, so that its volumes can be detached although it uses them
    Fence(FenceArgs),
    /// Find what a CO did wrong, in the logs of all instances together
    Judge(JudgeArgs),
}

const FAULTS_HELP: &str = r#"A JSON file with faults to plant, read again whenever it changes, like
[{"rpc":"NodeStageVolume","volume":"v","delay_ms":500,"code":"ABORTED","times":1}]
A fault hits calls of one rpc, about one volume (without them: any), "before" or "after" the work
("when"), at most so many "times", with a "probability" (0 to 1, by a "seed"). It waits "delay_ms",
and then does one thing more, or nothing: "code": answer so; "hang": true; "crash": true (SIGKILL);
"lose_answer": true; or "wrong": one of unknown-enum, no-ready, empty-topology, no-topology,
negative-limit, other-name, other-version, no-capabilities, chatty, unknown-error, no-next-token,
repeat-token, nothing-done"#;

/// The keys and values are read in `driver/controller/parameters.rs`.
const PARAMETERS_HELP: &str = "\
Parameters of CreateVolume:
  backing=directory|image  what holds the volume; without it, what its capabilities need
  fs-type=ext4|xfs         the file system of an image, where no capability names one
  context/KEY=VALUE        what every call about the volume has to bring along
Mutable parameters: tier=gold|silver|bronze, iops=1..1000000
Parameters of CreateSnapshot: ready-after-ms=0..60000, until it is ready to use
Images need losetup (util-linux), mkfs.ext4 (e2fsprogs) and, for xfs, mkfs.xfs (xfsprogs).";

#[derive(Args, Debug)]
#[command(after_help = PARAMETERS_HELP)]
struct ServeArgs {
    /// Where to listen, as `unix:///run/plugin/csi.sock`
    #[arg(long, env = "CSI_ENDPOINT")]
    endpoint: String,
    /// The node that this instance serves, as `NodeGetInfo` tells it
    #[arg(long)]
    node_id: String,
    /// The directory that all instances share
    #[arg(long, value_name = "DIR")]
    backend: PathBuf,
    /// The file to append one line to for each beginning and end of a call
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// The plugin's name
    #[arg(long, value_name = "NAME", default_value = "dev.berth")]
    driver_name: String,
    /// The plugin's version
    #[arg(long, value_name = "TEXT", default_value = env!("CARGO_PKG_VERSION"))]
    vendor_version: String,
    /// Be no plugin at all, but something else at its socket
    #[arg(long, value_name = "WHAT", default_value = "grpc")]
    speak: Speaks,
    /// How many volumes can be attached to this node; 0 means no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_volumes: i64,
    /// What the plugin cannot do, and what cannot be done without that; may be repeated
    #[arg(long, value_name = "ABILITY", value_delimiter = ',', hide_possible_values = false)]
    without: Vec<Ability>,
    /// What the plugin ignores when it publishes, and answers OK all the same; may be repeated
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    ignore: Vec<Ignored>,
    #[command(flatten)]
    shorthands: Shorthands,
    /// Which of the plugin's services this instance serves; the others are another instance's
    #[arg(long, value_name = "SERVICES", default_value = "all")]
    serve: Serves,
    /// Be a storage system of its own: volumes made here exist on this node only, and calls about
    /// those of other nodes answer `NOT_FOUND`
    #[arg(long)]
    bound: bool,
    /// Where the node is, as topological segments; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_pair)]
    topology: Vec<(String, String)>,
    /// Answer `ControllerPublishVolume` without a `publish_context`
    #[arg(long)]
    no_publish_context: bool,
    /// How many bytes all volumes and snapshots may have together; without it, no limit
    #[arg(long, value_name = "N")]
    pool_bytes: Option<i64>,
    /// Answer `UNAUTHENTICATED` to each call that takes secrets and has none of this value
    #[arg(long, value_name = "VALUE", env = "BERTH_CSI_DEV_SECRET", hide_env_values = true)]
    secret: Option<String>,
    #[arg(long, value_name = "FILE", help = FAULTS_HELP)]
    faults: Option<PathBuf>,
    /// A socket to plant faults by, beside those of the file: see `berth-csi-dev faults --help`
    #[arg(long, value_name = "FILE.sock")]
    control: Option<PathBuf>,
}

/// Plant faults in a running instance, or show those that stand and how often each was used
#[derive(Args, Debug)]
#[command(after_help = CONTROL_HELP)]
struct FaultsArgs {
    /// The instance's control socket
    #[arg(long, value_name = "FILE.sock")]
    control: PathBuf,
    /// An array of faults, as in a fault file, in place of those planted so before; [] for none
    #[arg(long, value_name = "JSON")]
    set: Option<String>,
}

const CONTROL_HELP: &str = "The socket speaks lines: `?` shows all faults that stand, as a JSON \
array; a JSON array of faults replaces those planted by the socket, and shows the same.";

/// The abilities that tests switch off most.
#[derive(Args, Debug)]
struct Shorthands {
    /// Do not attach; the same as --without attach
    #[arg(long)]
    no_attach: bool,
    /// Do not stage; the same as --without stage
    #[arg(long)]
    no_stage: bool,
    /// Be a node-only plugin; the same as --without controller
    #[arg(long)]
    no_controller: bool,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true).args(["volume", "list"])))]
struct ProvisionArgs {
    /// The directory that all instances share; made when missing
    #[arg(long, value_name = "DIR")]
    backend: PathBuf,
    /// The id of the volume to make: 1 to 256 bytes of any content
    #[arg(long, value_name = "ID")]
    volume: Option<String>,
    /// Its size in bytes; of a directory, for the record
    #[arg(long, value_name = "N", default_value_t = 0, requires = "volume")]
    capacity_bytes: i64,
    /// What every call about it has to bring along as `volume_context`; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair, requires = "volume")]
    context: Vec<(String, String)>,
    /// What holds its content
    #[arg(long, value_name = "BACKING", default_value = "directory", requires = "volume")]
    backing: Backing,
    /// The file system of an image; without it, the image is a bare block device
    #[arg(long, value_name = "FS", requires = "volume")]
    fs_type: Option<FsType>,
    /// The node that alone has it, where instances are bound to their nodes
    #[arg(long, value_name = "ID", requires = "volume")]
    node: Option<String>,
    /// Print all volumes and where they are in use, one JSON object per line
    #[arg(long)]
    list: bool,
}

#[derive(Args, Debug)]
#[command(after_help = FENCE_HELP)]
struct FenceArgs {
    /// The directory that all instances share
    #[arg(long, value_name = "DIR")]
    backend: PathBuf,
    /// The log of the node's instance, where it is noted for the judge
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// The node, as `NodeGetInfo` tells it
    #[arg(long)]
    node_id: String,
    /// Take things from the node again; what it had stays cut off until it is undone
    #[arg(long)]
    lift: bool,
}

const FENCE_HELP: &str = "For tests of nodes that are gone: while it stands, the node stages and \
publishes nothing, and what it has is no reason against detaching its volumes. These are the \
storage's books: nothing keeps a workload from writing to its mount, but for an ext4 of the node, \
which is aborted. It would be damaged where another node mounts it, too.";

#[derive(Args, Debug)]
#[command(after_help = JUDGE_HELP)]
struct JudgeArgs {
    /// Print each finding as one JSON object
    #[arg(long)]
    json: bool,
    /// The logs of all instances
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
}

const JUDGE_HELP: &str = "Each finding is printed with its rule, the safety rule and CSI section \
it comes from, and the lines that prove it: the call that broke the rule, then the calls that made \
it wrong. A DISAGREEMENT is a rule that the driver applied and the judge did not, or the other \
way. A FALSE REPORT is a call that the driver says is done, where the kernel's mount table says \
otherwise.";

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            // Help and version come this way, too, and go to stdout.
            let _ = error.print();
            return if error.use_stderr() { EXIT_USAGE } else { EXIT_OK }.into();
        }
    };
    let code = match command {
        Command::Serve(args) => run_serve(*args),
        Command::Provision(args) => run_provision(args),
        Command::Faults(args) => run_faults(&args),
        Command::Fence(args) => run_fence(args),
        Command::Judge(args) => run_judge(&args),
    };
    code.into()
}

fn run_serve(args: ServeArgs) -> u8 {
    let ServeArgs { endpoint, backend, log, faults, control, .. } = args;
    let shorthands = [
        (args.shorthands.no_attach, Ability::Attach),
        (args.shorthands.no_stage, Ability::Stage),
        (args.shorthands.no_controller, Ability::Controller),
    ];
    let off = shorthands.into_iter().filter(|(off, _)| *off).map(|(_, ability)| ability);
    let profile = Profile {
        driver_name: args.driver_name,
        vendor_version: args.vendor_version,
        node_id: args.node_id,
        max_volumes: args.max_volumes,
        abilities: Abilities::without(off.chain(args.without)),
        topology: args.topology.into_iter().collect(),
        serves: args.serve,
        bound: args.bound,
        publish_context: !args.no_publish_context,
        pool_bytes: args.pool_bytes,
        ignores: args.ignore.into_iter().collect(),
        secret: args.secret.filter(|secret| !secret.is_empty()),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(format_args!("no runtime: {error}")),
    };
    let speaks = args.speak;
    let config = Config { endpoint, profile, backend, log, faults, control, speaks };
    let served = runtime.block_on(serve::serve(config));
    // Work that outlived the drain is left to itself; the next instance copes with what it leaves.
    runtime.shutdown_background();
    match served {
        Ok(()) => EXIT_OK,
        Err(error @ ServeError::Config(_)) => {
            fail(format_args!("{}", chain(&error)));
            EXIT_USAGE
        }
        Err(error) => fail(format_args!("{}", chain(&error))),
    }
}

fn run_provision(args: ProvisionArgs) -> u8 {
    let done = match args.volume {
        Some(volume_id) => {
            let volume_context = args.context.into_iter().collect();
            let ProvisionArgs { capacity_bytes, backing, fs_type: fs, node, .. } = args;
            let meta = Meta {
                volume_id,
                capacity_bytes,
                volume_context,
                backing,
                fs,
                node,
                ..Meta::default()
            };
            provision(args.backend, &meta)
        }
        None => list(args.backend),
    };
    done.map_or_else(|message| fail(format_args!("{message}")), |()| EXIT_OK)
}

fn provision(backend: PathBuf, meta: &Meta) -> Result<(), String> {
    if meta.backing == Backing::Directory && meta.fs.is_some() {
        return Err("--fs-type is of images only; say --backing image".to_owned());
    }
    let least = meta.fs.map_or(1, FsType::smallest_bytes);
    if meta.backing == Backing::Image && meta.capacity_bytes < least {
        return Err(format!("an image of this kind has at least {least} --capacity-bytes"));
    }
    let backend = Backend::open(backend).map_err(|error| chain(&error))?;
    let what = match backend.provision(meta).map_err(|error| chain(&error))? {
        Provisioned::Made => "made",
        Provisioned::Existed => "was there already",
    };
    eprintln!("volume {:?} {what}", meta.volume_id);
    Ok(())
}

/// A volume as `--list` prints it.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    meta: &'a Meta,
    #[serde(flatten)]
    state: State,
}

fn list(backend: PathBuf) -> Result<(), String> {
    let list = || -> Result<Vec<String>, BackendError> {
        let volumes = Backend::open(backend)?.volumes()?;
        let line = |state, meta| serde_json::to_string(&Listed { meta, state });
        let lines = volumes.iter().map(|volume| Ok(line(volume.glance()?, volume.meta())));
        // Values of ours can always be written.
        lines.map(|line| line.map(Result::unwrap_or_default)).collect()
    };
    let lines = list().map_err(|error| chain(&error))?;
    print(&lines).map_err(|error| error.to_string())
}

fn run_faults(args: &FaultsArgs) -> u8 {
    match faults::control::ask(&args.control, args.set.as_deref()) {
        Ok(standing) => {
            print(&[standing]).map_or_else(|error| fail(format_args!("{error}")), |()| EXIT_OK)
        }
        Err(error) => fail(format_args!("{}", chain(&error))),
    }
}

fn run_fence(args: FenceArgs) -> u8 {
    let FenceArgs { backend, log, node_id, lift } = args;
    let fence = || -> Result<(), String> {
        let backend = Backend::open(backend).map_err(|error| chain(&error))?;
        let noted = Recorder::open(&log, &node_id).and_then(|recorder| recorder.fence(!lift));
        noted.map_err(|error| format!("the log {} cannot be written: {error}", log.display()))?;
        let mounted = backend.fence(&node_id, !lift).map_err(|error| chain(&error))?;
        mounted.iter().try_for_each(|place| mounts::abort(place).map_err(|error| chain(&error)))
    };
    fence().map_or_else(|message| fail(format_args!("{message}")), |()| EXIT_OK)
}

fn run_judge(args: &JudgeArgs) -> u8 {
    let mut count = 0_u64;
    let mut printed = Ok(());
    let mut tell = |finding: Finding| {
        count += 1;
        // Values of ours can always be written.
        let json = || serde_json::to_string(&finding).unwrap_or_default();
        let text = if args.json { json() } else { finding.to_string() };
        if printed.is_ok() {
            printed = print(&[text]);
        }
    };
    let judged = judge(&args.logs, &mut tell);
    if let Ok(summary) = &judged {
        summary.notes.iter().for_each(|note| eprintln!("{note}"));
    }
    match (judged, printed, count) {
        (Err(error), ..) => fail(format_args!("{}", chain(&error))),
        (_, Err(error), _) => fail(format_args!("{error}")),
        (Ok(Summary { lines, .. }), _, 0) => {
            eprintln!("no violation in {lines} lines");
            EXIT_OK
        }
        (_, _, count) => fail(format_args!("{count} violation(s)")),
    }
}

fn print<T: fmt::Display>(lines: &[T]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()
}

fn fail(message: fmt::Arguments<'_>) -> u8 {
    eprintln!("berth-csi-dev: {message}");
    EXIT_FAILED
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.ok_or_else(|| format!("{text:?} does not have the form key=value"))?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn provision_needs_a_volume_or_list() {
        let parse = |args: &str| Cli::try_parse_from(args.split_whitespace());
        assert!(parse("x provision --backend b --list").is_ok());
        assert!(parse("x provision --backend b --volume v --context a=b=c").is_ok());
        for args in
            ["--backend b", "--backend b --list --volume v", "--backend b --volume v --context a"]
        {
            assert!(parse(&format!("x provision {args}")).is_err(), "{args}");
        }
    }
}
