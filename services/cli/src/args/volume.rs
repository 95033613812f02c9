//! `berth volume …`

use std::path::PathBuf;

use berth_domain::access::{AccessMode, AttachmentMode};
use berth_domain::volume::State;
use berth_domain::{AllocId, NodeId, PluginId, VolumeId};
use clap::{ArgGroup, Args, Subcommand};

use super::list::{self, LISTS, ListView, PageArgs};
use super::storage::{VolumeAdopt, VolumeCreate, VolumeDelete, VolumeExpand, VolumeModify};
use super::volume_arg::VolumeArg;

/// `berth volume …`
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Write an example of a volume's document, for editing
    ///
    /// It has every field, explained by a comment: for a volume that is at the storage already, and
    /// with --create for one that is to be created there. With --json the example is JSON, which
    /// has no comments. A file that exists is not overwritten.
    #[command(after_long_help = "EXAMPLES
    berth volume init
    berth volume init --create data.toml && $EDITOR data.toml && berth volume create data.toml
    berth volume init data.toml && $EDITOR data.toml && berth volume register data.toml
    berth volume init --json -")]
    Init(Init),
    /// Create a volume at its storage
    ///
    /// Waits until the volume is ready or the storage has refused it, and prints each step. The
    /// plugin, the parameters and the places come from the class. Without a class, options or the
    /// document say them; then secrets are in a document only. All faults of the command line or
    /// the document are printed at once, before anything is sent. The same request again changes
    /// nothing.
    ///
    /// After --timeout, or when this command is ended, the creation goes on by itself: it is tried
    /// until the plugin creates or refuses the volume. A volume that the storage refused stays, as
    /// `failed`, with the plugin's words, until it is deleted.
    #[command(after_long_help = "EXAMPLES
    berth volume create data --class fast --size 10GiB
    berth volume create scratch --plugin ebs.csi.aws.com --size 10GiB --param type=gp3
    berth volume create copy --from-volume data
    berth volume create old --from-snapshot data@monday --size 20GiB
    berth volume create data.toml")]
    Create(Box<VolumeCreate>),
    /// Register a volume that is at its storage already, or update it
    ///
    /// The document is TOML or JSON; `berth volume init` writes an example. It is checked before
    /// anything is sent: all faults are printed at once, by file, line and field. Registering the
    /// same document again changes nothing. The service decides which fields of a volume in use may
    /// change.
    ///
    /// Several volumes of one namespace, at most 64, are registered all or none for what is wrong
    /// in a document, or where a plugin is not there. Beyond that, each has an answer of its own,
    /// and one that is refused keeps none of the others.
    #[command(after_long_help = "EXAMPLES
    berth volume register data.toml
    berth volume register data.toml logs.toml models.toml
    generate-spec | berth volume register -")]
    Register(Register),
    /// List volumes, or show one with its claims
    ///
    /// Shows each volume's health (computed from its plugin now, not stored), how it is in use, and
    /// for each claim its state, what it waits for, the tries, the last error and the next try.
    ///
    /// With --external the plugin is asked for all its volumes, and each is shown beside the volume
    /// of Berth that it is: known, not registered, or registered and not listed.
    ///
    /// A list counts the claims of each volume. `berth claim list` names them, with their nodes.
    #[command(visible_aliases = LISTS, after_long_help = "EXAMPLES
    berth volume list
    berth volume list --plugin ebs.csi.aws.com --node n1
    berth volume list --sort waiting --watch
    berth volume list --external ebs.csi.aws.com
    berth volume status data
    berth volume status data --json | jq '.claims[].state'")]
    Status(List),
    /// Show which nodes could host volumes now, and why the others cannot
    ///
    /// For each node, whether a workload would get all of these volumes there at this moment. If
    /// not, all reasons are shown: the node is down or its clock is wrong, the plugin is missing or
    /// unhealthy there, the node has no room for another volume, or the volume is out of reach,
    /// held by others, or does not offer the capability. Nothing is reserved.
    #[command(after_long_help = "EXAMPLES
    berth volume placement data
    berth volume placement data models:ro
    berth volume placement shard --per-alloc 2 --node n1
    berth volume placement data --json | jq -r '.nodes[] | select(.fits).node'")]
    Placement(Placement),
    /// Make a volume larger, at its storage and on its nodes
    ///
    /// The plugin's controller expands the volume. Then, where the plugin needs it, each node that
    /// has the volume mounted expands its file system. A volume that is mounted nowhere is expanded
    /// when it is mounted next. Volumes never get smaller. Waits, and prints each step; after
    /// --timeout the expansion goes on by itself.
    #[command(after_long_help = "EXAMPLES
    berth volume expand data 20GiB
    berth volume expand data 20GiB --limit 25GiB
    berth volume expand data 20GiB --when-free --no-wait")]
    Expand(VolumeExpand),
    /// Change parameters of a volume at its storage
    ///
    /// Only what the plugin calls mutable can be changed, such as a number of operations per
    /// second. The volume may be in use. Waits, and prints each step; after --timeout the change
    /// goes on by itself.
    #[command(after_long_help = "EXAMPLES
    berth volume modify data iops=6000 throughput=250")]
    Modify(VolumeModify),
    /// Register a volume that a plugin has
    ///
    /// The plugin is asked for its list. The volume is registered with the context, the places and
    /// the size that the list says. If its plugin calls need secrets, register its document instead
    /// (`berth volume register`).
    #[command(after_long_help = "EXAMPLES
    berth volume list --external ebs.csi.aws.com
    berth volume adopt ebs.csi.aws.com vol-0a1b2c3d --id data
    berth volume adopt nfs.csi.k8s.io share-7 --access multi-node-multi-writer")]
    Adopt(VolumeAdopt),
    /// Delete a volume at its storage: its data is destroyed
    ///
    /// Without --yes it says what it would destroy. Refused while the volume has a claim, or a
    /// snapshot or a copy of it is being made. Waits until the volume is gone, and prints each
    /// step; after --timeout the deletion goes on by itself. `berth volume deregister` removes a
    /// volume from Berth, and leaves its data at the storage.
    ///
    /// A volume whose reclaim policy is `retain` needs --even-retained, too. A volume of which
    /// nothing is at the storage is removed without a confirmation.
    #[command(after_long_help = "EXAMPLES
    berth volume delete data
    berth volume delete data --yes
    berth volume delete data --yes --even-retained --reason 'moved to the new storage'")]
    Delete(VolumeDelete),
    /// Deregister a volume; its data stays at the storage
    ///
    /// `berth volume delete` destroys the data, too.
    ///
    /// Refused while the volume has claims. With --force the volume closes instead: it takes no new
    /// claims, and is removed with the last claim and the last mount. No workload loses it: a claim
    /// is released once its alloc has ended, by the ordinary steps. Of several volumes, each has an
    /// answer of its own.
    #[command(after_long_help = "EXAMPLES
    berth volume deregister data
    berth volume deregister data logs models
    berth volume deregister data --force --reason 'host n7 was scrapped'")]
    Deregister(Deregister),
    /// Detach a volume from a node whose allocs have ended
    ///
    /// Releases every claim there whose alloc has ended or is gone, by the ordinary steps, and
    /// waits until the last claim is freed. After --timeout the release goes on by itself. You need
    /// not name allocs, and neither they nor the node need to be known any more. The command may be
    /// repeated.
    ///
    /// Refused while an alloc on the node is not declared as ended. Only the node's agent can say
    /// that the volume is unmounted there. While the agent is away, the release waits, and says so,
    /// until the agent is back or `berth node gone` declares the host gone. If the plugin's
    /// controller cannot confirm that the volume is detached (it was deleted at the storage, for
    /// example), the claim waits, too, until you confirm it: --detached-at-storage. If the plugin
    /// on the node keeps failing although nothing of the volume is left there: --unstaged-on-node.
    #[command(after_long_help = "EXAMPLES
    berth volume detach data n7
    berth volume detach data n7 --detached-at-storage --yes --reason 'deleted at the storage'
    berth volume detach data n7 --timeout 5m --reason 'stuck since the upgrade'")]
    Detach(Detach),
    /// Bring dead mounts of a volume on a node back, at the same paths
    ///
    /// For mounts that `berth node status NODE` shows as missing or dead: a FUSE server died, a
    /// device is gone, or a mount was unmounted by hand. The plugin unpublishes the volume there,
    /// and unstages it if no other alloc uses it. Then it stages and publishes it again. The claims
    /// stay.
    ///
    /// A mount that is well is left alone. Refused if an alloc has ended, or if all are well. If a
    /// workload still holds the dead mount, the command names it: end it, then repeat the
    /// command. A running workload sees the new mount only if it opens
    /// the path again and shares the host's mounts.
    #[command(after_long_help = "EXAMPLES
    berth volume republish data --node n7
    berth volume republish data --node n7 --alloc web-1
    berth volume republish data --node n7 --force   # also what is well")]
    Republish(Republish),
}

/// `berth volume init`
#[derive(Debug, Args)]
pub struct Init {
    /// For a volume that is to be created at the storage
    #[arg(long)]
    pub create: bool,
    /// The file to write, or - for stdout [default: volume.toml; volume.json with --json]
    pub file: Option<PathBuf>,
}

/// `berth volume register`
#[derive(Debug, Args)]
pub struct Register {
    /// The volume's document, or - for stdin; of several volumes, one each
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// `berth volume status`
#[derive(Debug, Args)]
pub struct List {
    /// Only this one, in detail
    #[arg(conflicts_with_all = [
        "prefix", "plugin", "node", "state", "limit", "after", "sort", "external",
    ])]
    pub id: Option<VolumeId>,
    /// List what this plugin has, beside what is registered
    #[arg(long, value_name = "PLUGIN", conflicts_with_all = [
        "prefix", "plugin", "node", "state", "limit", "after", "watch",
    ])]
    pub external: Option<PluginId>,
    /// Only volumes whose id begins with this
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
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// The form of the list.
    #[command(flatten)]
    pub view: ListView,
}

/// `berth volume placement`
#[derive(Debug, Args)]
pub struct Placement {
    /// The volumes: each one's id, and whether it is only read
    #[arg(value_name = "VOLUME[:ro]", required_unless_present = "as_of_run")]
    pub volumes: Vec<VolumeArg>,
    /// A volume, as for `berth run`
    #[arg(long = "volume", short = 'v', value_name = "SOURCE[:PATH][:ro]")]
    pub as_of_run: Vec<VolumeArg>,
    /// The workload's index among equal ones, from 0: each SOURCE means the volume SOURCE[N]
    #[arg(long, value_name = "N")]
    pub per_alloc: Option<u32>,
    /// The access mode [default: each volume's first capability]
    #[arg(long, value_name = "MODE", value_parser = list::access_modes())]
    pub access: Option<AccessMode>,
    /// File system or block device [default: as each volume's first capability that fits]
    #[arg(long, value_name = "MODE", value_parser = list::attachment_modes())]
    pub attachment: Option<AttachmentMode>,
    /// Only of this node
    #[arg(long, value_name = "ID")]
    pub node: Option<NodeId>,
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
}

/// `berth volume detach`
#[derive(Debug, Args)]
#[command(group(
    ArgGroup::new("answered_for").multiple(true).args(["detached_at_storage", "unstaged_on_node"])
))]
pub struct Detach {
    /// The volume
    pub id: VolumeId,
    /// The node
    pub node: NodeId,
    /// The reason, for the history
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// You checked the storage itself: it has detached the volume from the node. This replaces the
    /// answer of a plugin that was asked and cannot give it
    #[arg(long, requires = "yes")]
    pub detached_at_storage: bool,
    /// You checked the node itself: nothing of the volume is left there, no device and no session.
    /// This replaces the answer of a node plugin that answers with errors; the node's agent must
    /// find nothing mounted
    #[arg(long, requires = "yes")]
    pub unstaged_on_node: bool,
    /// Confirm it: if it is wrong, data may be lost
    #[arg(long, requires = "answered_for")]
    pub yes: bool,
    /// Who confirms it [default: the user at this host]
    #[arg(long, value_name = "NAME", requires = "answered_for")]
    pub by: Option<String>,
}

/// `berth volume republish`
#[derive(Debug, Args)]
pub struct Republish {
    /// The volume
    pub id: VolumeId,
    /// The node
    #[arg(long, value_name = "ID")]
    pub node: NodeId,
    /// Only the mount of this alloc, not all mounts of the volume there
    #[arg(long, value_name = "ID")]
    pub alloc: Option<AllocId>,
    /// Take mounts down that are well, too: their workloads lose them until they are mounted again,
    /// and for good if the plugin cannot mount them
    #[arg(long)]
    pub force: bool,
}

/// `berth volume deregister`
#[derive(Debug, Args)]
pub struct Deregister {
    /// The volumes
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<VolumeId>,
    /// Close a volume that is in use, instead of refusing: it takes no new claims, and goes once
    /// nothing uses it; nothing is deleted at the storage
    #[arg(long)]
    pub force: bool,
    /// The reason, for the history
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}
