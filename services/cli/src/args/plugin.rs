//! `berth plugin …`

use berth_contract::message::registry::PluginType;
use berth_domain::{ClassId, JobId, NodeId, PluginId};
use clap::{Args, Subcommand};

use super::list::{self, LISTS, ListView, PageArgs};

/// `berth plugin …`
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// List plugins, or show one with its instances
    ///
    /// A plugin is the sum of its instances on the nodes. Shows how many controllers and node
    /// services are healthy and how many there are, and whether the controller attaches volumes. Of
    /// one plugin also what each instance answered to its last probe, the process behind it, and
    /// the jobs that announced the plugin.
    #[command(visible_aliases = LISTS, after_long_help = "EXAMPLES
    berth plugin list
    berth plugin status ebs.csi.aws.com
    berth plugin status --type controller
    berth plugin list --sort nodes
    berth plugin status --json | jq '.plugins[].nodes'")]
    Status(PluginStatus),
    /// Show how much room a plugin has, by place
    ///
    /// Asks the plugin's controller, for each place of its nodes. With --class the answer is for
    /// volumes of that class, at the places that the class allows. Not every plugin can say it.
    #[command(after_long_help = "EXAMPLES
    berth plugin capacity ebs.csi.aws.com
    berth plugin capacity --class fast
    berth plugin capacity ebs.csi.aws.com --class fast --topology zone=a
    berth plugin capacity --class fast --json | jq '.capacities[].available_bytes'")]
    Capacity(PluginCapacity),
    /// Say how many instances of a plugin a job is to have
    ///
    /// For the scheduler that runs a plugin, or its operator. From then on, absent instances count
    /// as missing. The expected number is the number of known instances, or the sum over the
    /// plugin's jobs if that is larger. The job's earlier numbers are replaced. With neither
    /// controllers nor nodes, the job is removed.
    #[command(after_long_help = "EXAMPLES
    berth plugin expect ebs.csi.aws.com ebs-controller --controllers 2
    berth plugin expect ebs.csi.aws.com ebs-nodes --nodes 12
    berth plugin expect ebs.csi.aws.com ebs-nodes")]
    Expect(PluginExpect),
    /// Remove a plugin that is neither run nor used
    ///
    /// A plugin is removed by itself with its last instance and job. This command removes instances
    /// of nodes that are down or unknown, and the jobs. It is refused while a volume of any
    /// namespace uses the plugin, or a ready node runs it.
    #[command(after_long_help = "EXAMPLES
    berth plugin delete ebs.csi.aws.com")]
    Delete(PluginDelete),
    /// Show each plugin instance on a node, its process, and files that are no plugin
    ///
    /// Asks the node's agent. Names the process that listens at each socket, by its id and its
    /// program, and the log of one that the agent runs. Several instances of a plugin may run side
    /// by side, as in an upgrade. Calls go to the newest healthy one. An instance whose file or
    /// socket is gone stays while mounts need it. Faults of files in `plugins_dir` or
    /// `sockets_dir` are shown below.
    #[command(after_long_help = "EXAMPLES
    berth plugin instances n1
    berth plugin instances n1 --plugin ebs.csi.aws.com")]
    Instances(PluginInstances),
    /// Stop the process of a plugin that a node's agent runs
    ///
    /// The plugin stays stopped until it is started, or its file is removed or changed. The command
    /// is refused while mounts need the plugin, unless an option says otherwise.
    #[command(after_long_help = "EXAMPLES
    berth plugin stop ebs.csi.aws.com --node n1
    berth plugin stop ebs.csi.aws.com --node n1 --instance 3f2c9a10b4de --even-with-mounts")]
    Stop(PluginStop),
    /// Start a plugin that was stopped
    ///
    /// A plugin that runs already is left alone. A file that is put back or changed is run in any
    /// case.
    #[command(after_long_help = "EXAMPLES
    berth plugin start ebs.csi.aws.com --node n1")]
    Start(PluginStart),
}

/// `berth plugin status`
#[derive(Debug, Args)]
pub struct PluginStatus {
    /// Only this one, in detail
    #[arg(conflicts_with_all = ["prefix", "sort"])]
    pub id: Option<PluginId>,
    /// Only plugins whose id begins with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only plugins with an instance on this node; of one plugin, only those instances
    #[arg(long, value_name = "ID")]
    pub node: Option<NodeId>,
    /// Only plugins with an instance of this type; of one plugin, only those instances. A monolith
    /// is both on one node, and of the other two types as well
    #[arg(long = "type", value_name = "TYPE", value_parser = list::plugin_type())]
    pub kind: Option<PluginType>,
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// The form of the list.
    #[command(flatten)]
    pub view: ListView,
}

/// `berth plugin capacity`
#[derive(Debug, Args)]
pub struct PluginCapacity {
    /// Which plugin [default: that of the class]
    #[arg(required_unless_present = "class")]
    pub id: Option<PluginId>,
    /// For volumes of this class, which is of the plugin
    #[arg(long, value_name = "CLASS")]
    pub class: Option<ClassId>,
    /// Only at this place; segments are separated by commas
    #[arg(long, value_name = "KEY=VALUE")]
    pub topology: Option<String>,
}

/// `berth plugin expect`
#[derive(Debug, Args)]
pub struct PluginExpect {
    /// Which plugin
    pub id: PluginId,
    /// Which job, of the namespace
    pub job: JobId,
    /// How many controllers it is to have
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub controllers: u32,
    /// How many node instances it is to have
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub nodes: u32,
}

/// `berth plugin delete`
#[derive(Debug, Args)]
pub struct PluginDelete {
    /// Which plugin
    pub id: PluginId,
}

/// `berth plugin instances`
#[derive(Debug, Args)]
pub struct PluginInstances {
    /// Which node
    pub node: NodeId,
    /// Only of this plugin
    #[arg(long, value_name = "ID")]
    pub plugin: Option<PluginId>,
}

/// `berth plugin stop`
#[derive(Debug, Args)]
pub struct PluginStop {
    /// Which plugin
    pub id: PluginId,
    /// On which node
    #[arg(long, value_name = "ID")]
    pub node: NodeId,
    /// Only this instance, as `berth plugin instances` shows it
    #[arg(long, value_name = "INSTANCE")]
    pub instance: Option<String>,
    /// Stop it although mounts need it: the mounts of a FUSE driver end with its process
    #[arg(long)]
    pub even_with_mounts: bool,
    /// Who stops it [default: the user at this host]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// `berth plugin start`
#[derive(Debug, Args)]
pub struct PluginStart {
    /// Which plugin
    pub id: PluginId,
    /// On which node
    #[arg(long, value_name = "ID")]
    pub node: NodeId,
    /// Only this instance, as `berth plugin instances` shows it
    #[arg(long, value_name = "INSTANCE")]
    pub instance: Option<String>,
}
