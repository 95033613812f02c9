//! `berth node …`

use berth_domain::plugin::NodeState;
use berth_domain::proof::ProofKind;
use berth_domain::{AllocId, NodeId, PluginId, VolumeId};
use clap::{Args, Subcommand};

use super::LISTS;
use super::list::{self, ListView, PageArgs};

/// `berth node …`
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List nodes, or show one with its plugin instances
    ///
    /// A node is ready while its agent holds its lease. SKEW is how far the node's clock is from
    /// the registry's; too far, and the node gets no new claims. A node that somebody said is gone
    /// is shown so, with who said it and when, until it is back and has undone its mounts.
    ///
    /// Of one node it is also shown what its agent has mounted, for whom, whether the mount table
    /// shows it and it answers, what is under way or hangs and since when, what failed last and
    /// when it is tried again, and which claims stand behind it.
    #[command(visible_aliases = LISTS, after_long_help = "EXAMPLES
    berth node list
    berth node list --sort skew --watch
    berth node status n1")]
    Status(NodeStatus),
    /// Say that nothing on a node can write any more, so that its volumes can go elsewhere
    ///
    /// A volume leaves a node when the node's agent says that it is unmounted there. The agent of a
    /// host that burnt down says nothing, and Berth never takes silence for an answer. With this
    /// command a person, or the program that fences hosts, answers instead: each claim of the node
    /// is released by that, its allocs have failed, and the volumes may be attached elsewhere at
    /// once. If anything on the host still writes, data is lost.
    ///
    /// Look first: `berth node status NODE` shows the revision of the node's record. Then make sure
    /// that nothing there can write, and only then say so, with that revision. It is refused when
    /// the record has changed since, because the node may have been back in between.
    ///
    /// Refused while the node's agent holds its lease. What was said first stands; saying it again
    /// is harmless. The node need not be known any more. If the host comes back after all, its
    /// agent undoes every mount before the node takes anything new, and counts as any other again.
    #[command(after_long_help = "EXAMPLES
    berth node status n7
    berth node gone n7 --seen 1042 --kind powered-off --note 'ticket 4711: PSU' --yes
    berth node gone n7 --seen 1042 --kind storage-fenced --by fencing-agent --yes")]
    Gone(NodeGone),
    /// Unmount a volume on a node that no claim covers
    ///
    /// A claim's record may be lost: it was deleted by hand, or is not in a backup that was
    /// restored. The volume is then still mounted, and Berth neither detaches it from the node nor
    /// grants it to another one. End the workload first. With this command the node's agent has the
    /// plugin undo the mount.
    ///
    /// Refused where a claim covers the mount (stop its alloc instead), and while a process of the
    /// node has the volume: it is named. A plugin that attaches volumes still has it attached then:
    /// take a claim on the node once more, and release it.
    #[command(after_long_help = "EXAMPLES
    berth node unmount n7 data
    berth node unmount n7 data --alloc web-0")]
    Unmount(NodeUnmount),
    /// Forget a node that does not come back, and its plugin instances
    ///
    /// For a host that was taken away in good order: drained, and its agent stopped. Claims that
    /// still name the node stay, and are released by `berth node gone`. A node that counts as gone
    /// stays on record, so that it is told if it comes back.
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
    /// Only nodes whose id begins so
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only nodes with an instance of this plugin
    #[arg(long, value_name = "ID")]
    pub plugin: Option<PluginId>,
    /// Only nodes in this state
    #[arg(long, value_name = "STATE", value_parser = list::node_state())]
    pub state: Option<NodeState>,
    /// Which part of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// How it is shown.
    #[command(flatten)]
    pub view: ListView,
}

/// `berth node gone`
#[derive(Debug, Args)]
pub struct NodeGone {
    /// Which node
    pub id: NodeId,
    /// The revision of its record, as `berth node status` showed it while the node was down and
    /// before you made sure; 0 for a node that has no record
    #[arg(long, value_name = "REVISION")]
    pub seen: u64,
    /// By what it is known: powered-off (the host is without power, or destroyed), storage-fenced
    /// (the storage takes nothing from it any more), confirmed (a person says so)
    #[arg(long, value_name = "KIND", value_parser = list::proof_kind())]
    pub kind: ProofKind,
    /// What else is to be kept with it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub note: String,
    /// Who answers for it [default: the user at this host]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Really: nothing on the node can write any more
    #[arg(long)]
    pub yes: bool,
}

/// `berth node unmount`
#[derive(Debug, Args)]
pub struct NodeUnmount {
    /// Which node
    pub node: NodeId,
    /// Which volume
    pub volume: VolumeId,
    /// Only the mount for this alloc
    #[arg(long, value_name = "ALLOC")]
    pub alloc: Option<AllocId>,
}

/// `berth node leave`
#[derive(Debug, Args)]
pub struct NodeLeave {
    /// Which node
    pub id: NodeId,
}
