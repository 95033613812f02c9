//! `berth dev`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::span;

/// `berth dev`
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Dev {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=32))]
    pub nodes: u8,

    /// Where state, configuration and logs are kept
    #[arg(long, value_name = "DIR", default_value = ".berth")]
    pub dir: PathBuf,

    /// Write the bus's URL to this file once everything is healthy
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,

    /// A driver of your own, which each node gets beside the development driver: a file as the
    /// agent takes it (docs/plugins.md), with ${NODE} for the node's name; may be repeated
    #[arg(long = "plugin", value_name = "FILE.toml")]
    pub plugins: Vec<PathBuf>,

    /// A directory below which allocs may have their volumes at paths of their own choice (`path`
    /// of `agent.mount`, and docs/mounts.md); may be repeated
    #[arg(long, value_name = "DIR")]
    pub bind_below: Vec<PathBuf>,

    /// How long one plugin call may take before its outcome counts as unknown
    #[arg(long, value_name = "SPAN", default_value = "4s", value_parser = span::parse)]
    pub volume_timeout: Duration,
}

const EXAMPLES: &str = "EXAMPLES
    berth dev
    berth dev --nodes 3 --dir /tmp/b
    berth dev --plugin hostpath.toml
    berth dev --bind-below /srv/jobs

    # in another shell
    source .berth/env
    berth plugin status
    nats micro ls";
