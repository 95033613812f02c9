//! `berth-csi-dev serve`: one instance, with the proxy in front.
//!
//! Owns: building an instance. Promises: it serves only after the recovery of its node. Never: does
//! the work of a call, or looks at it: that is the proxy's.

use std::path::PathBuf;
use std::sync::Arc;

use berth_csi::v1::controller_server::ControllerServer;
use berth_csi::v1::group_controller_server::GroupControllerServer;
use berth_csi::v1::identity_server::IdentityServer;
use berth_csi::v1::node_server::NodeServer;
use berth_csi_proxy::{ServeError, Settings, Tap, Tapped};
use clap::Args;
use thiserror::Error;
use tonic::service::Routes;

use crate::ability::Ability;
use crate::backend::{Backend, BackendError, NodeRecord};
use crate::driver::services::Services;
use crate::driver::{Driver, Profile, SlotGate};

/// The settings of an instance.
#[derive(Args, Debug)]
#[command(after_help = PARAMETERS_HELP)]
pub struct Config {
    #[command(flatten)]
    proxy: Settings,
    /// The directory that all instances share
    #[arg(long, value_name = "DIR")]
    backend: PathBuf,
    #[command(flatten)]
    profile: Profile,
}

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
#[error("the backend cannot be used")]
struct NoBackend(#[from] BackendError);

/// Serves until SIGTERM or SIGINT.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let Config { proxy, backend, profile } = config;
    let no_backend = |error| ServeError::Driver(Box::new(NoBackend(error)));
    berth_csi_proxy::serve(proxy, async |proxy| {
        let recorder = proxy.recorder(&profile.node_id)?.lenient(profile.lenient);
        let backend = Backend::open(backend).map_err(no_backend)?;
        let driver = Arc::new(start(profile, backend).map_err(no_backend)?);
        let holds = driver.recover().map_err(no_backend)?;
        let profile = driver.profile();
        if profile.is_node() {
            let (attach, stage) = (profile.has(Ability::Attach), profile.has(Ability::Stage));
            let started = recorder.start(attach, stage, holds);
            started.map_err(|error| proxy.not_logged(error))?;
        }
        let introduction = format!("{} serves node {}", profile.driver_name, profile.node_id);
        let tap = Tap::new(recorder, proxy.faults(), SlotGate(Arc::clone(&driver)));
        Ok((Tapped::new(tap, services(driver)), introduction))
    })
    .await
}

fn start(profile: Profile, backend: Backend) -> Result<Driver, BackendError> {
    if profile.is_node() {
        let (node_id, topology) = (profile.node_id.clone(), profile.topology());
        let max_volumes = profile.max_volumes;
        let record = NodeRecord { max_volumes, topology, ..NodeRecord::new(&node_id) };
        backend.register_node(&record)?;
    }
    Ok(Driver::new(profile, backend))
}

fn services(driver: Arc<Driver>) -> Routes {
    let (is_controller, is_node) = (driver.profile().is_controller(), driver.profile().is_node());
    let has_group = is_controller && driver.profile().has(Ability::GroupSnapshot);
    let services = Services(driver);
    let mut routes = Routes::new(IdentityServer::new(services.clone()));
    if is_controller {
        routes = routes.add_service(ControllerServer::new(services.clone()));
    }
    if has_group {
        routes = routes.add_service(GroupControllerServer::new(services.clone()));
    }
    if is_node {
        routes = routes.add_service(NodeServer::new(services));
    }
    routes.prepare()
}
