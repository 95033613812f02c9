//! A Berth that serves Docker on each node.

use std::time::Duration;

use berth_harness::{storage, wait};
use berth_integration::{Options, System};
use serde_json::Value;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Engine, Plugin};

/// How long a step without further requests may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// All engines look for plugins in one directory of the host. An engine that looks up a volume by
/// its name alone activates every plugin there, and each plugin takes that for a restarted engine.
static HOST: RwLock<()> = RwLock::const_new(());

/// A complete Berth, and the sockets of its volume plugins.
pub struct Site {
    /// The rest of Berth.
    pub system: System,
    _host: Host,
}

/// Whether other sites may run at the same time.
enum Host {
    Shared { _turn: RwLockReadGuard<'static, ()> },
    Alone { _turn: RwLockWriteGuard<'static, ()> },
}

impl Site {
    /// Starts a site with this many nodes. A mount may keep an engine waiting as long as in
    /// production.
    pub async fn start(nodes: usize) -> Self {
        Self::start_with(Options { nodes, ..Options::default() }).await
    }

    /// Starts a site with other options.
    pub async fn start_with(options: Options) -> Self {
        let host = Host::Shared { _turn: HOST.read().await };
        Self::start_on(host, options).await
    }

    /// Starts a site while no other site runs: its engine may look up volumes by name alone.
    pub async fn start_alone(nodes: usize) -> Self {
        let host = Host::Alone { _turn: HOST.write().await };
        Self::start_on(host, Options { nodes, ..Options::default() }).await
    }

    async fn start_on(host: Host, options: Options) -> Self {
        let docker_ms = options.docker_ms.or(Some(110_000));
        let system = System::start(Options { docker_ms, ..options }).await;
        Self { system, _host: host }
    }

    /// The driver of a node, as an argument of `docker volume create -d`.
    pub fn driver(&self, node: usize) -> String {
        let socket = self.system.docker_socket(node);
        socket.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The volumes that the storage created on request, by its own list.
    pub fn created(&self) -> Vec<Value> {
        let is_created =
            |volume: &Value| volume["volume_id"].as_str().is_some_and(|id| id.starts_with("vol-"));
        storage::volumes(&self.system.backend()).into_iter().filter(is_created).collect()
    }

    /// Starts an engine on a node.
    pub async fn engine(&self, node: usize) -> Engine {
        self.engine_with(node, &[]).await
    }

    /// Starts an engine on a node, with extra arguments of `dockerd`.
    pub async fn engine_with(&self, node: usize, extra_args: &[&str]) -> Engine {
        Engine::start(self.system.engine_socket(node), self.driver(node), extra_args).await
    }

    /// A client of a node's plugin socket, without an engine.
    pub fn plugin(&self, node: usize) -> Plugin {
        Plugin::at(self.system.docker_socket(node))
    }

    /// Waits until the volume is free, and nothing of its use is left.
    pub async fn settle(&self, volume: &str) {
        wait::until(&format!("{volume} is free"), PATIENCE, || async {
            let claims = self.system.claims(volume).await.claims;
            if claims.is_empty() { Ok(()) } else { Err(format!("{claims:?}")) }
        })
        .await;
        self.system.settle(volume).await;
    }

    /// How many calls of an RPC succeeded in all drivers.
    pub fn count(&self, rpc: &str) -> usize {
        let succeeded = |call: &&Value| call["rpc"] == rpc && call["code"] == "OK";
        self.system.calls().iter().filter(succeeded).count()
    }
}
