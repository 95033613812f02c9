//! A plugin in the test's process: real sockets, real gRPC, scripted answers. The development
//! driver is the plugin that does real work; this one can misbehave.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use berth_csi::v1;
use berth_csi::v1::controller_server::{Controller, ControllerServer};
use berth_csi::v1::identity_server::{Identity, IdentityServer};
use berth_csi::v1::node_server::{Node, NodeServer};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::{Notify, oneshot};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

/// A place for a socket, in a directory that lives as long as the first value.
pub fn socket() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    (dir, socket)
}

/// The answers of the plugin. The default is a plugin named `test.csi` with no service but
/// identity.
#[derive(Clone)]
pub struct Script {
    pub info: v1::GetPluginInfoResponse,
    /// Numbers of `PluginCapability.Service.Type`.
    pub services: Vec<i32>,
    pub ready: Option<bool>,
    /// Fails the probe.
    pub sick: bool,
    /// Numbers of `ControllerServiceCapability.RPC.Type`; no controller when absent.
    pub controller: Option<Vec<i32>>,
    /// Numbers of `NodeServiceCapability.RPC.Type`; no node when absent.
    pub node: Option<Vec<i32>>,
    /// The answer to `NodeGetInfo`; not implemented when absent.
    pub node_info: Option<v1::NodeGetInfoResponse>,
    /// The answer to `NodeStageVolume`.
    pub stage: Stage,
    /// The `grpc-timeout` of each call to `NodeStageVolume`.
    pub timeouts: Arc<Mutex<Vec<String>>>,
    /// The `traceparent` of each call to `NodeStageVolume`.
    pub traces: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
pub enum Stage {
    Done,
    Fails(Code, String),
    NeverAnswers,
    /// Answers once it is told to.
    Waits(Arc<Notify>),
}

impl Default for Script {
    fn default() -> Self {
        Self {
            info: v1::GetPluginInfoResponse {
                name: "test.csi".into(),
                vendor_version: "1".into(),
                ..v1::GetPluginInfoResponse::default()
            },
            services: Vec::new(),
            ready: None,
            sick: false,
            controller: None,
            node: None,
            node_info: None,
            stage: Stage::Done,
            timeouts: Arc::default(),
            traces: Arc::default(),
        }
    }
}

/// A plugin that runs until it is dropped; then it is gone with all its connections, as if killed.
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Script {
    /// Runs the plugin on a thread and runtime of its own; it listens when this returns.
    pub fn serve(self, socket: &Path) -> Running {
        // Like real plugins, it removes the socket of its predecessor.
        let _ = std::fs::remove_file(socket);
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                tokio::select! {
                    served = self.run(listener) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Running { stop: Some(stop), thread: Some(thread) }
    }

    async fn run(
        self,
        listener: std::os::unix::net::UnixListener,
    ) -> Result<(), tonic::transport::Error> {
        let incoming = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
        let controller = self.controller.is_some().then(|| ControllerServer::new(self.clone()));
        let node = self.node.is_some().then(|| NodeServer::new(self.clone()));
        Server::builder()
            .add_service(IdentityServer::new(self))
            .add_optional_service(controller)
            .add_optional_service(node)
            .serve_with_incoming(incoming)
            .await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the plugin panicked");
    }
}

#[tonic::async_trait]
impl Identity for Script {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Answer<v1::GetPluginInfoResponse> {
        Ok(Response::new(self.info.clone()))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Answer<v1::GetPluginCapabilitiesResponse> {
        use v1::plugin_capability::{Service, Type};
        let capability = |&number: &i32| v1::PluginCapability {
            r#type: Some(Type::Service(Service { r#type: number })),
        };
        let capabilities = self.services.iter().map(capability).collect();
        Ok(Response::new(v1::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Answer<v1::ProbeResponse> {
        if self.sick {
            return Err(Status::failed_precondition("the backend is away"));
        }
        Ok(Response::new(v1::ProbeResponse { ready: self.ready }))
    }
}

#[tonic::async_trait]
impl Controller for Script {
    async fn controller_get_capabilities(
        &self,
        _: Request<v1::ControllerGetCapabilitiesRequest>,
    ) -> Answer<v1::ControllerGetCapabilitiesResponse> {
        use v1::controller_service_capability::{Rpc, Type};
        let capability = |&number: &i32| v1::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: number })),
        };
        let capabilities = self.controller.iter().flatten().map(capability).collect();
        Ok(Response::new(v1::ControllerGetCapabilitiesResponse { capabilities }))
    }
}

#[tonic::async_trait]
impl Node for Script {
    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        use v1::node_service_capability::{Rpc, Type};
        let capability = |&number: &i32| v1::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: number })),
        };
        let capabilities = self.node.iter().flatten().map(capability).collect();
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Answer<v1::NodeGetInfoResponse> {
        self.node_info.clone().map(Response::new).ok_or_else(|| Status::unimplemented("no info"))
    }

    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        let timeout = request.metadata().get("grpc-timeout");
        let timeout = timeout.map_or("none", |value| value.to_str().unwrap()).to_owned();
        self.timeouts.lock().unwrap().push(timeout);
        let trace = request.metadata().get("traceparent");
        let trace = trace.map_or("none", |value| value.to_str().unwrap()).to_owned();
        self.traces.lock().unwrap().push(trace);
        match &self.stage {
            Stage::Done => Ok(Response::new(v1::NodeStageVolumeResponse {})),
            Stage::Fails(code, message) => Err(Status::new(*code, message.clone())),
            Stage::NeverAnswers => std::future::pending().await,
            Stage::Waits(told) => {
                told.notified().await;
                Ok(Response::new(v1::NodeStageVolumeResponse {}))
            }
        }
    }
}
