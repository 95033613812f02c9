//! A Berth that serves Docker on each node.

use std::time::Duration;

use berth_harness::wait;
use berth_integration::{Options, System};
use serde_json::Value;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Engine, Plugin};

/// How long what goes on by itself may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Engines look for plugins in one place of the host. One that is asked for a volume by its name
/// alone asks all that are there, to which it is an engine that starts.
static HOST: RwLock<()> = RwLock::const_new(());

/// A whole Berth, and the sockets of its volume plugins.
pub struct Site {
    /// The rest of it.
    pub system: System,
    _host: Host,
}

/// Whether there are other sites meanwhile.
enum Host {
    Shared { _turn: RwLockReadGuard<'static, ()> },
    Alone { _turn: RwLockWriteGuard<'static, ()> },
}

impl Site {
    /// Of so many nodes. A mount may keep an engine waiting as long as it does where users are.
    pub async fn start(nodes: usize) -> Self {
        Self::start_with(Options { nodes, ..Options::default() }).await
    }

    /// One that differs.
    pub async fn start_with(options: Options) -> Self {
        let host = Host::Shared { _turn: HOST.read().await };
        Self::start_on(host, options).await
    }

    /// One whose engine may ask for volumes by their names alone: no other is there meanwhile.
    pub async fn start_alone(nodes: usize) -> Self {
        let host = Host::Alone { _turn: HOST.write().await };
        Self::start_on(host, Options { nodes, ..Options::default() }).await
    }

    async fn start_on(host: Host, options: Options) -> Self {
        let docker_ms = options.docker_ms.or(Some(110_000));
        let system = System::start(Options { docker_ms, ..options }).await;
        Self { system, _host: host }
    }

    /// The driver of a node, as `docker volume create -d` wants it.
    pub fn driver(&self, node: usize) -> String {
        let socket = self.system.docker_socket(node);
        socket.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// An engine on a node.
    pub async fn engine(&self, node: usize) -> Engine {
        self.engine_with(node, &[]).await
    }

    /// An engine on a node, started with these arguments besides.
    pub async fn engine_with(&self, node: usize, more: &[&str]) -> Engine {
        Engine::start(self.system.engine_socket(node), self.driver(node), more).await
    }

    /// The plugin's socket of a node, asked without an engine.
    pub fn plugin(&self, node: usize) -> Plugin {
        Plugin::at(self.system.docker_socket(node))
    }

    /// Waits until the volume is free, and nothing of its use is left anywhere.
    pub async fn settle(&self, volume: &str) {
        wait::until(&format!("{volume} is free"), PATIENCE, || async {
            let claims = self.system.claims(volume).await.claims;
            if claims.is_empty() { Ok(()) } else { Err(format!("{claims:?}")) }
        })
        .await;
        self.system.settle(volume).await;
    }

    /// How many calls of a kind the drivers have done.
    pub fn count(&self, rpc: &str) -> usize {
        let done = |call: &&Value| call["rpc"] == rpc && call["code"] == "OK";
        self.system.calls().iter().filter(done).count()
    }
}
