//! The messages of the `node.*` and `plugin.*` requests.
//!
//! **Owns** an agent's report, the requests of operators about nodes and plugins, and how a reply
//! shows a node and a plugin.
//!
//! **Never** carries a secret.

use std::collections::BTreeMap;

use berth_domain::plugin::{
    ControllerAbilities, Count, Half, Instance, NodeAbilities, NodeState, StorageTrouble,
    UnaccountedMount,
};
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::volume::{HoldingProcess, MountUse};
use berth_domain::{ClockOffset, JobId, Namespace, NodeId, PluginId, Timestamp};
use serde::{Deserialize, Serialize};

use super::claim::ClaimStatus;
use super::query::{LongPoll, Page, UnreadableRecord};
use crate::{decode_leaf, decode_struct};

/// The attribute of a node with the id of its agent's state directory.
pub const AGENT_ID: &str = "agent-id";
/// The attribute of a node that says when its agent's state directory was made, by its own clock.
pub const AGENT_MADE: &str = "agent-made";

/// `node.report`: all there is to know of a node, each time, so that a lost report costs nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The node.
    pub node: NodeId,
    /// The agent's version.
    pub version: String,
    /// Changes with each boot of the host.
    pub boot_id: String,
    /// The node's clock when this was sent: what skew is measured by.
    pub clock: Timestamp,
    /// What the node says of itself.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    /// Every plugin instance on the node; one that is missing here has left.
    #[serde(default)]
    pub instances: Vec<ReportedInstance>,
    /// The node undid all that it had mounted since it learned that it counts as gone: the time of
    /// the proof that says so ([`Reported::gone`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone: Option<Timestamp>,
    /// Mounts on the node that no claim covers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unaccounted: Vec<UnaccountedMount>,
    /// Whether the agent has compared its mounts with the claims since it started. Before that
    /// `unaccounted` says nothing. None from an older agent, whose list counts as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<bool>,
    /// How far the node's clock is ahead of the registry's, as the agent's previous report and its
    /// response bound it. None in the first report, and after the node's clock was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset: Option<ClockOffset>,
    /// The public X25519 key (`X…`) that the agent made when it started: volumes' secrets are
    /// sealed for it. None from an older agent, which gets no secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealing_key: Option<String>,
}
decode_struct!(ClockOffset { min_ms, max_ms });
decode_struct!(NodeReport {
    node,
    version,
    boot_id,
    clock,
    attributes,
    instances,
    undone,
    unaccounted,
    compared,
    clock_offset,
    sealing_key,
});
decode_struct!(UnaccountedMount { namespace, volume, alloc, path, plugin, external_id, used });
decode_struct!(MountUse { mode, access, attachment });

/// One half of a plugin on the reporting node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedInstance {
    /// The plugin.
    pub plugin: PluginId,
    /// Which half.
    pub half: Half,
    /// What its agent last saw.
    pub instance: Instance,
}
decode_leaf!(Half, NodeState);
decode_struct!(ReportedInstance { plugin, half, instance });
decode_struct!(Instance {
    healthy,
    description,
    provider,
    version,
    since,
    controller,
    node,
    id_since,
    process,
});
decode_struct!(ControllerAbilities {
    publish_unpublish_volume,
    publish_readonly = false,
    create_delete_volume = false,
    list_volumes = false,
    create_delete_snapshot = false,
    clone_volume = false,
    expand_volume = false,
    single_node_multi_writer = false,
    get_capacity = false,
    list_snapshots = false,
    get_snapshot = false,
    get_volume = false,
    modify_volume = false,
    volume_condition = false,
    get_volume_health = false,
    list_volume_health = false,
    list_published_nodes = false,
    group_snapshot = false,
    topology = false,
    snapshot_topology = false,
    expand_offline_only = false,
});
decode_struct!(StorageTrouble { unreachable, said, access, attachment, fs_type });
decode_struct!(NodeAbilities {
    external_node,
    controller_service,
    stage_unstage_volume,
    get_volume_stats = false,
    expand_volume = false,
    volume_condition = false,
    single_node_multi_writer = false,
    volume_mount_group = false,
    get_volume_health = false,
    get_storage_health = false,
    max_volumes,
    full,
    storage,
    topology,
});

/// `node.host`: the agent of the node in the subject may host the controller of the plugin in the
/// subject. A new controller instance in a report counts only after this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Host {}
decode_struct!(Host {});

/// `node.host` was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hosted {}

/// `node.report` was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// How far the node's clock is from the registry's, in milliseconds.
    pub clock_skew_ms: i64,
    /// The registry's clock when the report came; none from an older registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Timestamp>,
    /// Whether the registry counts the node as ready. From then on, while the agent holds its
    /// lease, the node cannot be declared gone.
    pub state: NodeState,
    /// Why the node counts as gone although it reports: it is to undo all that it has mounted, and
    /// to say so, before it takes anything new (rule 12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<Proof>,
    /// How many seconds the agent's lease is to live, when that is more than is configured: so
    /// large is the fleet. Its reports that say nothing new lie five times as far apart. 0 when
    /// it is small.
    #[serde(default, skip_serializing_if = "is_small")]
    pub pace_s: u32,
    /// Plugins whose controllers here do not count: the node's identity has not shown that it may
    /// host them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unproven: Vec<PluginId>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_small(pace_s: &u32) -> bool {
    *pace_s == 0
}

/// `node.leave`: the node leaves for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// The node.
    pub node: NodeId,
    /// Only if the node is not there, and its record is still at this revision of its key; 0 for a
    /// node that has none. Without it the node leaves whatever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}
decode_struct!(Leave { node, revision });

/// `node.leave` was done; again is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLeft {
    /// Whether the node was known until now.
    pub known: bool,
    /// How many plugin instances went with it.
    pub instances: usize,
    /// Whether its record stays because it was declared gone. Without the record, the node could
    /// return with mounts whose claims are gone, and would not undo them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// `node.gone`: declares that nothing on the node can write any more.
/// Refused while the node's agent holds its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The node; it need not be known.
    pub node: NodeId,
    /// By what it is known.
    pub kind: ProofKind,
    /// Who says so.
    pub by: String,
    /// What else is to be kept with it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The revision of the node's record ([`NodeStatus::revision`]) as it was seen while the node
    /// was down, *before* it was made sure that nothing there can write; 0 for a node that has no
    /// record. Refused when the record has changed since: the node may have been back in between.
    pub seen: u64,
}
decode_leaf!(ProofKind);
decode_struct!(Gone { node, kind, by, note = String::new(), seen });

/// `node.gone` is recorded. A first declaration stays if another one follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// The recorded declaration.
    pub proof: Proof,
    /// The first claims of the node that are not released yet, each with what it waits for. None
    /// when no claim service answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<Vec<ClaimStatus>>,
}

/// `plugin.expect`: a job that provides a plugin says how many instances it is to have. It replaces
/// what the job said before; with neither controllers nor nodes, the job is taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectInstances {
    /// The plugin.
    pub plugin: PluginId,
    /// The job's namespace.
    #[serde(default)]
    pub namespace: Namespace,
    /// The job.
    pub job: JobId,
    /// Controller instances.
    #[serde(default)]
    pub controllers: u32,
    /// Node instances.
    #[serde(default)]
    pub nodes: u32,
}
decode_struct!(ExpectInstances {
    plugin,
    namespace = Namespace::default(),
    job,
    controllers = 0,
    nodes = 0,
});

/// `plugin.expect` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Whether anything was written; false when the job had said so already.
    pub changed: bool,
}

/// `plugin.delete`: removes the instances of nodes that are not there, and the jobs. Refused while
/// volumes use the plugin, or a node that is there has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delete {
    /// The plugin.
    pub id: PluginId,
}
decode_struct!(Delete { id });

/// `plugin.delete` was done; again is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Deleted {
    /// How many instances were removed.
    pub instances: usize,
    /// How many jobs were taken back.
    pub jobs: usize,
}

/// `plugin.status`: one by id, with its instances, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListPlugins {
    /// Only this one; a page is one of its instances then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<PluginId>,
    /// Only ids that begin so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Only plugins with an instance on this node; of one plugin, only those instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Only plugins of this type, there when a node is named; of one plugin, only those instances.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<PluginType>,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: LongPoll,
}
decode_leaf!(PluginType);
decode_struct!(ListPlugins {
    id,
    prefix = String::new(),
    node,
    kind as "type",
} + page, newer);

impl ListPlugins {
    /// One plugin, with its instances, as it is now.
    pub fn by_id(id: PluginId) -> Self {
        Self { id: Some(id), ..Self::default() }
    }
}

/// Types of plugins (D1). A plugin is of each type that one of its instances is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginType {
    /// It has controllers, or its jobs say that it is to have some.
    Controller,
    /// It has node instances, or its jobs say that it is to have some.
    Node,
    /// It has both on one node; so it is of the other two types as well.
    Monolith,
}

impl PluginType {
    /// Every type.
    pub const ALL: &[Self] = &[Self::Controller, Self::Node, Self::Monolith];

    /// The name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "node",
            Self::Monolith => "monolith",
        }
    }
}

/// `node.status`: one by id, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListNodes {
    /// Only this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<NodeId>,
    /// Only ids that begin so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Only nodes with an instance of this plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// Only nodes in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: LongPoll,
}
decode_struct!(ListNodes {
    id,
    prefix = String::new(),
    plugin,
    state,
} + page, newer);

impl ListNodes {
    /// One node, as it is now.
    pub fn by_id(id: NodeId) -> Self {
        Self { id: Some(id), ..Self::default() }
    }
}

/// A plugin: the fold of its instances and jobs (D1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginStatus {
    /// The plugin.
    pub id: PluginId,
    /// What its instances call it.
    pub provider: String,
    /// The versions its instances run, sorted.
    pub versions: Vec<String>,
    /// Healthy controllers of how many; none when it has no controller service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<Count>,
    /// Healthy node instances of how many.
    pub nodes: Count,
    /// Whether its controller attaches volumes.
    pub attaches: bool,
    /// Its instances, by node and half; none in a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceStatus>,
    /// The jobs that provide it, by namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobStatus>,
}

/// A job that provides a plugin, as it is shown (D5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its namespace.
    pub namespace: Namespace,
    /// The job.
    pub job: JobId,
    /// How many controllers it is to have.
    pub controllers: u32,
    /// How many node instances it is to have.
    pub nodes: u32,
    /// Since when it says so.
    pub since: Timestamp,
}

/// One half of a plugin on one node, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// The plugin.
    pub plugin: PluginId,
    /// Where.
    pub node: NodeId,
    /// Which half.
    pub half: Half,
    /// Whether it is healthy, on a node that is there.
    pub healthy: bool,
    /// In words, for people.
    pub description: String,
    /// The node that had the plugin's id of this node first: the storage cannot tell them apart, so
    /// the instance counts as unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares_id_with: Option<NodeId>,
    /// Its version.
    pub version: String,
    /// Since when it is healthy, or not.
    pub since: Timestamp,
    /// The process behind it: what listened at its socket when it last answered. None where its
    /// agent cannot see the process. `agent.plugins` has all instances of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<HoldingProcess>,
    /// What the controller half can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerAbilities>,
    /// What the node half can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abilities: Option<NodeAbilities>,
}

/// `plugin.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugins {
    /// Counts every change of a node or a plugin: the revisions of both buckets, added.
    #[serde(default)]
    pub index: u64,
    /// The plugins, by id.
    pub plugins: Vec<PluginStatus>,
    /// Where the next page, of plugins or of one's instances, begins, as `after`; none when this
    /// was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

/// A node, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub id: NodeId,
    /// Whether its agent is there.
    pub state: NodeState,
    /// Since when.
    pub since: Timestamp,
    /// The revision of its record. While the node is down it does not change; it does when the
    /// node is back, and when it goes again. [`Gone::seen`] names it.
    #[serde(default)]
    pub revision: u64,
    /// How far its clock is from the registry's, in milliseconds; positive when ahead.
    pub clock_skew_ms: i64,
    /// The agent's version.
    pub version: String,
    /// Changes with each boot.
    pub boot_id: String,
    /// What the node says of itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// By what it is known that nothing there can write; none while it counts as any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<Proof>,
    /// When it was last back from being gone: all that it had mounted before is undone since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Timestamp>,
    /// Mounts there that no claim covers: the claim's record was lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unaccounted: Vec<UnaccountedMount>,
    /// Its plugin instances.
    pub instances: Vec<InstanceStatus>,
}

/// `node.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// Counts every change of a node or a plugin: the revisions of both buckets, added.
    #[serde(default)]
    pub index: u64,
    /// The nodes, by id.
    pub nodes: Vec<NodeStatus>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}
