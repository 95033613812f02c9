//! `berth gc`.

use std::time::Duration;

use berth_contract::message::collect::Kind;
use clap::Args;

use crate::span;

/// `berth gc`
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES
    berth gc
    berth gc --claims
    berth gc --allocs --nodes --grace 1h
    berth gc --json | jq -r '.kept[]'")]
#[expect(clippy::struct_excessive_bools, reason = "each is one flag")]
pub struct Gc {
    /// The age that a claim or record must have [default: claims none, records as configured]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    pub grace: Option<Duration>,
    /// Claims without a running alloc, and volumes that are to go with their last claim
    #[arg(long)]
    pub claims: bool,
    /// Records of allocs that have ended and have no claim left
    #[arg(long)]
    pub allocs: bool,
    /// Nodes that are down with nothing on them, and their plugin instances
    #[arg(long)]
    pub nodes: bool,
    /// Plugin instances on unknown nodes
    #[arg(long)]
    pub plugins: bool,
}

impl Gc {
    /// The requested kinds; none given means all.
    pub fn kinds(&self) -> Vec<Kind> {
        let is_requested = |kind: &Kind| match kind {
            Kind::Claims => self.claims,
            Kind::Allocs => self.allocs,
            Kind::Nodes => self.nodes,
            Kind::Plugins => self.plugins,
        };
        Kind::ALL.into_iter().filter(is_requested).collect()
    }
}
