//! One nats-server or three, some replicas of the service, and their callers.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::{Bucket, Bus, Call, Config, Lease, RequestError};
use berth_contract::bucket::{self, BucketSpec};
use berth_contract::event::Event;
use berth_contract::message::registry::{
    Hosted, ListNodes, ListPlugins, NodeReport, NodeStatus, PluginStatus, Reported,
    ReportedInstance,
};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, PluginOnNode, Verb};
use berth_contract::{key, stream, subject};
use berth_domain::plugin::{Half, Instance};
use berth_domain::{Namespace, NodeId, PluginId, Timestamp};
use berth_harness::dirs::Dir;
use berth_harness::nats::{NatsServers, Server};
use berth_harness::process::{Daemon, Program};
use berth_harness::wait;
use serde::Serialize;
use serde_json::json;

/// A timeout that only a broken run reaches.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The processes under test. They end when this is dropped.
pub struct Site {
    // Dropped in this order.
    pub replicas: Vec<Daemon>,
    claim: Option<Daemon>,
    pub bus: Bus,
    pub nats: NatsServers,
    dir: Dir,
}

impl Site {
    /// Starts a server and so many replicas, and waits until each serves.
    pub async fn start(replicas: usize) -> Self {
        Self::start_on(1, replicas).await
    }

    /// The same on three servers, with three copies of everything.
    pub async fn start_on_three(replicas: usize) -> Self {
        Self::start_on(3, replicas).await
    }

    async fn start_on(servers: usize, replicas: usize) -> Self {
        let nats = NatsServers::start(servers).await;
        let bus = Bus::connect(Config::new([nats.url()], "test/host/1").insecure()).await.unwrap();
        let mut site =
            Self { replicas: Vec::new(), claim: None, bus, nats, dir: Dir::new("registry") };
        for _ in 0..replicas {
            site.start_replica().await;
        }
        site
    }

    async fn start_replica(&mut self) {
        self.start_replica_at(self.nats.url()).await;
    }

    /// Starts a replica that finds the bus at this address, and waits until it serves.
    pub async fn start_replica_at(&mut self, url: String) {
        let at = self.replicas.len();
        let program =
            Program::service("berth-plugin-registry", &format!("registry-{at}"), &self.dir);
        let daemon = program.on_bus(url, self.nats.copies()).start();
        self.replicas.push(daemon);
        self.serving(at, 1).await;
    }

    /// Starts the claim service, and waits until it can list volumes.
    pub async fn start_claim(&mut self) {
        let program = Program::service("berth-claim", "claim", &self.dir);
        self.claim = Some(program.on_bus(self.nats.url(), self.nats.copies()).start());
        let subject = verb::VolumeList::subject(&Namespace::default());
        wait::until("the claim service answers", PATIENCE, async || {
            let call = Call::within(trace(), Duration::from_secs(1));
            self.bus.request::<serde_json::Value>(&subject, &serde_json::json!({}), &call).await
        })
        .await;
    }

    /// The first server, or the only one.
    pub fn server(&self) -> &Server {
        self.nats.first()
    }

    /// Ends a replica as a crash would.
    pub fn kill9(&self, at: usize) {
        self.replicas[at].kill9();
    }

    /// Starts the replica again, and waits until it serves.
    pub async fn restart(&self, at: usize) {
        let starts = served(&self.replicas[at]);
        self.replicas[at].restart();
        self.serving(at, starts + 1).await;
    }

    async fn serving(&self, at: usize, times: usize) {
        let replica = &self.replicas[at];
        wait::until("the replica serves", PATIENCE, async || {
            if served(replica) < times {
                return Err(replica.log());
            }
            // The server may not have processed its subscriptions yet.
            let query = ListNodes::default();
            let result = self.ask::<verb::NodeStatus>(&query).await;
            result.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    /// Asks the service.
    pub async fn ask<V: Verb<To = ()>>(
        &self,
        body: &impl Serialize,
    ) -> Result<V::Reply, RequestError> {
        let call = Call::within(trace(), PATIENCE);
        self.bus.request(&V::subject(&()), body, &call).await
    }

    /// Sends a request that is refused.
    pub async fn refused<V: Verb<To = ()>>(&self, body: &impl Serialize) -> Problem {
        match self.ask::<V>(body).await {
            Err(RequestError::Problem(problem)) => *problem,
            other => panic!("{other:?}"),
        }
    }

    /// Shows the rights to the controllers first, as an agent does. The time that this takes is
    /// added to the report's clock.
    pub async fn report(&self, report: &NodeReport) -> Reported {
        let start = std::time::Instant::now();
        for reported in report.instances.iter().filter(|reported| reported.half == Half::Controller)
        {
            let plugin_on_node =
                PluginOnNode { plugin: reported.plugin.clone(), node: report.node.clone() };
            let call = Call::within(trace(), PATIENCE);
            let subject = verb::NodeHost::subject(&plugin_on_node);
            self.bus.request::<Hosted>(&subject, &json!({}), &call).await.unwrap();
        }
        let clock = report.clock.after(start.elapsed());
        let report = &NodeReport { clock, ..report.clone() };
        self.ask::<verb::NodeReport>(report).await.unwrap()
    }

    pub async fn nodes(&self) -> Vec<NodeStatus> {
        let query = ListNodes::default();
        self.ask::<verb::NodeStatus>(&query).await.unwrap().nodes
    }

    pub async fn node(&self, id: &str) -> NodeStatus {
        let query = ListNodes::by_id(node_id(id));
        self.ask::<verb::NodeStatus>(&query).await.unwrap().nodes.remove(0)
    }

    pub async fn plugins(&self) -> Vec<PluginStatus> {
        let query = ListPlugins::default();
        let listed = self.ask::<verb::PluginStatus>(&query).await.unwrap().plugins;
        let mut plugins = Vec::new();
        for stub in listed {
            // A list has no instances.
            let plugin = self.plugin(stub.id.as_str()).await;
            assert_eq!(stub, PluginStatus { instances: Vec::new(), ..plugin.clone() });
            plugins.push(plugin);
        }
        plugins
    }

    pub async fn plugin(&self, id: &str) -> PluginStatus {
        let query = ListPlugins::by_id(plugin_id(id));
        self.ask::<verb::PluginStatus>(&query).await.unwrap().plugins.remove(0)
    }

    pub async fn bucket(&self, spec: &BucketSpec) -> Bucket {
        self.bus.bucket(spec, self.nats.copies()).await.unwrap()
    }

    /// The newest revisions of plugins and nodes: they stay the same while nothing is written.
    pub async fn heads(&self) -> (u64, u64) {
        let (plugins, nodes) =
            (self.bucket(&bucket::PLUGINS).await, self.bucket(&bucket::NODES).await);
        (plugins.head(">").await.unwrap(), nodes.head(">").await.unwrap())
    }

    /// Takes the node's lease, which ends by itself.
    pub async fn lease(&self, node: &str, ttl: Duration) -> Lease {
        let leases = self.bucket(&bucket::LEASES).await;
        let key = key::node_lease(&node_id(node));
        leases.acquire(&key, holder(node).into(), ttl, trace()).await.unwrap()
    }

    /// The names of the events so far, with the instance or node they are about, in order.
    pub async fn events(&self) -> Vec<String> {
        let events = self.bus.events(&stream::EVENTS, self.nats.copies()).await.unwrap();
        let last = events.last(subject::ALL_EVENTS, 1000, PATIENCE).await.unwrap();
        last.iter()
            .map(|event| {
                let event: Event = serde_json::from_slice(&event.body).unwrap();
                let node = event.node.map(String::from).unwrap_or_default();
                match event.plugin {
                    Some(plugin) => format!("{} {plugin} {node}", event.event),
                    None => format!("{} {node}", event.event),
                }
            })
            .collect()
    }

    /// Waits until the events with this prefix are these, in this order. Events of an instance and
    /// of its node have no order between them.
    pub async fn events_are(&self, about: &str, expected: &[&str]) {
        wait::until("the events are told", PATIENCE, async || {
            let mut events = self.events().await;
            events.retain(|event| event.starts_with(about));
            if events == expected { Ok(()) } else { Err(format!("{events:#?}")) }
        })
        .await;
    }

    /// Waits until the test's own connection is back.
    pub async fn bus_is_back(&self) {
        wait::until("the bus is connected", PATIENCE, async || {
            if self.bus.connected() { Ok(()) } else { Err("it is not") }
        })
        .await;
    }

    /// Waits until the node is in this state.
    pub async fn node_is(&self, node: &str, state: &str, within: Duration) -> NodeStatus {
        wait::until(&format!("{node} is {state}"), within, async || {
            let query = ListNodes::by_id(node_id(node));
            let result = self.ask::<verb::NodeStatus>(&query).await;
            // No replica may answer yet, after the server was away.
            let status = result.map_err(|error| error.to_string())?.nodes.remove(0);
            let now = status.state.to_string();
            if now == state { Ok(status) } else { Err(now) }
        })
        .await
    }
}

fn served(replica: &Daemon) -> usize {
    replica.log().matches("serving").count()
}

pub fn trace() -> TraceContext {
    TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap()
}

pub fn node_id(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

pub fn plugin_id(id: &str) -> PluginId {
    PluginId::new(id).unwrap()
}

/// A report of a node's instances, sent now.
pub fn report(node: &str, instances: &[(&str, Half, Instance)]) -> NodeReport {
    let instances = instances.iter().map(|(plugin, half, instance)| ReportedInstance {
        plugin: plugin_id(plugin),
        half: *half,
        instance: instance.clone(),
    });
    NodeReport {
        node: node_id(node),
        version: "0.1.0".to_owned(),
        boot_id: "boot-1".to_owned(),
        clock: berth_service::clock::now(),
        attributes: BTreeMap::from([("address".to_owned(), "192.0.2.1".to_owned())]),
        instances: instances.collect(),
        undone: None,
        unaccounted: Vec::new(),
        compared: None,
        clock_offset: None,
        sealing_key: None,
    }
}

pub fn instance(healthy: bool) -> Instance {
    Instance {
        healthy,
        description: if healthy { "it answers" } else { "no answer" }.to_owned(),
        provider: "csi.example".to_owned(),
        version: "1.2.3".to_owned(),
        since: Timestamp::from_unix_ms(1_700_000_000_000),
        controller: None,
        node: None,
        id_since: None,
        process: None,
    }
}

/// What an agent writes into its node's lease.
pub fn holder(node: &str) -> String {
    let since = Timestamp::from_unix_ms(1);
    json!({"node": node, "agent": "a", "pid": 1, "since": since}).to_string()
}
