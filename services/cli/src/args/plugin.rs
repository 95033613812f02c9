//! `berth plugin …`, where it changes something.

use berth_domain::{JobId, NodeId, PluginId};
use clap::Args;

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
    /// Also when mounts need it: those of a FUSE driver end with it
    #[arg(long)]
    pub even_with_mounts: bool,
    /// Who says so; you, unless given
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
