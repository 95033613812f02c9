//! `berth-csi-dev serve`: one instance, from its start to its end.
//!
//! Owns: building an instance, and draining it. Promises: the socket exists only while everything
//! behind it is ready. SIGTERM and SIGINT let running calls end, for up to [`DRAIN`]. Never: does
//! the work of a call.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_csi::v1::controller_server::ControllerServer;
use berth_csi::v1::group_controller_server::GroupControllerServer;
use berth_csi::v1::identity_server::IdentityServer;
use berth_csi::v1::node_server::NodeServer;
use clap::Args;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::ability::Ability;
use crate::backend::{Backend, BackendError, NodeRecord};
use crate::driver::services::Services;
use crate::driver::{Driver, Profile};
use crate::faults::Faults;
use crate::log::Recorder;
use crate::mute::{self, Speech};
use crate::socket::{self, SocketError};

/// How long running calls may take after SIGTERM.
pub const DRAIN: Duration = Duration::from_secs(10);

/// The settings of an instance.
#[derive(Args, Debug)]
#[command(after_help = PARAMETERS_HELP)]
pub struct Config {
    /// Where to listen, as `unix:///run/plugin/csi.sock`
    #[arg(long, env = "CSI_ENDPOINT", value_parser = socket::parse)]
    endpoint: PathBuf,
    /// The directory that all instances share
    #[arg(long, value_name = "DIR")]
    backend: PathBuf,
    /// The file to append one line to for each beginning and end of a call
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    #[arg(long, value_name = "FILE", help = FAULTS_HELP)]
    faults: Option<PathBuf>,
    /// Be no plugin at all, but something else at its socket
    #[arg(long, value_name = "WHAT", default_value = "grpc")]
    speak: Speech,
    #[command(flatten)]
    profile: Profile,
}

/// Clap indents the lines and wraps them at 100 columns.
const FAULTS_HELP: &str = r#"A JSON file with faults to plant, read again whenever it changes, like
[{"rpc":"NodeStageVolume","volume":"v","delay_ms":500,"code":"ABORTED","times":1}]
A fault hits calls of one rpc, about one volume (without them: any), "before" or "after"
the work ("when"), at most so many "times", with a "probability" (0 to 1, by a "seed").
It waits "delay_ms", and then does one thing more, or nothing: "code": answer so;
"hang": true; "crash": true (SIGKILL); "lose_answer": true; or "wrong": one of
unknown-enum, no-ready, empty-topology, no-topology, negative-limit, other-name,
other-version, no-capabilities, chatty, nothing-done, less-capacity, no-id, other-id,
id-of-another, other-topology, endless-pages, endless-token, no-source.
The "volume" is an id; for CreateVolume, the name in the request; for CreateSnapshot and
CreateVolumeGroupSnapshot, a source; for other calls about a snapshot or group, its id"#;

/// The keys and values are read in `driver/controller/parameters.rs`.
const PARAMETERS_HELP: &str = "\
Parameters of CreateVolume:
  backing=directory|image  what holds the volume; without it, what its capabilities need
  fs-type=ext4|xfs         the file system of an image, where no capability names one
  context/KEY=VALUE        what every call about the volume has to bring along
  iops=1..1000000, tier=bronze|silver|gold
                           recorded only; as mutable_parameters, these win and can be modified
Parameters of CreateSnapshot: ready-after-ms=0..60000, until it is ready to use
Images need losetup (util-linux), mkfs.ext4 (e2fsprogs) and, for xfs, mkfs.xfs (xfsprogs).";

#[derive(Debug, Error)]
pub enum ServeError {
    #[error("the backend cannot be used")]
    Backend(#[from] BackendError),
    #[error("the call log {} cannot be written", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("the endpoint cannot be served")]
    Socket(#[from] SocketError),
    #[error("signals cannot be received")]
    Signal(#[source] io::Error),
    #[error("connections cannot be taken")]
    Accept(#[source] io::Error),
    #[error("serving broke off")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves until SIGTERM or SIGINT.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signal)?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let endpoint = config.endpoint.clone();
    if config.speak != Speech::Grpc {
        let (listener, _socket) = socket::listen(&endpoint)?;
        eprintln!("no plugin, but {:?}, at {}", config.speak, endpoint.display());
        return mute::sit(listener, config.speak, stop).await.map_err(ServeError::Accept);
    }
    let driver = Arc::new(build(config)?);
    let (listener, socket) = socket::listen(&endpoint)?;
    let profile = driver.profile();
    eprintln!("{} serves node {} at {}", profile.driver_name, profile.node_id, endpoint.display());

    let has_group = profile.is_controller() && profile.has(Ability::GroupSnapshot);
    let services = Services(Arc::clone(&driver));
    let controller = profile.is_controller().then(|| ControllerServer::new(services.clone()));
    let group = has_group.then(|| GroupControllerServer::new(services.clone()));
    let node = profile.is_node().then(|| NodeServer::new(services.clone()));
    let (stop_accepting, stopped) = oneshot::channel::<()>();
    let serving = Server::builder()
        .add_service(IdentityServer::new(services))
        .add_optional_service(controller)
        .add_optional_service(group)
        .add_optional_service(node)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
            _ = stopped.await;
        });
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return Ok(ended?),
        () = stop => {}
    }
    _ = stop_accepting.send(());
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

/// Builds an instance, after recovery of its node.
fn build(config: Config) -> Result<Driver, ServeError> {
    let Config { profile, backend, log, faults, .. } = config;
    let backend = Backend::open(backend)?;
    if profile.is_node() {
        let (node_id, topology) = (profile.node_id.clone(), profile.topology());
        let (max_volumes, fenced) = (profile.max_volumes, false);
        backend.register_node(&NodeRecord { node_id, max_volumes, topology, fenced })?;
    }
    let failed = |source| ServeError::Log { path: log.clone(), source };
    let recorder = Recorder::open(&log, &profile.node_id).map_err(failed)?;
    let recorder = recorder.lenient(profile.lenient);
    let driver = Driver::new(profile, backend, recorder, Faults::from_file(faults));
    let holds = driver.recover()?;
    driver.log_start(holds).map_err(failed)?;
    Ok(driver)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::faults::WrongAnswer;

    #[test]
    fn the_help_lists_each_wrong_answer() {
        for wrong in WrongAnswer::value_variants() {
            let name = serde_json::to_value(wrong).unwrap();
            let name = name.as_str().unwrap();
            let words = FAULTS_HELP.split([' ', ',', '.', '\n']);
            assert_eq!(words.filter(|word| *word == name).count(), 1, "{name}");
        }
    }
}
