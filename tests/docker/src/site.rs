//! A Berth whose agents serve Docker.

use std::fs;
use std::time::Duration;

use berth_harness::wait;
use berth_integration::{Options, System};
use serde_json::Value;

use crate::{Engine, Plugin};

/// How long what goes on by itself may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A whole Berth, and the sockets of its agents.
pub struct Site {
    /// The rest of it.
    pub system: System,
}

impl Site {
    /// Of so many nodes. A mount may keep an engine waiting as long as it does where users are.
    pub async fn start(nodes: usize) -> Self {
        Self::start_with(Options { nodes, ..Options::default() }).await
    }

    /// One that differs.
    pub async fn start_with(options: Options) -> Self {
        let docker_ms = options.docker_ms.or(Some(110_000));
        let system = System::start(Options { docker_ms, ..options }).await;
        Self { system }
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

impl Drop for Site {
    fn drop(&mut self) {
        for node in 0..self.system.options.nodes {
            // A killed agent leaves its own behind.
            let _ = fs::remove_file(self.system.docker_socket(node));
        }
    }
}
