//! Servers that replicate to each other.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::json;

use super::{Server, wire};
use crate::ports::Port;
use crate::proxy::{Direction, Proxy};
use crate::wait;

/// Elections take 4 to 9 s, and a start under load more than one.
const READY: Duration = Duration::from_secs(60);

/// nats-servers `n1`, `n2`, … in one cluster, with the shipped `cluster.conf`.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Server>,
    /// From each server to each other, where routes go through cables.
    cables: BTreeMap<(usize, usize), Proxy>,
    _ports: Vec<Port>,
}

impl Cluster {
    /// Starts `size` servers and waits until streams with `size` replicas can be made.
    pub async fn start(size: usize) -> Self {
        Self::launch(size, &[]).await
    }

    /// As [`Self::start`], of servers that tell clients nothing of each other: a client that is
    /// given a cable to each stays on the cables.
    pub async fn start_unadvertised(size: usize) -> Self {
        Self::launch(size, &["--no_advertise=true".to_owned()]).await
    }

    async fn launch(size: usize, more: &[String]) -> Self {
        let ports: Vec<Port> = (0..size).map(|_| Port::reserve()).collect();
        let routes = ports.iter().map(route).collect::<Vec<_>>().join(",");
        let servers = ports.iter().enumerate().map(|(index, port)| {
            let args = ["--cluster".into(), route(port), "--routes".into(), routes.clone()];
            let args = [args.as_slice(), more].concat();
            Server::launch("cluster.conf", &name(index), "", &args, None)
        });
        Self { servers: servers.collect(), cables: BTreeMap::new(), _ports: ports }.started().await
    }

    /// As [`Self::start_unadvertised`], of servers that can be parted from each other
    /// ([`Self::part`]) and have their stores on disks of this size. Needs root.
    pub async fn start_breakable(size: usize, disk_bytes: u64) -> Self {
        let mut ports: Vec<Port> = (0..size).map(|_| Port::reserve()).collect();
        let mut cables = BTreeMap::new();
        for from in 0..size {
            for to in (0..size).filter(|to| *to != from) {
                cables.insert((from, to), Proxy::start(ports[to].address()).await);
            }
        }
        // A server also connects to the route address that another tells it, past the cables.
        let nowhere = Port::reserve();
        let servers = ports.iter().enumerate().map(|(from, port)| {
            let own = cables.iter().filter(|((one, _), _)| *one == from);
            let routes = own.map(|(_, cable)| cable.url()).collect::<Vec<_>>().join(",");
            let advertised = nowhere.address().to_string();
            let args = ["--cluster", &route(port), "--routes", &routes]
                .into_iter()
                .chain(["--cluster_advertise", &advertised, "--no_advertise=true"])
                .map(str::to_owned)
                .collect::<Vec<_>>();
            Server::launch("cluster.conf", &name(from), "", &args, Some(disk_bytes))
        });
        let servers = servers.collect();
        ports.push(nowhere);
        Self { servers, cables, _ports: ports }.started().await
    }

    async fn started(self) -> Self {
        for server in &self.servers {
            server.ready().await;
        }
        self.ready().await;
        self
    }

    /// Breaks every connection between two servers, and new ones at once, until [`Self::join`].
    pub fn part(&self, one: usize, other: usize) {
        self.cable(one, other).cut();
        self.cable(other, one).cut();
    }

    /// Holds back what `from` sends to `to`, until [`Self::join`]. The other direction goes on.
    pub fn mute(&self, from: usize, to: usize) {
        // Either of the two may have made the connection that the route uses.
        self.cable(from, to).one_way(Direction::FromTarget);
        self.cable(to, from).one_way(Direction::ToTarget);
    }

    /// Ends what [`Self::part`] or [`Self::mute`] did to two servers.
    pub fn join(&self, one: usize, other: usize) {
        self.cable(one, other).heal();
        self.cable(other, one).heal();
    }

    fn cable(&self, from: usize, to: usize) -> &Proxy {
        self.cables.get(&(from, to)).expect("the cluster was started with cables")
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
            for (at, server) in self.servers.iter().enumerate() {
                if !server.daemon().is_running() {
                    continue;
                }
                match self.leader_seen_by(at, stream).await {
                    Ok(index) => return Ok(index),
                    Err(error) => seen = format!("{}: {error}", server.url()),
                }
            }
            Err(seen)
        })
        .await
    }

    /// Which of [`Self::servers`] leads `stream`, as this one of them says within a second.
    pub async fn leader_seen_by(&self, server: usize, stream: &str) -> io::Result<usize> {
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        let info = wire::ask(self.servers[server].address(), &subject, &json!({})).await?;
        let leader = info["cluster"]["leader"].as_str().unwrap_or_default();
        let index = (0..self.servers.len()).find(|index| name(*index) == leader);
        index.ok_or_else(|| io::Error::other(format!("the leader is {leader:?}")))
    }
}

fn route(port: &Port) -> String {
    format!("nats://{}", port.address())
}

fn name(index: usize) -> String {
    format!("n{}", index + 1)
}
