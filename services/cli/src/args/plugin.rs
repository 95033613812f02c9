//! `berth plugin …`, where it changes something.

use berth_domain::{JobId, PluginId};
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
