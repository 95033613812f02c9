//! `berth-csi-dev serve`: one instance, from its start to its end.
//!
//! Owns: putting the parts together, and draining them. Promises: the socket is there only once
//! everything behind it is ready; SIGTERM and SIGINT let running calls end. Never: waits longer
//! than [`DRAIN`] for them.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_csi::v1::controller_server::ControllerServer;
use berth_csi::v1::group_controller_server::GroupControllerServer;
use berth_csi::v1::identity_server::IdentityServer;
use berth_csi::v1::node_server::NodeServer;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::ability::Ability;
use crate::backend::encoding::LONGEST_ID_BYTES;
use crate::backend::{Backend, BackendError, Node};
use crate::driver::controller::ControllerService;
use crate::driver::group::GroupControllerService;
use crate::driver::identity::IdentityService;
use crate::driver::node::NodeService;
use crate::driver::{Driver, Profile, Serves};
use crate::faults::{Faults, control};
use crate::log::Recorder;
use crate::mute::{self, Speaks};
use crate::socket::{self, SocketError};

/// How long running calls may take to end after SIGTERM.
pub const DRAIN: Duration = Duration::from_secs(10);

/// CSI: at most 63 characters.
const LONGEST_NAME: usize = 63;

/// What an instance needs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens: `unix:///dir/name.sock`.
    pub endpoint: String,
    /// What it is, and can do.
    pub profile: Profile,
    /// The shared directory.
    pub backend: PathBuf,
    /// The file its calls are logged to.
    pub log: PathBuf,
    /// The file that faults are planted in.
    pub faults: Option<PathBuf>,
    /// The socket that faults are planted by.
    pub control: Option<PathBuf>,
    /// What is at the endpoint.
    pub speaks: Speaks,
}

/// Why an instance did not serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Its settings are wrong.
    #[error("wrong settings:{0}")]
    Config(ConfigFaults),
    /// The shared directory cannot be used.
    #[error("the backend cannot be used")]
    Backend(#[from] BackendError),
    /// The call log cannot be written.
    #[error("the call log {} cannot be written", path.display())]
    Log {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The endpoint cannot be served.
    #[error("the endpoint cannot be served")]
    Socket(#[from] SocketError),
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signal(#[source] io::Error),
    /// Nobody can connect any more.
    #[error("connections cannot be taken")]
    Accept(#[source] io::Error),
    /// Serving broke off.
    #[error("serving broke off")]
    Transport(#[from] tonic::transport::Error),
}

/// Everything that is wrong with the settings, one line each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigFaults(pub Vec<String>);

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl Config {
    /// The path to listen at, or everything that is wrong with the settings.
    pub fn check(&self) -> Result<PathBuf, ConfigFaults> {
        let mut faults = Vec::new();
        let Profile { driver_name, node_id, max_volumes, pool_bytes, .. } = &self.profile;
        if node_id.is_empty() || node_id.len() > LONGEST_ID_BYTES {
            faults.push(format!("node id: 1 to {LONGEST_ID_BYTES} bytes, not {}", node_id.len()));
        }
        if !is_plugin_name(driver_name) {
            faults.push(format!(
                "driver name {driver_name:?}: 1 to {LONGEST_NAME} letters, digits, '-' and '.', \
                 with a letter or digit at both ends"
            ));
        }
        if *max_volumes < 0 {
            faults.push(format!("max volumes: 0 (no limit) or more, not {max_volumes}"));
        }
        if let Some(bytes) = pool_bytes.filter(|bytes| *bytes < 0) {
            faults.push(format!("pool bytes: 0 or more, not {bytes}"));
        }
        if self.profile.serves == Serves::Controller && !self.profile.has(Ability::Controller) {
            faults.push("serving the controller of a plugin that has none".to_owned());
        }
        match socket::parse(&self.endpoint) {
            Ok(path) if faults.is_empty() => Ok(path),
            Ok(_) => Err(ConfigFaults(faults)),
            Err(error) => {
                faults.push(error.to_string());
                Err(ConfigFaults(faults))
            }
        }
    }
}

/// Serves until SIGTERM or SIGINT.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let path = config.check().map_err(ServeError::Config)?;
    if config.speaks != Speaks::Grpc {
        return mute::sit(&path, config.speaks).await;
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signal)?;

    let faults = Arc::new(Faults::from_file(config.faults.clone()));
    let control = config.control.as_deref().map(socket::listen).transpose()?;
    let driver = Arc::new(build(config, Arc::clone(&faults))?);
    let (listener, socket) = socket::listen(&path)?;
    // Taken down with the endpoint.
    let _control = control.map(|(listener, socket)| {
        tokio::spawn(control::serve(listener, faults));
        socket
    });
    let profile = driver.profile();
    eprintln!("{} serves node {} at {}", profile.driver_name, profile.node_id, path.display());

    let has_group = profile.is_controller() && profile.has(Ability::GroupSnapshot);
    let controller = profile.is_controller().then(|| ControllerService(Arc::clone(&driver)));
    let group = has_group.then(|| GroupControllerService(Arc::clone(&driver)));
    let node = profile.is_node().then(|| NodeService(Arc::clone(&driver)));
    let (tell, told) = oneshot::channel::<()>();
    let serving = Server::builder()
        .add_service(IdentityServer::new(IdentityService(Arc::clone(&driver))))
        .add_optional_service(controller.map(ControllerServer::new))
        .add_optional_service(group.map(GroupControllerServer::new))
        .add_optional_service(node.map(NodeServer::new))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
            _ = told.await;
        });
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return Ok(ended?),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    _ = tell.send(());
    let drain = async {
        let ended = serving.await;
        driver.idle().await;
        ended
    };
    let drained = timeout(DRAIN, drain).await;
    drop(socket);
    if let Ok(ended) = drained {
        return Ok(ended?);
    }
    eprintln!("calls were still running after {DRAIN:?}; they end unanswered");
    Ok(())
}

/// An instance that is ready to serve.
fn build(config: Config, faults: Arc<Faults>) -> Result<Driver, ServeError> {
    let Config { profile, backend, log, .. } = config;
    let backend = Backend::open(backend)?;
    if profile.is_node() {
        let (node_id, topology) = (profile.node_id.clone(), profile.topology.clone());
        let (max_volumes, fenced) = (profile.max_volumes, false);
        backend.register_node(&Node { node_id, max_volumes, topology, fenced })?;
    }
    let failed = |source| ServeError::Log { path: log.clone(), source };
    let recorder = Recorder::open(&log, &profile.node_id).map_err(failed)?;
    let driver = Driver::new(profile, backend, recorder, faults);
    let holds = driver.recover()?;
    driver.note_start(holds).map_err(failed)?;
    Ok(driver)
}

/// CSI: domain name notation.
fn is_plugin_name(name: &str) -> bool {
    let ends = [name.chars().next(), name.chars().last()];
    let inner = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.');
    name.len() <= LONGEST_NAME
        && name.chars().all(inner)
        && ends.iter().all(|end| end.is_some_and(|char| char.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ability::Abilities;
    use crate::topology::Segments;

    #[test]
    fn all_wrong_settings_are_named_at_once() {
        let profile = Profile {
            driver_name: "-".into(),
            vendor_version: "1".into(),
            node_id: String::new(),
            max_volumes: -1,
            abilities: Abilities::without([Ability::Controller]),
            topology: Segments::new(),
            serves: Serves::Controller,
            bound: false,
            publish_context: true,
            pool_bytes: Some(-1),
            ignores: std::collections::BTreeSet::new(),
            secret: None,
        };
        let (backend, log) = ("/b".into(), "/l".into());
        let (faults, control) = (None, None);
        let (endpoint, speaks) = ("csi".into(), Speaks::Grpc);
        let config = Config { endpoint, profile, backend, log, faults, control, speaks };
        let faults = config.check().unwrap_err();
        assert_eq!(faults.0.len(), 6, "{faults}");
    }

    #[test]
    fn plugin_names_are_domain_names() {
        for name in ["dev.berth", "a", "ebs.csi.aws.com", "x-1.y"] {
            assert!(is_plugin_name(name), "{name}");
        }
        for name in ["", ".a", "a-", "a/b", "ä", &"a".repeat(LONGEST_NAME + 1)] {
            assert!(!is_plugin_name(name), "{name}");
        }
    }
}
