//! The messages about the plugin instances of one node: `agent.plugins`, `agent.plugin-stop` and
//! `agent.plugin-start`.
//!
//! **Owns** how a reply shows an instance, with its source and its process. The registry shows only
//! the instance that calls go to ([`registry`](super::registry)).

use berth_domain::volume::HoldingProcess;
use berth_domain::{NodeId, PluginId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::decode_struct;

/// `agent.plugins`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentPluginsQuery {}
decode_struct!(AgentPluginsQuery {});

/// Every plugin instance on a node, and what is wrong with where they come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentPlugins {
    /// The node.
    pub node: NodeId,
    /// The instances, by plugin; of one plugin the newest first.
    pub instances: Vec<LocalInstance>,
    /// Files and sockets that are no plugin, and why; all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<SourceFault>,
}

/// One instance of a plugin on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct LocalInstance {
    /// The plugin.
    pub plugin: PluginId,
    /// Which instance of it: made from its source, and of what is said there.
    pub instance: String,
    /// Where it comes from: a file, a socket, or `configuration`.
    pub source: String,
    /// Its socket.
    pub socket: String,
    /// Whether calls go to it now; one that serves a single half may share them with another.
    pub serves: bool,
    /// Whether it answered its last probe.
    pub healthy: bool,
    /// In words.
    pub description: String,
    /// Its vendor version; none before it has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Since when this node has it.
    pub since: Timestamp,
    /// Whether the agent runs it as a command.
    pub supervised: bool,
    /// Its process, of one that the agent runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The process that listens at its socket, whether the agent runs it or somebody else does.
    /// None while the agent has no connection to it, and where the agent cannot see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<HoldingProcess>,
    /// How often it was started again.
    #[serde(default)]
    pub restarts: u64,
    /// Whether its source is gone, so that it goes when nothing needs it any more.
    #[serde(default)]
    pub leaving: bool,
    /// Who stopped it; none while it is to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// How many mounts it made, or may have made, that are still in the journal.
    pub mounts: usize,
}

/// What is wrong with a file or a socket from which a plugin was to come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFault {
    /// The file or socket.
    pub source: String,
    /// What is wrong, with the line where there is one.
    pub problem: String,
}

/// `agent.plugin-stop`: end the process of a plugin that the agent runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopPlugin {
    /// The plugin.
    pub plugin: PluginId,
    /// Which instance of it; every one that the agent runs when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Also when mounts need it. Those of a FUSE driver end with it.
    #[serde(default)]
    pub even_with_mounts: bool,
    /// Who says so.
    pub by: String,
}
decode_struct!(StopPlugin { plugin, instance, even_with_mounts = false, by });

/// `agent.plugin-start`: run a plugin again that was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPlugin {
    /// The plugin.
    pub plugin: PluginId,
    /// Which instance of it; every one that was stopped when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}
decode_struct!(StartPlugin { plugin, instance });

/// Which instances are being started or stopped now; those that already were are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedInstances {
    /// The instances.
    pub instances: Vec<String>,
}
