//! `berth-fleet`: many agents in one process, to measure what a fleet costs the bus and the
//! registry.
//!
//! **Owns** the agents, each with its own connection, and the requests of the bench: see
//! [`orders`].
//!
//! **Promises** that leases, reports and the hosting of controllers are the agent's own code with
//! the agent's own defaults, and that every agent listens at the subjects of a real one. Only the
//! plugins are simulated: no socket is read.
//!
//! **Never** mounts: there is no journal, and requests for mounts are refused. An agent without
//! mounts does not ask for its claims. With `--asks-for-claims` these agents ask as often as an
//! agent with mounts.

mod agent;
mod orders;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use berth_access::{LocalFleet, Role};
use clap::Parser;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::agent::{Agent, BusAccess};

/// Any error that ends the fleet.
type Fatal = Box<dyn std::error::Error + Send + Sync>;

/// How many agents start at a time.
const AT_ONCE: usize = 32;

/// Many agents in one process
#[derive(Debug, Parser)]
#[command(name = "berth-fleet", version = berth_version::current(), max_term_width = 100)]
struct Args {
    /// The bus
    #[arg(long, value_name = "URL")]
    nats: String,
    /// The directory of the identities
    #[arg(long, value_name = "DIR")]
    access: PathBuf,
    /// How many agents
    #[arg(long, value_name = "N", default_value_t = 1000)]
    agents: usize,
    /// The number of the first agent
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: usize,
    /// Each agent asks for the claims of its node each minute, as an agent with mounts does
    #[arg(long)]
    asks_for_claims: bool,
}

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Fatal::from)
        .and_then(|runtime| runtime.block_on(run(Args::parse())));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr is no reason to stop.
            let _: std::io::Result<()> = writeln!(std::io::stderr(), "berth-fleet: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until it is killed.
async fn run(args: Args) -> Result<(), Fatal> {
    let fleet = LocalFleet::open(&args.access)?;
    let access = BusAccess { nats: args.nats, fleet, asks_for_claims: args.asks_for_claims };
    let numbers = args.first..args.first + args.agents;
    let agents: Vec<Agent> = stream::iter(numbers.map(|number| access.start(number)))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let bus = access.connect(&Role::Admin { name: "fleet".to_owned() }).await?;
    let _service = orders::serve(&bus, Arc::new(agents)).await?;
    std::future::pending().await
}
