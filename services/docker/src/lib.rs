//! `berth-docker`: Docker's volumes, by the classic volume plugin, served at a socket.
//!
//! **Owns** the plugin's socket, and `<state_dir>/names`: the names that Docker gave to volumes,
//! which of Docker's IDs hold them on this node, and which volumes were created for them.
//!
//! **Promises** what Docker's engine needs (E11):
//! - a volume is claimed and mounted, under one alloc, while any container on this node uses it,
//!   and is released after the last one;
//! - a kill of the engine, of the agent or of this process loses no reference, and leaves none
//!   behind;
//! - a request is answered before the engine gives up;
//! - `docker volume rm` deletes the volume that `docker volume create` created on this node, and no
//!   other.
//!
//! **Never** decides which workload may have a volume, mounts anything, or calls a plugin: it is a
//! client of the claim service and of its node's agent (`agent.mount`).
//!
//! ```text
//!            mount                mounted             unmounted by all, nobody holds it
//!   (none) ───────▶ opening ─────────────────▶ open ───────────────────────────────────▶ closing
//!      ▲               │ refused, or nobody asks again                                      │
//!      │               └───────────────────────────────────────────────────────────────────▶│
//!      └────────────────────────────────── no claim is left ────────────────────────────────┘
//! ```
//!
//! A volume that Docker mounted for its copy-up, while it creates a container, stays open for two
//! seconds: the container mounts it next.
//!
//! | | |
//! | --- | --- |
//! | [`server`], [`protocol`], [`delivery`] | HTTP and JSON, and whether a response was written |
//! | [`driver`], [`options`], [`listing`] | the endpoints |
//! | [`create`], [`remove`] | names, and the volumes that are created and deleted with them |
//! | [`creation`], [`settling`] | how far a creation is, and which volume a removal deletes |
//! | [`sessions`] | mount and unmount, which count references |
//! | [`lifecycle`], [`client`] | a session from its alloc to its release |
//! | [`keeper`], [`holders`], [`engine`] | closing the sessions that no container uses |
//! | [`record`], [`names`] | the record of each name, on the disk |

mod client;
mod config;
mod create;
mod creation;
mod delivery;
mod driver;
mod engine;
mod holders;
mod keeper;
mod lifecycle;
mod listing;
mod names;
mod options;
mod protocol;
mod record;
mod remove;
mod server;
mod sessions;
mod settling;
mod target;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_bus::ServiceSpec;
use berth_host::HostPool;
use berth_host::trust::{self, TrustedUsers};
use berth_service::fault_report::FaultReport;
use berth_service::hung::watch_hung;
use berth_service::locks::KeyedLocks;
use berth_service::process::{Fatal, Process};
use thiserror::Error;

pub use config::Config;

use client::BerthClient;
use driver::VolumeDriver;
use listing::VolumeListing;
use names::NameTable;
use record::CountTrust;
use server::PluginSocket;
use sessions::Sessions;

/// The state directory cannot be made or opened.
#[derive(Debug, Error)]
#[error("the state directory {} cannot be made", path.display())]
struct StateDirError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let shutdown = process.shutdown.clone();
    make_state_dir(&config.state_dir)?;
    // Opening the store also proves that no other process uses it.
    let names = NameTable::open(config.state_dir.join("names")).await?;
    // Responses and unmounts may have been lost with the process before this one.
    names.doubt_counts(CountTrust::PluginWasAway).await?;
    let client = BerthClient::new(process.bus.clone(), config.node.clone());
    let boot_id = berth_host::read_boot_id()?;
    let sessions = Arc::new(Sessions::new(&config, boot_id, names, client.clone()));
    let facts = [("node", config.node.as_str())];
    let spec = ServiceSpec::describe(process.name, berth_version::current(), &facts);
    let service = process.bus.service(spec).await?;
    let socket = PluginSocket::listen(&config.socket)?;
    tracing::info!(socket = %config.socket.display(), "serving Docker");
    process.report_ready();

    let listing = VolumeListing::default();
    let driver = VolumeDriver {
        sessions: Arc::clone(&sessions),
        listing: listing.clone(),
        name_locks: KeyedLocks::default(),
        volume_locks: KeyedLocks::default(),
    };
    let at_work = [
        tokio::spawn(driver.clone().settle_definitions(shutdown.clone())),
        tokio::spawn(keeper::keep_sessions(sessions, shutdown.clone())),
        tokio::spawn(listing.keep_current(client, shutdown.clone())),
        tokio::spawn(watch_hung(FaultReport::default(), HostPool::of_process(), shutdown.clone())),
    ];
    server::serve(socket, driver, shutdown, config.drain).await;
    for work in at_work {
        work.abort();
    }
    service.stop(config.drain).await;
    Ok(())
}

/// Makes the state directory if it is missing. Other users must not be able to put files there.
fn make_state_dir(path: &Path) -> Result<(), Fatal> {
    let result = DirBuilder::new().recursive(true).mode(0o700).create(path);
    result.map_err(|source| StateDirError { path: path.to_owned(), source })?;
    trust::open(path, &TrustedUsers::own())?;
    Ok(())
}
