//! `berth node …`

use berth_domain::plugin::NodeState;
use berth_domain::proof::ProofKind;
use berth_domain::{AllocId, NodeId, PluginId, VolumeId};
use clap::{Args, Subcommand};

use super::list::{self, LISTS, ListView, PageArgs};

/// `berth node …`
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List nodes, or show one with its plugin instances
    ///
    /// A node is ready while its agent holds its lease. SKEW is how far the node's clock is from
    /// the registry's; with too much of it the node gets no new claims. A node that was declared
    /// gone is shown as such, with who declared it and when, until it is back and has undone its
    /// mounts.
    ///
    /// For one node, the command also shows what its agent has mounted and for which alloc, whether
    /// the mount table has the mount and whether it answers, which calls are under way or hang and
    /// since when, the last error and the next try, and the claims of the mounts.
    #[command(visible_aliases = LISTS, after_long_help = "EXAMPLES
    berth node list
    berth node list --sort skew --watch
    berth node status n1")]
    Status(NodeStatus),
    /// Declare that nothing on a node can write any more, so that its volumes can be used elsewhere
    ///
    /// A volume leaves a node when the node's agent says that it is unmounted there. The agent of a
    /// destroyed host says nothing, and Berth never takes silence for an answer. With this command
    /// an operator, or the program that fences hosts, answers instead. Each claim of the node is
    /// released, its allocs count as failed, and the volumes may be attached elsewhere at once. If
    /// anything on the host still writes, data is lost.
    ///
    /// First read the revision of the node's record: `berth node status NODE`. Then make sure that
    /// nothing there can write. Only then run this command, with that revision. It is refused if
    /// the record has changed since, because the node may have been back in between.
    ///
    /// Refused while the node's agent holds its lease. A first declaration stays; repeating it
    /// changes nothing. The node need not be known any more. If the host comes back, its agent
    /// undoes every mount before the node takes anything new. Then the node counts as any other.
    #[command(after_long_help = "EXAMPLES
    berth node status n7
    berth node gone n7 --seen 1042 --kind powered-off --note 'ticket 4711: PSU' --yes
    berth node gone n7 --seen 1042 --kind storage-fenced --by fencing-agent --yes")]
    Gone(NodeGone),
    /// Unmount a volume on a node that no claim covers
    ///
    /// A claim's record may be lost: it was deleted by hand, or is missing in a restored backup.
    /// The volume is still mounted, and Berth neither detaches it from the node nor grants it to
    /// another node. End the workload first. Then this command makes the node's plugin undo the
    /// mount.
    ///
    /// Refused if a claim covers the mount (stop its alloc instead), and while a process of the
    /// node uses the volume: the process is named. If the plugin's controller attaches volumes, the
    /// volume is still attached afterwards: claim it on the node once more, and release it.
    #[command(after_long_help = "EXAMPLES
    berth node unmount n7 data
    berth node unmount n7 data --alloc web-0")]
    Unmount(NodeUnmount),
    /// Remove the record of a node that does not come back, and its plugin instances
    ///
    /// For a host that was retired in order: drained, and its agent stopped. Claims of the node
    /// stay, and are released by `berth node gone`. The record of a node that was declared gone
    /// stays, so that its agent learns of it if the host comes back.
    #[command(after_long_help = "EXAMPLES
    berth node leave n7")]
    Leave(NodeLeave),
}

/// `berth node status`
#[derive(Debug, Args)]
pub struct NodeStatus {
    /// Only this one, in detail
    #[arg(conflicts_with_all = ["prefix", "plugin", "state", "limit", "after", "sort"])]
    pub id: Option<NodeId>,
    /// Only nodes whose id begins with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only nodes with an instance of this plugin
    #[arg(long, value_name = "ID")]
    pub plugin: Option<PluginId>,
    /// Only nodes in this state
    #[arg(long, value_name = "STATE", value_parser = list::node_state())]
    pub state: Option<NodeState>,
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// The form of the list.
    #[command(flatten)]
    pub view: ListView,
}

/// `berth node gone`
#[derive(Debug, Args)]
pub struct NodeGone {
    /// The node
    pub id: NodeId,
    /// The revision of its record, as `berth node status` showed it while the node was down and
    /// before you made sure; 0 for a node that has no record
    #[arg(long, value_name = "REVISION")]
    pub seen: u64,
    /// The proof that nothing there can write: powered-off (the host is without power, or
    /// destroyed), storage-fenced (the storage refuses all access by it), confirmed (an operator
    /// says so)
    #[arg(long, value_name = "KIND", value_parser = list::proof_kind())]
    pub kind: ProofKind,
    /// A note, stored with the declaration
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub note: String,
    /// Who declares it [default: the user at this host]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Confirm it: nothing on the node can write any more
    #[arg(long)]
    pub yes: bool,
}

/// `berth node unmount`
#[derive(Debug, Args)]
pub struct NodeUnmount {
    /// The node
    pub node: NodeId,
    /// The volume
    pub volume: VolumeId,
    /// Only the mount of this alloc
    #[arg(long, value_name = "ALLOC")]
    pub alloc: Option<AllocId>,
}

/// `berth node leave`
#[derive(Debug, Args)]
pub struct NodeLeave {
    /// The node
    pub id: NodeId,
}
