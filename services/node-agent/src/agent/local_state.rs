//! What the agent has on its own disk: the first thing that it opens.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use berth_contract::message::registry::{AGENT_ID, AGENT_MADE};
use berth_domain::NodeId;
use berth_host::pool::directory_share;
use berth_host::trust::{self, TrustError, TrustedUsers};
use berth_host::{HostOperation, HostPool};
use berth_service::process::Fatal;
use berth_service::runs::Runs;
use thiserror::Error;

use super::identity::{AgentIdentity, identity};
use crate::config::Config;
use crate::host::Host;
use crate::host::paths::{Paths, STATE_DIR_BYTES_MAX};
use crate::host::pool::CHANGE_MAX;
use crate::journal::Journal;
use crate::mounts;

/// Why the state directory cannot be used.
#[derive(Debug, Error)]
enum StateDirError {
    #[error("the state directory {} cannot be made or opened", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It is a link to a directory whose path is too long.
    #[error(
        "the state directory {} is really {}, of more than {STATE_DIR_BYTES_MAX} bytes",
        path.display(),
        real.display()
    )]
    TooLong { path: PathBuf, real: PathBuf },
    #[error("the state directory {} may hold what others have put there", path.display())]
    Untrusted {
        path: PathBuf,
        #[source]
        source: TrustError,
    },
}

/// The state directory, opened. The journal's lock keeps a second agent out of it.
pub(super) struct LocalState {
    pub(super) dir: PathBuf,
    pub(super) paths: Paths,
    pub(super) journal: Journal,
    pub(super) runs: Runs,
    pub(super) host: Host,
    /// Tells this agent from another one of the same node name.
    pub(super) agent_id: String,
}

impl LocalState {
    /// Opens the state directory and its journal, and logs what an earlier process left.
    pub(super) async fn open(config: &Config) -> Result<Self, Fatal> {
        let (dir, node) = (config.state_dir.clone(), config.node.clone());
        let operation = HostOperation::new("open", directory_share(&dir), dir.clone());
        let read = move || read_state_dir(&dir, node);
        let (dir, runs, host, agent_id) =
            HostPool::of_process().run(operation, CHANGE_MAX, read).await??;
        let (journal, paths) = (Journal::open(dir.join("journal")).await?, Paths::new(&dir));
        mounts::log_leftovers(&journal, &paths, &host.boot_id).await?;
        Ok(Self { dir, paths, journal, runs, host, agent_id })
    }
}

/// Opens the state directory, and reads which agent and which host this is.
fn read_state_dir(dir: &Path, node: NodeId) -> Result<(PathBuf, Runs, Host, String), Fatal> {
    let dir = open_state_dir(dir)?;
    let mut host = Host::read(node);
    let AgentIdentity { id, made } = identity(&dir, &host.node, rand::random())?;
    let runs = Runs::below(&dir);
    // The node's status says why, and volumes stay mounted until it can be looked at. An agent that
    // does not start would say nothing.
    if let Err(error) = runs.heal() {
        tracing::warn!(%error, "not all that runs here can be seen");
    }
    host.attributes.insert(AGENT_ID.to_owned(), id.clone());
    host.attributes.extend(made.map(|made| (AGENT_MADE.to_owned(), made.to_string())));
    Ok((dir, runs, host, id))
}

/// The state directory, made when missing. Returns its real path: the mount table knows no other.
fn open_state_dir(path: &Path) -> Result<PathBuf, StateDirError> {
    let failed = |source| StateDirError::Open { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let real = fs::canonicalize(path).map_err(failed)?;
    if real.as_os_str().len() > STATE_DIR_BYTES_MAX {
        return Err(StateDirError::TooLong { path: path.to_owned(), real });
    }
    trust::open(path, &TrustedUsers::own())
        .map_err(|source| StateDirError::Untrusted { path: path.to_owned(), source })?;
    Ok(real)
}
