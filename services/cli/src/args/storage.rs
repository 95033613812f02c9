//! Changes of a volume at its storage: `berth volume create`, `delete`, `expand`, `modify`,
//! `adopt`.
//!
//! Arguments that are no valid id, size or pair are refused by the command, not here, so that it
//! prints all faults at once.

use berth_domain::PluginId;
use berth_domain::VolumeId;
use berth_domain::access::{AccessMode, AttachmentMode};
use berth_domain::class::TopologyPolicy;
use berth_domain::volume::storage::Reclaim;
use clap::Args;

use super::list;

/// Whether to wait for the end of a change.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct WaitArgs {
    /// Return as soon as the request is stored; the change goes on by itself
    #[arg(long)]
    pub no_wait: bool,
}

/// The capabilities and mount options of a volume.
#[derive(Debug, Clone, Default, Args)]
pub struct UseArgs {
    /// How it may be shared [default: as the class says; single-node-writer without a class]
    #[arg(long, value_name = "MODE", value_parser = list::access_modes())]
    pub access: Option<AccessMode>,
    /// File system or block device [default: as the class says; file-system without a class]
    #[arg(long, value_name = "MODE", value_parser = list::attachment_modes())]
    pub attachment: Option<AttachmentMode>,
    /// The file system [default: the plugin's own choice]
    #[arg(long, value_name = "TYPE")]
    pub fs_type: Option<String>,
    /// A mount flag, such as noatime; may be repeated
    #[arg(long, value_name = "FLAG")]
    pub mount_flag: Vec<String>,
    /// The group that may read and write, where the plugin can do it
    #[arg(long, value_name = "GROUP")]
    pub mount_group: Option<String>,
}

/// The options of a new volume, without its id and its source.
#[derive(Debug, Clone, Default, Args)]
pub struct NewVolumeArgs {
    /// The class that it is made from; `berth class list` shows them
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// The plugin that makes it, without a class
    #[arg(long, value_name = "ID")]
    pub plugin: Option<String>,
    /// The smallest size: 10GiB, 500MB [default: the class's, the source's, or the plugin's choice]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub size: Option<String>,
    /// The largest size
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub limit: Option<String>,
    /// How it may be used.
    #[command(flatten)]
    pub uses: UseArgs,
    /// A parameter for the plugin, without a class; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub param: Vec<String>,
    /// A parameter that `berth volume modify` can change, over those of the class; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub mutable: Vec<String>,
    /// A place where it may be, without a class; may be repeated. The segments of one place are
    /// separated by commas
    #[arg(long, value_name = "KEY=VALUE")]
    pub topology: Vec<String>,
    /// The node where it is to be used: it is created where that node reaches it
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// When its place is decided, without a class: now, or by its first claim
    #[arg(long, value_name = "WHEN", value_parser = list::topology_policies())]
    pub topology_policy: Option<TopologyPolicy>,
    /// Whether `berth volume delete` needs a second confirmation: retain [default: as the class
    /// says; delete without a class]
    #[arg(long, value_name = "WHAT", value_parser = list::reclaims())]
    pub reclaim: Option<Reclaim>,
    /// A name for people
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
}

impl NewVolumeArgs {
    /// Whether no option is given.
    pub fn is_empty(&self) -> bool {
        let UseArgs { access, attachment, fs_type, mount_flag, mount_group } = &self.uses;
        let names = [&self.class, &self.plugin, &self.size, &self.limit, &self.name, fs_type];
        let lists = [&self.param, &self.mutable, &self.topology, mount_flag];
        names.iter().all(|option| option.is_none())
            && lists.iter().all(|option| option.is_empty())
            && mount_group.is_none()
            && access.is_none()
            && attachment.is_none()
            && self.topology_policy.is_none()
            && self.reclaim.is_none()
            && self.node.is_none()
    }
}

/// `berth volume create`
#[derive(Debug, Args)]
pub struct VolumeCreate {
    /// The id of the new volume; or its document, a file that ends with .toml or .json, or - for
    /// stdin
    #[arg(value_name = "ID|FILE")]
    pub what: String,
    /// Its properties.
    #[command(flatten)]
    pub new: NewVolumeArgs,
    /// Copy this volume
    #[arg(long, value_name = "ID", conflicts_with = "from_snapshot", group = "source")]
    pub from_volume: Option<String>,
    /// Restore this snapshot
    #[arg(long, value_name = "VOLUME@SNAPSHOT", group = "source")]
    pub from_snapshot: Option<String>,
    /// The copy gets the secrets of its source [default: the class's, or none]
    #[arg(long, requires = "source")]
    pub with_secrets: bool,
    /// The alloc for whose run it is: it is deleted when the alloc has ended
    #[arg(long, value_name = "ID", hide = true)]
    pub for_alloc: Option<String>,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `berth volume delete`
#[derive(Debug, Args)]
pub struct VolumeDelete {
    /// The volume
    pub id: VolumeId,
    /// Confirm it: its data is destroyed at the storage
    #[arg(long)]
    pub yes: bool,
    /// Confirm it for a volume whose reclaim policy is `retain`, too
    #[arg(long, requires = "yes")]
    pub even_retained: bool,
    /// The reason, for the history
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `berth volume expand`
#[derive(Debug, Args)]
pub struct VolumeExpand {
    /// The volume
    pub id: VolumeId,
    /// The smallest new size: 20GiB
    #[arg(allow_hyphen_values = true)]
    pub size: String,
    /// The largest new size
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub limit: Option<String>,
    /// If the plugin expands no volume that is in use, wait until no claim holds this one
    #[arg(long)]
    pub when_free: bool,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `berth volume modify`
#[derive(Debug, Args)]
pub struct VolumeModify {
    /// The volume
    pub id: VolumeId,
    /// The parameters to set; others stay as they are
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub parameters: Vec<String>,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `berth volume adopt`
#[derive(Debug, Args)]
pub struct VolumeAdopt {
    /// The plugin
    pub plugin: PluginId,
    /// The plugin's id of the volume, as `berth volume list --external PLUGIN` shows it
    pub external_id: String,
    /// The id of the volume [default: the plugin's id of it]
    #[arg(long, value_name = "ID")]
    pub id: Option<VolumeId>,
    /// A name for people
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// How it may be used.
    #[command(flatten)]
    pub uses: UseArgs,
}
