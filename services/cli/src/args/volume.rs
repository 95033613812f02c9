//! `berth volume …`

use std::path::PathBuf;

use berth_domain::access::{AccessMode, AttachmentMode};
use berth_domain::volume::State;
use berth_domain::{AllocId, NodeId, PluginId, VolumeId};
use clap::{ArgGroup, Args, Subcommand};

use super::LISTS;
use super::VolumeArg;
use super::list::{self, ListView, PageArgs};

/// `berth volume …`
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Write an example of a volume's document, to be edited
    ///
    /// Every field is there, explained by a comment. With --json the example is JSON, which has no
    /// comments. A file that exists is not overwritten.
    #[command(after_long_help = "EXAMPLES
    berth volume init
    berth volume init data.toml && $EDITOR data.toml && berth volume register data.toml
    berth volume init --json -")]
    Init(Init),
    /// Register a volume, or update it
    ///
    /// The document is TOML or JSON; `berth volume init` writes an example. It is checked here
    /// first: every fault is told at once, by file, line and field, and nothing is sent.
    /// Registering the same again is nothing; what may change of a volume in use is decided by the
    /// service.
    #[command(after_long_help = "EXAMPLES
    berth volume register data.toml
    generate-spec | berth volume register -")]
    Register(Register),
    /// List volumes, or show one with its claims
    ///
    /// Shows each volume's health (derived from its plugin now, not stored), how it is in use, and
    /// for each claim its state, what it waits for, tries, the last error and the next try.
    ///
    /// In a list, HOLDERS are the allocs with a claim that is not in line, and NODES where those
    /// claims are for; of many the first few are named.
    #[command(visible_aliases = LISTS, after_long_help = "EXAMPLES
    berth volume list
    berth volume list --plugin ebs.csi.aws.com --node n1
    berth volume list --sort waiting --watch
    berth volume status data
    berth volume status data --json | jq '.claims[].state'")]
    Status(List),
    /// See which nodes could host volumes now, and why the others cannot
    ///
    /// For each node, whether a workload that asks for all of these volumes would be given them at
    /// this moment, and else everything that is in the way: the node down or its clock off, the
    /// plugin missing or unhealthy there, no room for another volume, the volume out of reach, held
    /// by others, or not to be used so. Nothing is reserved.
    #[command(after_long_help = "EXAMPLES
    berth volume placement -v data -v models:ro
    berth volume placement -v shard --per-alloc 2 --node n1
    berth volume placement -v data --json | jq -r '.nodes[] | select(.fits).node'")]
    Placement(Placement),
    /// Deregister a volume; its data stays where it is
    ///
    /// Refused while claims remain. With --force the claims of allocs that have ended are released
    /// first, by the same steps as ever, and the volume goes with the last of them; a claim whose
    /// alloc still runs is not taken away.
    #[command(after_long_help = "EXAMPLES
    berth volume deregister data
    berth volume deregister data --force --reason 'host n7 was scrapped'")]
    Deregister(Deregister),
    /// Have a volume leave a node, whatever became of its allocs
    ///
    /// Releases every claim there whose alloc has ended or vanished, by the same steps as ever, and
    /// waits until the last is gone; the release goes on also when --timeout has passed. No alloc
    /// has to be named, and neither it nor the node has to be known any more. Again is harmless.
    ///
    /// Refused while an alloc on the node has not been said to have ended. Only the node's agent
    /// can say that the volume is unmounted there: while it is away the release stands, visibly,
    /// until it is back or `berth node gone` says that the host is off for good. A plugin whose
    /// controller cannot say that the volume is detached (it was deleted at the storage, say) keeps
    /// the claim too, until it can, or somebody who has looked says it: --detached-at-storage. A
    /// plugin that never takes the volume down on the node, although nothing of it is left there:
    /// --unstaged-on-node.
    #[command(after_long_help = "EXAMPLES
    berth volume detach data n7
    berth volume detach data n7 --detached-at-storage --yes --reason 'deleted at the storage'
    berth volume detach data n7 --timeout 5m --reason 'stuck since the upgrade'")]
    Detach(Detach),
    /// Bring dead mounts of a volume on a node back, at the same paths
    ///
    /// For mounts that `berth node status NODE` shows as missing or dead: a FUSE server that died,
    /// a device that vanished, a mount that somebody unmounted. The plugin unpublishes and, where
    /// nobody else uses it, unstages the volume there, then stages and publishes it again. The
    /// claims stay as they are.
    ///
    /// Refused where an alloc has ended, and told where a workload still holds the dead mount: end
    /// it, then ask again. A workload that runs sees the new mount only if it opens the path anew
    /// and shares the host's mounts.
    #[command(after_long_help = "EXAMPLES
    berth volume republish data --node n7
    berth volume republish data --node n7 --alloc web-1")]
    Republish(Republish),
}

/// `berth volume init`
#[derive(Debug, Args)]
pub struct Init {
    /// Where to: a file, or - for stdout [default: volume.toml; volume.json with --json]
    pub file: Option<PathBuf>,
}

/// `berth volume register`
#[derive(Debug, Args)]
pub struct Register {
    /// The volume's document, or - for stdin
    pub file: PathBuf,
}

/// `berth volume status`
#[derive(Debug, Args)]
pub struct List {
    /// Only this one, in detail
    #[arg(conflicts_with_all = ["prefix", "plugin", "node", "state", "limit", "after", "sort"])]
    pub id: Option<VolumeId>,
    /// Only volumes whose id begins so
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only volumes of this plugin
    #[arg(long, value_name = "ID")]
    pub plugin: Option<PluginId>,
    /// Only volumes with a claim on this node that holds them, or may
    #[arg(long, value_name = "ID")]
    pub node: Option<NodeId>,
    /// Only volumes with a claim in this state
    #[arg(long, value_name = "STATE", value_parser = list::claim_state())]
    pub state: Option<State>,
    /// Which part of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// How it is shown.
    #[command(flatten)]
    pub view: ListView,
}

/// `berth volume placement`
#[derive(Debug, Args)]
pub struct Placement {
    /// A volume: its id, and whether it is only read; as for `berth run`
    #[arg(long = "volume", short = 'v', value_name = "SOURCE[:PATH][:ro]", required = true)]
    pub volumes: Vec<VolumeArg>,
    /// Which of several alike it is, from 0: each SOURCE stands for the volume SOURCE[N]
    #[arg(long, value_name = "N")]
    pub per_alloc: Option<u32>,
    /// How the volumes are to be shared [default: each volume's first capability]
    #[arg(long, value_name = "MODE", value_parser = list::access_modes())]
    pub access: Option<AccessMode>,
    /// What the volumes are to be [default: as each volume's first capability that fits]
    #[arg(long, value_name = "MODE", value_parser = list::attachment_modes())]
    pub attachment: Option<AttachmentMode>,
    /// Only of this node
    #[arg(long, value_name = "ID")]
    pub node: Option<NodeId>,
    /// Which part of the list.
    #[command(flatten)]
    pub page: PageArgs,
}

/// `berth volume detach`
#[derive(Debug, Args)]
#[command(group(
    ArgGroup::new("answered_for").multiple(true).args(["detached_at_storage", "unstaged_on_node"])
))]
pub struct Detach {
    /// Which volume
    pub id: VolumeId,
    /// From which node
    pub node: NodeId,
    /// Why, for the history
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// The storage itself was looked at, and has the volume attached to the node no more: this
    /// stands in for the plugin's answer, where it was asked and cannot give it
    #[arg(long, requires = "yes")]
    pub detached_at_storage: bool,
    /// The node itself was looked at, and nothing of the volume is left there, no device and no
    /// session: this stands in for the plugin's answer on the node, where it was asked and answers
    /// with errors; the node's agent must find nothing mounted
    #[arg(long, requires = "yes")]
    pub unstaged_on_node: bool,
    /// Yes, whoever says so answers for it
    #[arg(long, requires = "answered_for")]
    pub yes: bool,
    /// Who says so; user and host unless given
    #[arg(long, value_name = "NAME", requires = "answered_for")]
    pub by: Option<String>,
}

/// `berth volume republish`
#[derive(Debug, Args)]
pub struct Republish {
    /// Which volume
    pub id: VolumeId,
    /// On which node
    #[arg(long, value_name = "ID")]
    pub node: NodeId,
    /// Only for this alloc, not for all that use it there
    #[arg(long, value_name = "ID")]
    pub alloc: Option<AllocId>,
}

/// `berth volume deregister`
#[derive(Debug, Args)]
pub struct Deregister {
    /// Which volume
    pub id: VolumeId,
    /// Release the claims of allocs that have ended, rather than refuse
    #[arg(long)]
    pub force: bool,
    /// Why, for the history
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}
