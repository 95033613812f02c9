//! `berth dev`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::span;

/// Run the whole system on this machine, to try it
///
/// Starts, as processes of their own on loopback: one nats-server with JetStream, the claim service,
/// the plugin registry, the volume watcher, the collector, and for each node n1, n2, … an agent with
/// its own instance of the development CSI driver (directories with real mounts). A process that
/// dies is started again. State, configuration and logs are in one directory and survive a restart.
///
/// Mounting needs root; an ordinary user is taken into a user and mount namespace of its own, which
/// `berth run` must then join: how is printed at the start. Ctrl-C stops everything in order.
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

    /// How long one plugin call may take before its outcome counts as unknown
    #[arg(long, value_name = "SPAN", default_value = "4s", value_parser = span::parse)]
    pub volume_timeout: Duration,
}

const EXAMPLES: &str = "EXAMPLES
    berth dev
    berth dev --nodes 3 --dir /tmp/b

    # in another shell
    source .berth/env
    berth plugin status
    nats micro ls";
