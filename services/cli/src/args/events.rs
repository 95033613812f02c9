//! `berth events`, `berth trace`

use std::time::Duration;

use berth_contract::message::history::EventKind;
use berth_domain::{AllocId, NodeId, PluginId, VolumeId};
use clap::{Args, ValueEnum};

use crate::span;

/// `berth events`
#[derive(Debug, Args)]
#[command(after_long_help = EVENTS)]
pub struct Events {
    /// Only events of this volume
    #[arg(long, value_name = "ID")]
    pub volume: Option<VolumeId>,
    /// Only events of this alloc
    #[arg(long, value_name = "ID")]
    pub alloc: Option<AllocId>,
    /// Only events of this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<NodeId>,
    /// Only events of this plugin
    #[arg(long, value_name = "ID")]
    pub plugin: Option<PluginId>,
    /// Only these kinds of events, separated by commas
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<Kind>,
    /// Only events that are at most this old: 30s, 5m, 2h
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    pub since: Option<Duration>,
    /// Only this many of the newest events, at most 10000 [default: 50; with --since all of them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=10_000))]
    pub last: Option<u16>,
    /// Print new events as they come, until Ctrl-C
    #[arg(long)]
    pub follow: bool,
}

const EVENTS: &str = "EXAMPLES
    berth events
    berth events --volume data --follow
    berth events --node n1 --kind claim,call --since 2h
    berth events --kind plugin,node --last 10
    berth events --kind snapshot --volume data
    berth events --since 1h --json | jq -r 'select(.took_us > 1e6) | .event'";

/// What an event is about: the first word of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// Volumes: registered, mounted, …
    Volume,
    /// Snapshots: cut, ready, deleted, …
    Snapshot,
    /// Claims: waiting, taken, freed, …
    Claim,
    /// Calls of plugins, as the claim protocol makes them
    Call,
    /// Allocs: registered, complete, …
    Alloc,
    /// Requests for a change that were refused
    Request,
    /// Plugin instances: healthy, unhealthy, …
    Plugin,
    /// Nodes: ready, down, left
    Node,
}

impl From<Kind> for EventKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Volume => Self::Volume,
            Kind::Snapshot => Self::Snapshot,
            Kind::Claim => Self::Claim,
            Kind::Call => Self::Call,
            Kind::Alloc => Self::Alloc,
            Kind::Request => Self::Request,
            Kind::Plugin => Self::Plugin,
            Kind::Node => Self::Node,
        }
    }
}

/// `berth trace`
#[derive(Debug, Args)]
#[command(after_long_help = TRACE)]
pub struct Trace {
    /// VOLUME/ALLOC, an alloc, a volume (its claims, and its changes at the storage),
    /// VOLUME@SNAPSHOT, or a trace id of 32 hex digits
    #[arg(value_name = "CLAIM")]
    pub claim: String,
    /// Show also earlier claims of the same alloc on the same volume, and every try
    #[arg(long)]
    pub all: bool,
}

const TRACE: &str = "EXAMPLES
    berth trace data/run-7f3a91c2
    berth trace run-7f3a91c2 --all
    berth trace data
    berth trace data@monday
    berth trace 0af7651916cd43dd8448eb211c80319c
    berth trace data/run-7f3a91c2 --json | jq '.claims[].release.steps[].name'";
