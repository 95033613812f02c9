//! One nats-server, a claim service, a watcher, and a registry's records written by hand.

use std::future::Future;
use std::time::Duration;

use berth_bus::{Bus, Call, Change, Config, Guard, Write};
use berth_contract::bucket::{self, BucketSpec};
use berth_contract::message::claim::{ClaimStatus, Claims};
use berth_contract::verb::{self, Verb};
use berth_contract::{key, record};
use berth_domain::plugin::{ControllerAbilities, Half, Instance, Node, NodeAbilities, NodeState};
use berth_domain::proof::Proof;
use berth_domain::volume::State;
use berth_domain::{Namespace, NodeId, PluginId, Timestamp};
use berth_harness::dirs::Dir;
use berth_harness::nats::Server;
use berth_harness::process::{Daemon, Program};
use berth_harness::wait;
use berth_service::clock;
use serde::Serialize;
use serde_json::{Value, json};

use crate::executor::Executor;

/// The deadline of each wait, which only a failing test reaches.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The node of every claim.
pub const NODE: &str = "n1";

/// A bus with the services of a test; it ends with the test.
pub struct Site {
    // The fields are dropped in this order.
    pub watcher: Daemon,
    pub claim: Daemon,
    pub executor: Executor,
    pub bus: Bus,
    _server: Server,
    _dir: Dir,
}

impl Site {
    /// Starts everything, with these variables for both services.
    pub async fn start(configured: &[(&str, &str)]) -> Self {
        let (server, dir) = (Server::start().await, Dir::new("watcher"));
        let bus =
            Bus::connect(Config::new([server.url()], "test/host/1").insecure()).await.unwrap();
        let start = |name: &str, section: &str| {
            let own = configured.iter().filter(|(key, _)| key.contains(section)).copied();
            Program::service(name, name, &dir).on_bus(server.url(), 1).envs(own).start()
        };
        let claim = start("berth-claim", "POLICY");
        let watcher = start("berth-volumewatcher", "WATCHER");
        let executor = Executor::start(&bus, NODE).await;
        let site = Self { watcher, claim, executor, bus, _server: server, _dir: dir };
        site.persist("$SRV.INFO.berth-volumewatcher", &json!({})).await;
        site.claims("none").await;
        site.node(None).await;
        site
    }

    async fn persist(&self, subject: &str, body: &Value) -> Value {
        wait::until(subject, PATIENCE, async || {
            let call = Call::within(clock::begin_trace(), Duration::from_secs(5));
            self.bus.request::<Value>(subject, body, &call).await
        })
        .await
    }

    pub async fn about<V: Verb<To = Namespace>>(&self, body: &Value) -> Value {
        self.persist(&V::subject(&Namespace::default()), body).await
    }

    async fn plant<T: Serialize>(&self, spec: &BucketSpec, key: &str, body: T) {
        let bucket = self.bus.bucket(spec, 1).await.unwrap();
        let revision = bucket.head(key).await.unwrap();
        let write = Write {
            key,
            change: Change::Put(record::write(body, None).unwrap().into()),
            guard: Guard { filter: key, revision },
            operation: "test",
            trace: clock::begin_trace(),
        };
        bucket.commit(write).await.unwrap();
    }

    /// Writes the node's record: ready, or gone by a proof.
    pub async fn node(&self, gone: Option<Proof>) {
        let state = if gone.is_some() { NodeState::Down } else { NodeState::Ready };
        self.stand(json!({"state": state, "gone": gone})).await;
    }

    /// Writes the node's record as down.
    pub async fn down(&self) {
        self.stand(json!({"state": NodeState::Down})).await;
    }

    /// Writes the node's record as that of an agent that was started again within its lease.
    pub async fn started_again(&self) {
        self.stand(json!({"state": NodeState::Ready, "sealing_key": "Xnew"})).await;
    }

    /// Writes the node's record as ready again since this time.
    pub async fn back(&self, at: Timestamp) {
        self.stand(json!({"state": NodeState::Ready, "back": at})).await;
    }

    async fn stand(&self, mut node: Value) {
        node["since"] = json!(clock::now());
        let node: Node = serde_json::from_value(node).unwrap();
        self.plant(&bucket::NODES, &key::node(&node_id()), node).await;
    }

    /// Writes an instance of the plugin on the node; with a controller if the plugin attaches.
    pub async fn plugin(&self, plugin: &str, controller: bool) {
        let abilities = NodeAbilities {
            external_node: "external-n1".to_owned(),
            controller_service: controller,
            stage_unstage_volume: true,
            ..NodeAbilities::default()
        };
        self.instance(plugin, Half::Node, true, Some(abilities)).await;
        if controller {
            self.executor.host(plugin).await;
            self.controller(plugin, true).await;
        }
    }

    /// Writes the health of the plugin's controller.
    pub async fn controller(&self, plugin: &str, healthy: bool) {
        self.instance(plugin, Half::Controller, healthy, None).await;
    }

    async fn instance(&self, plugin: &str, half: Half, healthy: bool, node: Option<NodeAbilities>) {
        let attaches = ControllerAbilities { publish_unpublish_volume: true, ..Default::default() };
        let instance = Instance {
            healthy,
            description: "as the test says".to_owned(),
            provider: "test".to_owned(),
            version: "1".to_owned(),
            since: clock::now(),
            controller: node.is_none().then_some(attaches),
            node,
            id_since: None,
            process: None,
        };
        let plugin = PluginId::new(plugin).unwrap();
        self.plant(&bucket::PLUGINS, &key::instance(&plugin, &node_id(), half), instance).await;
    }

    /// Registers a volume of the plugin, and an alloc of the same name that requests it.
    pub async fn volume(&self, id: &str, plugin: &str) {
        let access = json!([{"access": "single-node-writer"}]);
        let volume = json!({"id": id, "plugin": plugin, "capability": access});
        self.about::<verb::VolumeRegister>(&volume).await;
        let alloc = json!({"id": id, "node": NODE, "volumes": [{"source": id}]});
        self.about::<verb::AllocRegister>(&alloc).await;
    }

    /// Requests the claim once.
    pub async fn try_take(&self, id: &str, within: Duration) -> bool {
        let take = json!({"alloc": id, "volume": id, "node": NODE, "mode": "write"});
        let subject = verb::ClaimTake::subject(&Namespace::default());
        let call = Call::within(clock::begin_trace(), within);
        self.bus.request::<Value>(&subject, &take, &call).await.is_ok()
    }

    /// Registers a volume and has it taken.
    pub async fn taken(&self, id: &str, plugin: &str) {
        self.volume(id, plugin).await;
        let take = json!({"alloc": id, "volume": id, "node": NODE, "mode": "write"});
        self.about::<verb::ClaimTake>(&take).await;
    }

    /// Ends the alloc.
    pub async fn stop(&self, id: &str) {
        self.about::<verb::AllocStop>(&json!({"id": id})).await;
    }

    /// The claims of a volume.
    pub async fn claims(&self, volume: &str) -> Vec<ClaimStatus> {
        let claims = self.about::<verb::ClaimStatus>(&json!({"volume": volume})).await;
        serde_json::from_value::<Claims>(claims).unwrap().claims
    }

    /// Waits until the volume has no claim.
    pub async fn freed(&self, volume: &str) {
        wait::until(&format!("{volume} is free"), PATIENCE, async || {
            let claims = self.claims(volume).await;
            if claims.is_empty() { Ok(()) } else { Err(format!("{claims:?}")) }
        })
        .await;
    }

    /// Waits until the volume's only claim matches.
    pub async fn until(&self, volume: &str, is: impl Fn(&ClaimStatus) -> bool) -> ClaimStatus {
        wait::until(&format!("the claim of {volume} has come so far"), PATIENCE, async || {
            let claim = self.claims(volume).await.pop().ok_or("it is gone".to_owned())?;
            if is(&claim) { Ok(claim) } else { Err(format!("{claim:?}")) }
        })
        .await
    }

    /// Waits until a release has failed this often in a state.
    pub async fn failed(&self, volume: &str, state: State, tries: u32) -> ClaimStatus {
        self.until(volume, |claim| claim.state == state && claim.tries >= tries).await
    }
}

fn node_id() -> NodeId {
    NodeId::new(NODE).unwrap()
}

/// Runs `each` for each number below `many`, with a bounded number at once.
pub async fn all<F: Future<Output = ()>>(many: usize, each: impl Fn(usize) -> F) {
    let next = std::cell::Cell::new(0);
    let worker = || async {
        while next.get() < many {
            let at = next.replace(next.get() + 1);
            each(at).await;
        }
    };
    let workers: Vec<_> = (0..64).map(|_| Box::pin(worker())).collect();
    futures_util::future::join_all(workers).await;
}
