//! The command line and its help.
//!
//! **Owns** names, defaults and help texts. **Promises** that every command explains itself in a
//! paragraph and shows examples, and that ids are checked before anything is sent.
//!
//! **Never** acts.

mod access;
mod bus;
mod class;
mod collect;
mod dev;
mod doctor;
mod events;
mod level;
mod list;
mod node;
mod plugin;
mod run;
mod search;
mod snapshot;
mod storage;
mod volume;
mod volume_arg;
mod why;

use std::path::PathBuf;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::alloc::WaitUntil;
use berth_domain::alloc::AllocState;
use berth_domain::volume::State;
use berth_domain::{AllocId, Namespace, NodeId, OwnerId, PluginId, VolumeId};
use berth_service::connection::ConnectionArgs;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub use access::{
    Access, AccessCommand, AccessDocker, AccessInit, AccessNode, AccessOther, AccessService,
    AccessUser, Adopt, Certify, Install, KeyOptions, Revoke, ServiceKind, Show,
};
pub use bus::{BusAccept, BusBackup, BusCommand, BusCopies, BusRestore};
pub use class::{ClassCommand, ClassCreate, ClassDelete, ClassInit, ClassList, ClassShow};
pub use collect::Gc;
pub use dev::Dev;
pub use doctor::Doctor;
pub use events::{Events, Kind, Trace};
pub use level::LevelCommand;
use list::LISTS;
pub use list::{ListView, PageArgs};
pub use node::{NodeCommand, NodeGone, NodeLeave, NodeStatus, NodeUnmount};
pub use plugin::{
    PluginCapacity, PluginCommand, PluginDelete, PluginExpect, PluginInstances, PluginStart,
    PluginStatus, PluginStop,
};
pub use run::Run;
pub use search::Search;
pub use snapshot::{
    GroupCommand, GroupCreate, GroupList, SnapshotAdopt, SnapshotArg, SnapshotCommand,
    SnapshotCreate, SnapshotDelete, SnapshotList, SnapshotRestore,
};
pub use storage::{
    NewVolumeArgs, UseArgs, VolumeAdopt, VolumeCreate, VolumeDelete, VolumeExpand, VolumeModify,
    WaitArgs,
};
pub use volume::{Deregister, Detach, Init, List, Placement, Register, Republish, VolumeCommand};
pub use volume_arg::{EphemeralArg, RunVolumeArg, VolumeArg};
pub use why::Why;

use crate::{exit, span};

/// Volumes for any fleet of Linux hosts
///
/// Berth gives workloads volumes of any CSI storage plugin. A workload claims a volume. Berth
/// attaches and mounts it where the workload runs, and releases it safely when the workload ends.
/// The services talk over NATS. This program sends them requests, runs a command with volumes
/// (`berth run`), and runs the whole system on one machine (`berth dev`).
#[derive(Debug, Parser)]
#[command(name = "berth", version = berth_version::current(), propagate_version = false)]
#[command(max_term_width = 100)]
#[command(after_long_help = exit::HELP, after_help = "More, with exit codes: berth --help")]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The heading of the options of every command. Each option names it, because a heading for all
/// following options would also head the connection's flags.
const OF_EVERY_COMMAND: &str = "Options of every command";

/// The options that every command has.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Where the bus is, and who the user is.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// The connection: a context of the `nats` CLI; other flags and variables go over it
    #[arg(long, global = true, value_name = "NAME", env = "NATS_CONTEXT", hide_env_values = true)]
    #[arg(help_heading = "Connection")]
    pub context: Option<String>,

    /// The namespace of volumes, claims and allocs; '*' lists those of all [default: default]
    #[arg(long, short = 'n', global = true, value_name = "NAME", env = "BERTH_NAMESPACE")]
    #[arg(hide_env_values = true, help_heading = OF_EVERY_COMMAND)]
    pub namespace: Option<Namespace>,

    /// Print the reply as one JSON document on stdout; messages for people go to stderr
    #[arg(long, global = true, help_heading = OF_EVERY_COMMAND)]
    pub json: bool,

    /// How long to retry a request: 500ms, 30s, 5m [default: 5s; for `run`, `stop --wait` and
    /// changes of the storage 5m, for `detach` 1m]
    #[arg(long, global = true, value_name = "SPAN", value_parser = span::parse)]
    #[arg(help_heading = OF_EVERY_COMMAND)]
    pub timeout: Option<Duration>,
}

impl Global {
    /// The namespace, or the default one.
    pub fn namespace(&self) -> Namespace {
        self.namespace.clone().unwrap_or_default()
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create, register, show, change and delete volumes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Cut, restore, list and delete snapshots of volumes
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Define and show classes: templates that volumes are created from
    #[command(subcommand)]
    Class(ClassCommand),
    /// Show storage plugins, their health and their room
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Show nodes and their state; declare that a node is gone
    #[command(subcommand)]
    Node(NodeCommand),
    /// Show and stop allocs, the placed runs of workloads
    #[command(subcommand)]
    Alloc(AllocCommand),
    /// Show the owners of allocs: instances of schedulers
    #[command(subcommand)]
    Owner(OwnerCommand),
    /// Show who holds which volume, and how far a release is
    #[command(subcommand)]
    Claim(ClaimCommand),
    /// Find volumes, allocs, plugins, nodes, snapshots and classes whose ids begin with a text
    ///
    /// Asks the services for all kinds at the same time, and shows the first 20 of each kind.
    /// Volumes, allocs and snapshots are those of the namespace; classes those that the namespace
    /// may use. A kind that your credentials may not list is left out, and named below the table.
    Search(Search),
    /// Explain the state of a volume, alloc, node or plugin, and what to do
    ///
    /// Prints one screen: the state and since when, the cause in one sentence with its evidence,
    /// who must act (nobody, the plugin's operator, or you), and the next command. If several
    /// things are wrong, it names the one that blocks the others: a service that is away before a
    /// node that is down, and that before a plugin that hangs. For a claim that waits for another
    /// claim, it names what blocks the other one.
    ///
    /// It asks the services, the agents of the nodes and the plugins' counts at the same time, each
    /// for two seconds at most. What did not answer is shown as not known.
    Why(Why),
    /// Show and raise the number of copies of buckets and streams on the bus
    #[command(subcommand)]
    Bus(BusCommand),
    /// Check the whole system: the bus, services, nodes, plugins, claims
    ///
    /// Reads everything at the same time, by a deadline, and prints one line for each check: the
    /// bus, the copies of its streams, clocks, services and their versions, nodes and their agents,
    /// plugins, claims that are stuck and why, operations that hang, and records that cannot be
    /// read. Below, each fault names its place and the next command to try.
    ///
    /// A check that cannot be made is a warning. The exit code is for monitoring. Nothing is
    /// changed.
    Doctor(Doctor),
    /// Hold the level of records during an upgrade, or let it rise
    ///
    /// The level is the highest schema of records that may be written. It rises by itself, some
    /// seconds after every replica of every service can read the newest one, and never falls.
    /// `berth doctor` shows it, who holds it, and which replicas keep it from rising.
    #[command(subcommand)]
    Level(LevelCommand),
    /// Collect garbage now
    ///
    /// The collector also runs by itself at intervals. It releases claims whose allocs have ended
    /// or do not exist, and deregisters volumes that are to go with their last claim. It removes
    /// records of allocs that have ended, of nodes that are down with nothing on them, and of
    /// plugin instances on unknown nodes. Each line says what was collected and why. What cannot be
    /// collected yet is shown with the reason.
    ///
    /// The collector frees no claim itself: the release takes its ordinary steps, which may take
    /// longer than this command, and the node has to unmount the volume first.
    Gc(Gc),
    /// Show what happened to volumes, claims, allocs, plugins and nodes
    ///
    /// Prints the newest events, oldest first: the time, the event, its volume, alloc, node and
    /// plugin, how long it took, the detail, and the first digits of the trace. If several options
    /// are given, all of them must match. Events of plugins and nodes are in no namespace, and are
    /// shown for every namespace; `--namespace '*'` shows all. Events are kept for a week, or as
    /// many as the stream has room for. Events may be lost: Berth decides nothing by them.
    ///
    /// With --json each event is one line, as it is stored.
    Events(Events),
    /// Print what happened to a claim, with times
    ///
    /// Uses the stored events, and the claim's record while it exists. Shows when each step began
    /// and how long it took, which step failed and why, who made it, what is under way, and what
    /// the claim waits for. A step that is part of another one is indented below it. No trace
    /// collector is needed.
    ///
    /// When an alloc claimed the same volume several times, the newest claim is printed.
    Trace(Trace),
    /// Run a command with volumes mounted, and release them when it ends
    ///
    /// Registers an alloc, has the node's agent claim and mount each volume, and runs CMD. When CMD
    /// ends, it stops the alloc and prints each step of the release. CMD starts only if all volumes
    /// are mounted. If one is refused, the others are released again.
    ///
    /// CMD finds each volume at `$BERTH_VOLUME_<SOURCE>` (upper case, every other character as _).
    /// With :PATH the volume is also at PATH, in a mount namespace that only CMD sees; PATH must
    /// exist. A volume `new:SIZE` is created for this run alone, before anything else, and deleted
    /// after it; CMD finds it at `$BERTH_VOLUME_NEW_0`, the next one at `$BERTH_VOLUME_NEW_1`.
    /// TERM, INT and HUP are passed on to CMD, and its exit code is returned.
    Run(Run),
    /// Run the whole system on this machine, to try it
    ///
    /// Starts, as processes of their own on loopback: one nats-server with JetStream, the claim
    /// service, the plugin registry, the volume watcher, the collector, and for each node n1, n2, …
    /// an agent with its own instance of the development CSI driver (directories with real mounts).
    /// A process that dies is restarted. State, configuration and logs are in one directory and
    /// survive a restart. With --plugin each node also runs a driver of your own.
    ///
    /// Mounting needs root. Without root, the system runs in a user and mount namespace of its own,
    /// which `berth run` must join: the command for that is printed at the start. Ctrl-C stops
    /// everything in order.
    Dev(Dev),
    /// Make and revoke identities: who may do what on the bus
    ///
    /// Works on a directory of keys that the operator keeps, and connects to nothing. The servers
    /// accept who shows a token that was signed here. Keep the directory on a machine that is not
    /// part of the fleet, and make a backup of it: who has it owns the fleet.
    Access(Access),
    /// Explain an error code
    ///
    /// Every error of Berth has a code, which is the same on the bus, in logs and here. Without a
    /// code, all codes are listed.
    #[command(after_long_help = "EXAMPLES\n    berth explain BERTH0106\n    berth explain")]
    Explain(Explain),
    /// Make the key that the secrets of volumes are sealed for
    ///
    /// Writes a new X25519 seed to FILE, which only its owner can read, and prints the public key.
    /// All replicas of berth-claim need the same file, named in `secrets.key_file`. To change the
    /// key, put the new seed on the first line and keep the old one below it.
    #[command(after_long_help = "EXAMPLES\n    berth keygen /etc/berth/secrets.key")]
    Keygen(Keygen),
    /// Print completions for a shell
    ///
    /// The script goes to stdout. Your shell's manual says where to store it.
    #[command(after_long_help = COMPLETIONS)]
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

/// `berth keygen`
#[derive(Debug, Args)]
pub struct Keygen {
    /// Where to write the seed; it must not exist
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

const COMPLETIONS: &str = "EXAMPLES
    # bash, for this shell
    source <(berth completions bash)

    # zsh, for good
    berth completions zsh > \"${fpath[1]}/_berth\"

    # fish, for good
    berth completions fish > ~/.config/fish/completions/berth.fish";

/// `berth alloc …`
#[derive(Debug, Subcommand)]
pub enum AllocCommand {
    /// List allocs, or show one with its claims
    ///
    /// An alloc is one placed run of a workload on one node. It holds claims. `berth run` registers
    /// one for its command, and a scheduler one for each placement.
    ///
    /// A list shows live allocs; --all adds those that have ended and whose records are still kept.
    #[command(visible_aliases = LISTS, after_long_help = "EXAMPLES
    berth alloc list
    berth alloc list --node n1 --all
    berth alloc list --owner scheduler-1 --meta job=web
    berth alloc list --unowned
    berth alloc list --watch
    berth alloc status run-7f3a91c2")]
    Status(AllocStatus),
    /// Declare that an alloc has ended, so that its volumes are released
    ///
    /// This ends no process: end the workload first. Then the volumes are unmounted, detached and
    /// freed, one recorded step at a time. A failed step is retried until it succeeds. With --wait
    /// each step is printed as it happens, until all volumes are freed or --timeout has passed. The
    /// release goes on in either case.
    #[command(after_long_help = "EXAMPLES
    berth alloc stop run-7f3a91c2
    berth alloc stop run-7f3a91c2 --wait --timeout 10m
    berth alloc stop web-1 --revision 4711")]
    Stop(AllocStop),
    /// Wait until an alloc is mounted, has ended, or is free
    ///
    /// Returns as soon as the alloc is in this state. With --timeout, the exit code says whether it
    /// got there in time.
    #[command(after_long_help = "EXAMPLES
    berth alloc wait web-1 mounted
    berth alloc wait web-1 free --timeout 10m")]
    Wait(AllocWait),
    /// Take over the live allocs of an owner whose lease has ended
    ///
    /// A scheduler does this when it starts. Nothing that runs is stopped.
    #[command(after_long_help = "EXAMPLES
    berth alloc adopt scheduler-1 scheduler-2")]
    Adopt(AllocAdopt),
}

/// `berth alloc status`
#[derive(Debug, Args)]
pub struct AllocStatus {
    /// Only this one, in detail
    #[arg(conflicts_with_all = [
        "prefix", "node", "state", "all", "owner", "meta", "unowned", "limit", "after", "sort",
    ])]
    pub id: Option<AllocId>,
    /// Only allocs whose id begins with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only allocs on this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<NodeId>,
    /// Only allocs in this state [default: live]
    #[arg(long, value_name = "STATE", value_parser = list::alloc_state())]
    pub state: Option<AllocState>,
    /// Allocs in every state, also those that have ended
    #[arg(long, conflicts_with = "state")]
    pub all: bool,
    /// Only allocs of this owner
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<OwnerId>,
    /// Only allocs with this label; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = list::parse_label)]
    pub meta: Vec<(String, String)>,
    /// Only allocs whose owner's lease has ended
    #[arg(long)]
    pub unowned: bool,
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// The form of the list.
    #[command(flatten)]
    pub view: ListView,
}

/// `berth alloc wait`
#[derive(Debug, Args)]
pub struct AllocWait {
    /// The alloc
    pub id: AllocId,
    /// What to wait for: mounted, ended or free
    #[arg(value_name = "UNTIL", value_parser = list::wait_until())]
    pub until: WaitUntil,
}

/// `berth alloc adopt`
#[derive(Debug, Args)]
pub struct AllocAdopt {
    /// The owner whose lease has ended
    pub from: OwnerId,
    /// The owner that takes its allocs over
    pub owner: OwnerId,
    /// Only this alloc; may be repeated
    #[arg(long, value_name = "ALLOC")]
    pub alloc: Vec<AllocId>,
}

/// `berth owner list`
#[derive(Debug, Args)]
pub struct OwnerList {
    /// Only owners whose name begins with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
}

/// `berth owner …`
#[derive(Debug, Subcommand)]
pub enum OwnerCommand {
    /// List owners of live allocs, and whether their leases are held
    ///
    /// An owner is one instance of a scheduler. While it holds a lease, its allocs are its own.
    /// When the lease ends they are unowned: they go on running, and the next instance adopts them.
    #[command(after_long_help = "EXAMPLES
    berth owner list
    berth alloc list --unowned")]
    List(OwnerList),
}

/// `berth alloc stop`
#[derive(Debug, Args)]
pub struct AllocStop {
    /// The alloc that has ended
    pub id: AllocId,
    /// Print each step of the release until all its volumes are freed
    #[arg(long)]
    pub wait: bool,
    /// The reason, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// The owner that the alloc belongs to, if you are its scheduler
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<OwnerId>,
    /// Only if its record is still at this revision, as `berth alloc status` shows it; with this an
    /// alloc of any owner is stopped
    #[arg(long, value_name = "REVISION")]
    pub revision: Option<u64>,
}

/// `berth claim …`
#[derive(Debug, Subcommand)]
pub enum ClaimCommand {
    /// List claims: of a volume, of an alloc, or all
    ///
    /// A claim is an alloc's right to use a volume. For a claim that is being released, the list
    /// shows its step, what it waits for, the number of tries, the last error, the time of the next
    /// try, and what you can do. For a waiting claim it shows which claims are ahead in line.
    #[command(visible_aliases = LISTS, after_long_help = "EXAMPLES
    berth claim list
    berth claim status --volume data --watch
    berth claim list --sort since
    berth claim status --prefix 'shard['
    berth claim status --alloc run-7f3a91c2 --json
    berth claim status --node n7 --state unpublishing -n '*'")]
    Status(ClaimStatus),
}

/// `berth claim status`
#[derive(Debug, Args)]
pub struct ClaimStatus {
    /// Only claims on volumes whose id begins with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only claims on this volume
    #[arg(long, value_name = "ID")]
    pub volume: Option<VolumeId>,
    /// Only claims of this alloc
    #[arg(long, value_name = "ID")]
    pub alloc: Option<AllocId>,
    /// Only claims on this node
    #[arg(long, value_name = "ID")]
    pub node: Option<NodeId>,
    /// Only claims on volumes of this plugin
    #[arg(long, value_name = "ID")]
    pub plugin: Option<PluginId>,
    /// Only claims in this state
    #[arg(long, value_name = "STATE", value_parser = list::claim_state())]
    pub state: Option<State>,
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// The form of the list.
    #[command(flatten)]
    pub view: ListView,
}

/// `berth explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// The code: BERTH0106, or 106
    #[arg(value_parser = code)]
    pub code: Option<Code>,
}

fn code(text: &str) -> Result<Code, String> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.strip_prefix("BERTH").unwrap_or(&upper);
    let known_code = Code::ALL.iter().find(|code| code.as_str() == format!("BERTH{digits:0>4}"));
    known_code.copied().ok_or_else(|| "no such code; `berth explain` lists them".to_owned())
}
