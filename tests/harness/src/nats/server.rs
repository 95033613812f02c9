//! One nats-server.

use std::fs;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use super::{Login, NatsOptions, program, shipped_config, wire};
use crate::dirs::{Dir, Disk};
use crate::ports::Port;
use crate::process::{Daemon, Program};
use crate::wait;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);

/// A nats-server with JetStream on a port and a store of its own. Dropping it ends it and removes
/// its store.
#[derive(Debug)]
pub struct Server {
    // Dropped in this order: the process before the files and the port it uses.
    daemon: Daemon,
    disk: Option<Disk>,
    dir: Dir,
    port: Port,
    login: Option<Login>,
}

impl Server {
    /// Starts a server with the shipped `nats.conf` and waits until clients are served.
    pub async fn start() -> Self {
        let server = Self::launch("berth", &[], &NatsOptions::default());
        server.ready().await;
        server
    }

    /// Starts a server without waiting for it.
    pub(super) fn launch(name: &str, args: &[String], options: &NatsOptions<'_>) -> Self {
        let NatsOptions { extra, disk_bytes, login, .. } = options;
        let dir = Dir::new("nats");
        let disk = disk_bytes.map(|bytes| Disk::mount(dir.join("store"), bytes));
        let port = Port::reserve();
        let config_path = dir.join("nats.conf");
        fs::write(&config_path, shipped_config(&dir.join("store"), extra))
            .expect("a fresh directory can be written");
        let daemon = Program::new(&format!("nats-server {name}"), program(), dir.join("log"))
            .arg("-c")
            .arg(config_path)
            .args(["-n", name, "-a", "127.0.0.1", "-p", &port.number().to_string()])
            .args(args)
            .start();
        Self { daemon, disk, dir, port, login: login.cloned() }
    }

    /// `nats://127.0.0.1:<port>`, the same after a restart.
    pub fn url(&self) -> String {
        format!("nats://{}", self.port.address())
    }

    /// The client port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The harness's credentials, if the server asks for some.
    pub(super) const fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// The process: its log, its pid, other signals.
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// The directory of its store.
    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// The disk of its store, if it has its own.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// Waits until clients are served. JetStream has then recovered its store.
    pub async fn ready(&self) {
        let what = format!("nats-server answers at {}", self.port.address());
        wait::until(&what, START, async || {
            if let Some(status) = self.daemon.exit_status() {
                panic!("nats-server ended: {status}\n{}", self.daemon.log());
            }
            wire::greeting(self).await
        })
        .await;
    }

    /// Ends it by SIGKILL.
    pub fn kill9(&self) {
        self.daemon.kill9();
    }

    /// Ends it by SIGTERM and waits until it is gone.
    pub async fn terminate(&self) -> ExitStatus {
        self.daemon.terminate().await
    }

    /// Starts it again, killing it first if it runs: same port, same store; waits until it serves.
    pub async fn restart(&self) {
        self.daemon.restart();
        self.ready().await;
    }

    /// Freezes it: connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.daemon.pause();
    }

    /// Lets it go on after [`Self::pause`].
    pub fn resume(&self) {
        self.daemon.resume();
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> std::net::SocketAddr {
        self.port.address()
    }
}
