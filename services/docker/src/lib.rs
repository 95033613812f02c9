//! `berth-docker`: Docker's volumes, by the classic volume plugin, served at a socket.
//!
//! **Owns** `<state_dir>/names`: the names that Docker gave volumes, and which of Docker's IDs hold
//! them here; and the socket.
//!
//! **Promises** what Docker's engine needs (E11): a volume is claimed and mounted while any
//! container on this node uses it, under one alloc, and released after the last; a kill of the
//! engine, of the agent or of this process loses no reference and leaves none for ever; a mount is
//! answered in time.
//!
//! **Never** touches a volume's data, decides who may have a volume, or mounts anything itself: it
//! is a client of the claim service and of `agent.mount` of its node's agent.
//!
//! ```text
//!            mount                mounted             unmounted by all, nobody holds it
//!   (none) ───────▶ opening ─────────────────▶ open ───────────────────────────────────▶ closing
//!      ▲               │ refused, or nobody asks again                                      │
//!      │               └───────────────────────────────────────────────────────────────────▶│
//!      └────────────────────────────────── no claim is left ────────────────────────────────┘
//! ```
//!
//! What Docker mounted to copy into it, while it makes a container, stays open for two seconds: the
//! container mounts it next.
//!
//! | | |
//! | --- | --- |
//! | [`server`], [`protocol`] | HTTP and JSON |
//! | [`driver`], [`options`], [`listing`] | the endpoints, and what they list |
//! | [`adapter`], [`delivery`] | mount and unmount, which count |
//! | [`session`], [`ask`] | a use's way, by claims |
//! | [`keeper`], [`holders`], [`engine`] | closing what nobody uses |
//! | [`record`], [`book`], [`store`] | what is known, on the disk |

mod adapter;
mod ask;
mod book;
mod config;
mod delivery;
mod driver;
mod engine;
mod holders;
mod keeper;
mod listing;
mod options;
mod protocol;
mod record;
mod server;
mod session;
mod store;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use berth_bus::ServiceSpec;
use berth_host::HostPool;
use berth_host::trust::{self, TrustedUsers};
use berth_service::hung::HungReport;
use berth_service::notify;
use berth_service::process::{Fatal, Process};
use thiserror::Error;

pub use config::Config;

use adapter::{Adapter, Parts};
use ask::Asker;
use book::Book;
use driver::Driver;
use listing::Listing;
use record::Trust;
use server::Listening;

/// The state directory cannot be made or opened.
#[derive(Debug, Error)]
#[error("the state directory {} cannot be made", path.display())]
struct StateDirError {
    path: std::path::PathBuf,
    #[source]
    source: io::Error,
}

/// Runs until told to end.
pub async fn run(config: Config, process: Process) -> Result<(), Fatal> {
    let shutdown = process.shutdown.clone();
    make_state_dir(&config.state_dir)?;
    // Opening them also makes sure that no other process serves them.
    let book = Book::open(config.state_dir.join("names")).await?;
    // Answers and unmounts may have been lost with the process before this one.
    book.doubt(Trust::PluginWasAway).await?;
    let asker = Asker::new(process.bus.clone(), config.node.clone());
    let listing = Listing::default();
    let adapter = Adapter::new(Parts {
        book,
        asker: asker.clone(),
        boot_id: berth_host::read_boot_id()?,
        engine: config.engine,
        mount_timeout: config.mount_timeout,
    });
    let spec =
        ServiceSpec::of(process.name, env!("CARGO_PKG_VERSION"), &[("node", config.node.as_str())]);
    let service = process.bus.service(spec).await?;
    let socket = Listening::at(&config.socket)?;
    tracing::info!(socket = %config.socket.display(), "serving Docker");
    notify::ready();

    let driver = Driver::new(adapter.clone(), listing.clone());
    let at_work = [
        tokio::spawn(keeper::keep(adapter, shutdown.clone())),
        tokio::spawn(listing.keep(asker, shutdown.clone())),
        tokio::spawn(HungReport::default().keep(HostPool::of_process(), shutdown.clone())),
    ];
    server::serve(socket, driver, shutdown, config.drain).await;
    for work in at_work {
        work.abort();
    }
    service.stop(config.drain).await;
    Ok(())
}

/// Makes the state directory where it is missing. Others must not be able to put files there.
fn make_state_dir(path: &Path) -> Result<(), Fatal> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| StateDirError { path: path.to_owned(), source })?;
    trust::open(path, &TrustedUsers::own())?;
    Ok(())
}
