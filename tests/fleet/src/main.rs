//! `berth-fleet`: many agents in one process, to see what a fleet costs the bus and the registry.
//!
//! **Owns** the agents, each with a connection of its own, and what the bench may ask of them:
//! see [`orders`].
//!
//! **Promises** that leases, reports and the hosting of controllers are the agent's own code with
//! the agent's own defaults, and that every agent listens where one would. Only the plugins are
//! simulated: what an agent would learn from a socket, this says of them.
//!
//! **Never** mounts: there is no journal, and who asks for a mount is refused.

mod agent;
mod orders;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use berth_access::{LocalFleet, Role};
use clap::Parser;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::agent::{Agent, Place};

/// Any error that ends the fleet.
type Fatal = Box<dyn std::error::Error + Send + Sync>;

/// So many come up at a time.
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
}

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    let ended = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Fatal::from)
        .and_then(|runtime| runtime.block_on(run(Args::parse())));
    match ended {
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
    let place = Place { nats: args.nats, fleet: LocalFleet::open(&args.access)? };
    let agents: Vec<Agent> = stream::iter((0..args.agents).map(|number| place.start(number)))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let bus = place.connect(&Role::Admin { name: "fleet".to_owned() }).await?;
    // Kept for as long as this runs.
    let _service = orders::serve(&bus, Arc::new(agents)).await?;
    std::future::pending().await
}
