//! Servers that replicate to each other.

use std::io;
use std::time::Duration;

use serde_json::json;

use super::{Server, wire};
use crate::ports::Port;
use crate::wait;

/// Elections take 4 to 9 s, and a start under load more than one.
const READY: Duration = Duration::from_secs(60);

/// nats-servers `n1`, `n2`, … in one cluster, with the shipped `cluster.conf`.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Server>,
    _route_ports: Vec<Port>,
}

impl Cluster {
    /// Starts `size` servers and waits until streams with `size` replicas can be made.
    pub async fn start(size: usize) -> Self {
        Self::launch(size, true).await
    }

    /// As [`Self::start`], of servers that tell clients nothing of each other: whoever is given a
    /// cable to each stays on the cables.
    pub async fn start_unadvertised(size: usize) -> Self {
        Self::launch(size, false).await
    }

    async fn launch(size: usize, advertised: bool) -> Self {
        let route_ports: Vec<Port> = (0..size).map(|_| Port::reserve()).collect();
        let route = |port: &Port| format!("nats://{}", port.address());
        let routes = route_ports.iter().map(route).collect::<Vec<_>>().join(",");
        let servers = route_ports.iter().enumerate().map(|(index, port)| {
            let mut args = vec!["--cluster".into(), route(port), "--routes".into(), routes.clone()];
            if !advertised {
                args.push("--no_advertise=true".into());
            }
            Server::launch("cluster.conf", &name(index), "", &args)
        });
        let cluster = Self { servers: servers.collect(), _route_ports: route_ports };
        for server in &cluster.servers {
            server.ready().await;
        }
        cluster.ready().await;
        cluster
    }

    /// The servers; `n1` is the first. Kill, pause or restart them one by one.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// All client addresses, comma-separated.
    pub fn url(&self) -> String {
        self.servers.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }

    /// Waits until a stream with a replica on every server can be made: all are up and know it.
    pub async fn ready(&self) {
        const PROBE: &str = "HARNESS_PROBE";
        let config = json!({
            "name": PROBE, "subjects": ["harness.probe"], "num_replicas": self.servers.len(),
        });
        wait::until("the cluster makes streams", READY, async || {
            let first = self.servers[0].address();
            wire::ask(first, &format!("$JS.API.STREAM.CREATE.{PROBE}"), &config).await?;
            for server in &self.servers {
                wire::ask(server.address(), "$JS.API.INFO", &json!({})).await?;
            }
            wire::ask(first, &format!("$JS.API.STREAM.DELETE.{PROBE}"), &json!({})).await
        })
        .await;
    }

    /// Which of [`Self::servers`] leads `stream` now; waits for an election to end.
    pub async fn leader_of(&self, stream: &str) -> usize {
        wait::until(&format!("{stream} has a leader"), READY, async || {
            let mut seen = String::from("no server runs");
            for server in self.servers.iter().filter(|server| server.daemon().is_running()) {
                match self.leader_seen_by(server, stream).await {
                    Ok(index) => return Ok(index),
                    Err(error) => seen = format!("{}: {error}", server.url()),
                }
            }
            Err(seen)
        })
        .await
    }

    async fn leader_seen_by(&self, server: &Server, stream: &str) -> io::Result<usize> {
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        let info = wire::ask(server.address(), &subject, &json!({})).await?;
        let leader = info["cluster"]["leader"].as_str().unwrap_or_default();
        let index = (0..self.servers.len()).find(|index| name(*index) == leader);
        index.ok_or_else(|| io::Error::other(format!("the leader is {leader:?}")))
    }
}

fn name(index: usize) -> String {
    format!("n{}", index + 1)
}
