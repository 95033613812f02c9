//! The command line of `berth-csi-dev`.
//!
//! Owns: arguments, exit codes and printed text. Promises: stdout is data, stderr is messages.
//! Never: does the work itself.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use berth_csi_proxy::JudgeArgs;
use berth_csi_proxy::chain;
use berth_csi_proxy::cli::{EXIT_FAILED, EXIT_OK, EXIT_USAGE};
use berth_csi_proxy::log::Recorder;
use clap::{ArgGroup, Args, CommandFactory as _, Parser, Subcommand};
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::backend::{Backend, Provisioned, VolumeMeta, VolumeState};
use crate::backing::{Backing, FsType};
use crate::mounts;
use crate::serve::{self, Config};
use crate::topology::parse_pair;

/// The development CSI driver: a whole plugin with real mounts, and a judge of call order
#[derive(Debug, Parser)]
#[command(name = "berth-csi-dev", version = berth_version::current())]
#[command(after_help = "Exit codes: 0 done; 1 failed, or violations found; 64 wrong arguments.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the plugin for one node, until SIGTERM
    Serve(Box<Config>),
    /// Make a volume beforehand, make one abnormal, or list the volumes
    Provision(ProvisionArgs),
    /// Fence a node at the storage, so that its volumes can be detached although it uses them
    Fence(FenceArgs),
    /// Say that the storage is not well, seen from a node
    Trouble(TroubleArgs),
    /// Find what a CO did wrong, in the logs of all instances together
    Judge(JudgeArgs),
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true).args(["volume", "list", "list_snapshots"])))]
struct ProvisionArgs {
    /// The directory that all instances share; made when missing
    #[arg(long, value_name = "DIR")]
    backend: PathBuf,
    /// The id of the volume to make: 1 to 256 bytes of any content
    #[arg(long, value_name = "ID")]
    volume: Option<String>,
    /// Its size in bytes; a directory only records it
    #[arg(long, value_name = "N", default_value_t = 0, requires = "volume")]
    capacity_bytes: i64,
    /// The `volume_context` that every call about it must have; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair, requires = "volume")]
    context: Vec<(String, String)>,
    /// What holds its content
    #[arg(long, value_name = "BACKING", default_value = "directory", requires = "volume")]
    backing: Backing,
    /// The file system of an image; without it, the image is a bare block device
    #[arg(long, value_name = "FS", requires = "volume")]
    fs_type: Option<FsType>,
    /// The only node that has it, where instances are bound to their nodes
    #[arg(long, value_name = "ID", requires = "volume")]
    node: Option<String>,
    /// Report the existing volume as abnormal, for this reason; an empty one ends that
    #[arg(long, value_name = "TEXT", requires = "volume")]
    #[arg(conflicts_with_all = ["capacity_bytes", "context", "backing", "fs_type", "node"])]
    abnormal: Option<String>,
    /// Print all volumes and where they are in use, one JSON object per line
    #[arg(long)]
    list: bool,
    /// Print all snapshots, one JSON object per line
    #[arg(long)]
    list_snapshots: bool,
}

#[derive(Args, Debug)]
#[command(after_help = FENCE_HELP)]
struct FenceArgs {
    /// The directory that all instances share
    #[arg(long, value_name = "DIR")]
    backend: PathBuf,
    /// The log of the node's instance, where the fence is recorded for the judge
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// The node, by the id that `NodeGetInfo` answers
    #[arg(long)]
    node_id: String,
    /// Lift the fence; mounts from before it stay cut off until they are undone
    #[arg(long)]
    lift: bool,
}

#[derive(Args, Debug)]
struct TroubleArgs {
    /// The directory that all instances share
    #[arg(long, value_name = "DIR")]
    backend: PathBuf,
    /// The node, by the id that `NodeGetInfo` answers
    #[arg(long)]
    node_id: String,
    /// What `NodeGetStorageHealth` says: that the storage is degraded if that is the first word,
    /// and otherwise that it cannot be reached. An empty text ends that
    #[arg(value_name = "TEXT")]
    said: String,
}

const FENCE_HELP: &str = "For tests of nodes that are gone. While the fence stands, the node \
stages and publishes nothing, and its volumes can be detached although it has them mounted. Only \
records are changed: a workload can still write to its mount. An ext4 of the node is aborted, \
because a second node that mounts it would damage it.";

/// The command line, for its man page.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            // Clap returns help and version as errors, for stdout.
            let _ = error.print();
            return if error.use_stderr() { EXIT_USAGE } else { EXIT_OK }.into();
        }
    };
    let done = match command {
        Command::Serve(config) => run_serve(*config),
        Command::Provision(args) => run_provision(args),
        Command::Fence(args) => run_fence(args),
        Command::Trouble(args) => run_trouble(args),
        Command::Judge(args) => args.run(),
    };
    match done {
        Ok(()) => EXIT_OK.into(),
        Err(error) => {
            eprintln!("berth-csi-dev: {}", chain(&*error));
            EXIT_FAILED.into()
        }
    }
}

fn run_serve(config: Config) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let served = runtime.block_on(serve::serve(config));
    // Abandons work that outlives the drain; the next instance cleans up after it.
    runtime.shutdown_background();
    Ok(served?)
}

fn run_provision(args: ProvisionArgs) -> Result<(), Box<dyn Error>> {
    let ProvisionArgs { backend, volume, capacity_bytes, backing, fs_type: fs, node, .. } = args;
    let backend = Backend::open(backend)?;
    let Some(volume_id) = volume else {
        return if args.list { list(&backend) } else { list_snapshots(&backend) };
    };
    if let Some(reason) = args.abnormal {
        return mark_abnormal(&backend, &volume_id, &reason);
    }
    if backing == Backing::Directory && fs.is_some() {
        return Err("--fs-type is of images only; say --backing image".into());
    }
    let least = fs.map_or(1, FsType::smallest_bytes);
    if backing == Backing::Image && capacity_bytes < least {
        return Err(format!("an image of this kind has at least {least} --capacity-bytes").into());
    }
    let volume_context = args.context.into_iter().collect();
    let meta = VolumeMeta {
        volume_id,
        capacity_bytes,
        volume_context,
        backing,
        fs,
        node,
        ..VolumeMeta::default()
    };
    let outcome = match backend.provision(&meta)? {
        Provisioned::Made => "made",
        Provisioned::Existed => "was there already",
    };
    eprintln!("volume {:?} {outcome}", meta.volume_id);
    Ok(())
}

fn mark_abnormal(backend: &Backend, id: &str, reason: &str) -> Result<(), Box<dyn Error>> {
    let volume = backend.volume(id)?;
    let volume = volume.ok_or_else(|| format!("volume {id:?} does not exist; make it first"))?;
    volume.lock()?.mark_abnormal(reason)?;
    let outcome = if reason.is_empty() { "no longer marked as abnormal" } else { "abnormal" };
    eprintln!("volume {id:?} is {outcome}");
    Ok(())
}

/// A volume as `--list` prints it.
#[derive(Serialize)]
struct ListedVolume<'a> {
    #[serde(flatten)]
    meta: &'a VolumeMeta,
    /// The reasons why it is abnormal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    abnormal: Vec<String>,
    #[serde(flatten)]
    state: VolumeState,
}

fn list(backend: &Backend) -> Result<(), Box<dyn Error>> {
    for volume in backend.volumes()? {
        let (meta, state, abnormal) =
            (volume.meta(), volume.read_state()?, volume.read_abnormal()?);
        let listed = ListedVolume { meta, abnormal, state };
        print(serde_json::to_string(&listed)?)?;
    }
    Ok(())
}

fn list_snapshots(backend: &Backend) -> Result<(), Box<dyn Error>> {
    for snapshot in backend.snapshots()? {
        print(serde_json::to_string(snapshot.meta())?)?;
    }
    Ok(())
}

fn run_fence(args: FenceArgs) -> Result<(), Box<dyn Error>> {
    let FenceArgs { backend, log, node_id, lift } = args;
    let backend = Backend::open(backend)?;
    Recorder::open(&log, &node_id)
        .and_then(|recorder| recorder.fence(!lift))
        .map_err(|error| format!("the log {} cannot be written: {error}", log.display()))?;
    for staging_path in backend.fence(&node_id, !lift)? {
        mounts::abort(&staging_path)?;
    }
    Ok(())
}

fn run_trouble(args: TroubleArgs) -> Result<(), Box<dyn Error>> {
    let TroubleArgs { backend, node_id, said } = args;
    Backend::open(backend)?.set_trouble(&node_id, Some(said).filter(|said| !said.is_empty()))?;
    Ok(())
}

fn print(line: String) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
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
        assert!(parse("x provision --backend b --volume v --abnormal failing").is_ok());
        for args in [
            "--backend b",
            "--backend b --list --volume v",
            "--backend b --volume v --context a",
            "--backend b --abnormal failing",
            "--backend b --volume v --abnormal failing --capacity-bytes 1",
        ] {
            assert!(parse(&format!("x provision {args}")).is_err(), "{args}");
        }
    }
}
