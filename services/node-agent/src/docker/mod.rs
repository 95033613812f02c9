//! Docker's volumes: the classic volume plugin, served at a socket.
//!
//! **Owns** `<state_dir>/docker`: the names that Docker gave volumes, and which of Docker's IDs
//! hold them here; and the socket.
//!
//! **Promises** what Docker's engine needs (E11): a volume is claimed and mounted while any
//! container on this node uses it, under one alloc, and released after the last; a kill of the
//! engine or of the agent loses no reference and leaves none for ever; a mount is answered in time.
//!
//! **Never** touches a volume's data, decides who may have a volume, or mounts anything itself: it
//! is a client of the claim service and of the agent's own `agent.mount`.
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

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_bus::Bus;
use berth_domain::NodeId;
use berth_service::shutdown::Shutdown;
use thiserror::Error;
use tokio::task::JoinHandle;

pub use config::{DockerConfig, FIELDS, decode};
pub use store::StoreError;

use adapter::{Adapter, Parts};
use ask::Asker;
use book::Book;
use driver::Driver;
use listing::Listing;
use record::Trust;
use server::{ListenError, Listening};

/// Why Docker cannot be served.
#[derive(Debug, Error)]
pub enum DockerError {
    /// What is known of its volumes cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The socket cannot be had.
    #[error("docker_socket {} cannot be listened at", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: ListenError,
    },
}

/// Where Docker is served from.
#[derive(Debug)]
pub struct Place<'a> {
    /// The agent's state directory.
    pub state_dir: &'a Path,
    /// The node.
    pub node: NodeId,
    /// Which life of the host this is.
    pub boot_id: String,
    /// How long what is under way may go on after the shutdown.
    pub drain: Duration,
}

/// Docker being served.
#[derive(Debug)]
pub struct Serving(Option<JoinHandle<()>>);

impl Serving {
    /// Ends when what was under way at the shutdown has.
    pub async fn ended(self) {
        if let Some(serving) = self.0 {
            // A defect there is in the log, and no reason not to end.
            let _ = serving.await;
        }
    }
}

/// Serves Docker until the shutdown, where it is configured.
pub async fn serve(
    config: Option<&DockerConfig>,
    place: Place<'_>,
    bus: Bus,
    shutdown: Shutdown,
) -> Result<Serving, DockerError> {
    let Some(config) = config else { return Ok(Serving(None)) };
    let book = Book::open(place.state_dir.join("docker")).await?;
    // Answers and unmounts may have been lost with the process before this one.
    book.doubt(Trust::AgentWasAway).await?;
    let (asker, listing) = (Asker::new(bus, place.node), Listing::default());
    let adapter = Adapter::new(Parts {
        book,
        asker: asker.clone(),
        boot_id: place.boot_id,
        engine: config.engine.clone(),
        mount_timeout: config.mount_timeout,
    });
    let socket = Listening::at(&config.socket)
        .await
        .map_err(|source| DockerError::Socket { path: config.socket.clone(), source })?;
    tracing::info!(socket = %config.socket.display(), "serving Docker");
    let driver = Driver::new(adapter.clone(), listing.clone());
    let (drain, keeping) = (place.drain, keeper::keep(adapter, shutdown.clone()));
    let current = listing.keep(asker, shutdown.clone());
    Ok(Serving(Some(tokio::spawn(async move {
        let at_work = [tokio::spawn(keeping), tokio::spawn(current)];
        server::serve(socket, driver, shutdown, drain).await;
        for work in at_work {
            work.abort();
        }
    }))))
}
