//! One server, or several that replicate to each other.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::json;

use super::{Login, Server, wire};
use crate::ports::Port;
use crate::proxy::{Direction, Proxy};
use crate::wait;

/// How long a cluster may take to get ready. An election takes 4 to 9 s; a start under load takes
/// several.
const READY: Duration = Duration::from_secs(60);

/// The configuration of each server of a cluster, besides its ports.
const CLUSTER: &str = "cluster { name: berth }";

/// How [`NatsServers`] differ from those that [`NatsServers::start`] starts.
#[derive(Debug, Clone, Copy, Default)]
pub struct NatsOptions<'a> {
    /// Configuration text that overrides the shipped one.
    pub extra: &'a str,
    /// The size of each store's own disk, if it has one. Needs root.
    pub disk_bytes: Option<u64>,
    /// Whether servers hide each other's addresses from clients: a client that is given a cable to
    /// each server stays on the cables.
    pub unadvertised: bool,
    /// The harness's credentials, if `extra` has the servers ask for some.
    pub login: Option<&'a Login>,
    /// Whether servers can be parted from each other ([`NatsServers::part`]). They are then
    /// unadvertised too.
    pub breakable: bool,
}

/// One nats-server with the shipped `nats.conf`, or several, `n1`, `n2`, …, in one cluster.
#[derive(Debug)]
pub struct NatsServers {
    servers: Vec<Server>,
    /// The cable from each server to each other one, if routes go through cables.
    cables: BTreeMap<(usize, usize), Proxy>,
    ports: Vec<Port>,
}

impl NatsServers {
    /// Starts `count` servers and waits until streams with a replica on each can be made.
    pub async fn start(count: usize) -> Self {
        Self::start_with(count, NatsOptions::default()).await
    }

    /// [`Self::start`] with options.
    pub async fn start_with(count: usize, options: NatsOptions<'_>) -> Self {
        if count == 1 {
            let server = Server::launch("berth", &[], &options);
            server.ready().await;
            return Self { servers: vec![server], cables: BTreeMap::new(), ports: Vec::new() };
        }
        // One more than servers: none listens on the last port.
        let ports: Vec<Port> = (0..=count).map(|_| Port::reserve()).collect();
        let mut cables = BTreeMap::new();
        for from in 0..count {
            for to in (0..count).filter(|to| options.breakable && *to != from) {
                cables.insert((from, to), Proxy::start(ports[to].address()).await);
            }
        }
        // A cluster block in `extra` wins.
        let extra = &format!("{CLUSTER}\n{}", options.extra);
        let options = NatsOptions { extra, ..options };
        let servers = (0..count).map(|from| {
            let route_to =
                |to| cables.get(&(from, to)).map_or_else(|| route(&ports[to]), Proxy::url);
            let mut args =
                member_args(&ports[from], (0..count).filter(|to| *to != from).map(route_to));
            if options.unadvertised || options.breakable {
                args.push("--no_advertise=true".into());
            }
            if options.breakable {
                // A server also connects to the address that another server advertises, past the
                // cables. Nothing listens at this one.
                args.extend(["--cluster_advertise".into(), ports[count].address().to_string()]);
            }
            Server::launch(&name(from), &args, &options)
        });
        let servers = Self { servers: servers.collect(), cables, ports };
        for server in &servers.servers {
            server.ready().await;
        }
        servers.ready().await;
        servers
    }

    /// Starts a cluster of `count` servers without the last one, until [`Self::complete`].
    pub async fn start_incomplete(count: usize) -> Self {
        let ports: Vec<Port> = (0..count).map(|_| Port::reserve()).collect();
        let mut servers = Self { servers: Vec::new(), cables: BTreeMap::new(), ports };
        for _ in 1..count {
            servers.launch_next();
        }
        for server in &servers.servers {
            server.ready().await;
        }
        servers
    }

    /// Starts the last server of [`Self::start_incomplete`], and waits until streams with a replica
    /// on each can be made.
    pub async fn complete(&mut self) {
        self.launch_next();
        for server in &self.servers {
            server.ready().await;
        }
        self.ready().await;
    }

    /// Launches the next server of a cluster whose ports are reserved.
    fn launch_next(&mut self) {
        let from = self.servers.len();
        let others = self.ports.iter().enumerate().filter(|(to, _)| *to != from);
        let args = member_args(&self.ports[from], others.map(|(_, port)| route(port)));
        let options = NatsOptions { extra: CLUSTER, ..NatsOptions::default() };
        self.servers.push(Server::launch(&name(from), &args, &options));
    }

    /// Breaks the connections between two servers, and each new one, until [`Self::join`].
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
        self.cables.get(&(from, to)).expect("the servers were started breakable")
    }

    /// The servers, in the order of their names. Kill, pause or restart them one by one.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The first server, or the only one.
    pub fn first(&self) -> &Server {
        &self.servers[0]
    }

    /// How many copies each stream has: one on every server.
    pub fn copies(&self) -> u8 {
        u8::try_from(self.servers.len()).expect("there are few servers")
    }

    /// All client addresses, comma-separated.
    pub fn url(&self) -> String {
        self.servers.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }

    /// Waits until a stream with a replica on every server can be made: all servers know each
    /// other.
    pub async fn ready(&self) {
        const PROBE: &str = "HARNESS_PROBE";
        let config = json!({
            "name": PROBE, "subjects": ["harness.probe"], "num_replicas": self.servers.len(),
        });
        wait::until("the cluster makes streams", READY, async || {
            let first = self.first();
            wire::ask(first, &format!("$JS.API.STREAM.CREATE.{PROBE}"), &config).await?;
            for server in &self.servers {
                wire::ask(server, "$JS.API.INFO", &json!({})).await?;
            }
            wire::ask(first, &format!("$JS.API.STREAM.DELETE.{PROBE}"), &json!({})).await
        })
        .await;
    }

    /// Which of [`Self::servers`] leads `stream` now; waits for an election to end. A single server
    /// leads all streams.
    pub async fn leader_of(&self, stream: &str) -> usize {
        if self.servers.len() == 1 {
            return 0;
        }
        wait::until(&format!("{stream} has a leader"), READY, async || {
            let mut last_error = String::from("no server runs");
            for (asked, server) in self.servers.iter().enumerate() {
                if !server.daemon().is_running() {
                    continue;
                }
                match self.leader_seen_by(asked, stream).await {
                    Ok(index) => return Ok(index),
                    Err(error) => last_error = format!("{}: {error}", server.url()),
                }
            }
            Err(last_error)
        })
        .await
    }

    /// Which of [`Self::servers`] leads `stream`, by the answer of this server within a second.
    pub async fn leader_seen_by(&self, server: usize, stream: &str) -> io::Result<usize> {
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        let info = wire::ask(&self.servers[server], &subject, &json!({})).await?;
        let leader = info["cluster"]["leader"].as_str().unwrap_or_default();
        let index = (0..self.servers.len()).find(|index| name(*index) == leader);
        index.ok_or_else(|| io::Error::other(format!("the leader is {leader:?}")))
    }
}

/// The arguments of a server of a cluster.
fn member_args(own: &Port, others: impl Iterator<Item = String>) -> Vec<String> {
    let routes = others.collect::<Vec<_>>().join(",");
    vec!["--cluster".into(), route(own), "--routes".into(), routes]
}

fn route(port: &Port) -> String {
    format!("nats://{}", port.address())
}

fn name(index: usize) -> String {
    format!("n{}", index + 1)
}
