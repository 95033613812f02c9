//! One nats-server, a claim service, and the registry's records written by hand.

use std::time::Duration;

use berth_bus::{Bus, Call, Config};
use berth_contract::bucket::{self, BucketSpec};
use berth_contract::message::claim::Grant;
use berth_contract::message::secret::Sealed;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_contract::{key, record};
use berth_domain::plugin::{ControllerAbilities, Half, Instance, Node, NodeAbilities, NodeState};
use berth_domain::{Namespace, NodeId, PluginId};
use berth_harness::dirs::Dir;
use berth_harness::nats::Server;
use berth_harness::process::{Daemon, Program};
use berth_harness::wait;
use berth_service::clock;
use berth_service::seal::new_seed;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::site::plant;

/// A patience that only a broken run uses up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A site; what it started ends with it.
pub struct Site {
    // Dropped in this order.
    pub claim: Daemon,
    pub bus: Bus,
    _server: Server,
    _dir: Dir,
}

impl Site {
    pub async fn start() -> Self {
        let (server, dir) = (Server::start().await, Dir::new("claim"));
        let bus =
            Bus::connect(Config::new([server.url()], "test/host/1").insecure()).await.unwrap();
        let key_file = dir.join("secrets.key");
        std::fs::write(&key_file, new_seed().unwrap().0).unwrap();
        let claim = Program::service("berth-claim", "claim", &dir)
            .on_bus(server.url(), 1)
            .configured(&format!("[secrets]\nkey_file = {:?}\n", key_file.display().to_string()))
            .start();
        let site = Self { claim, bus, _server: server, _dir: dir };
        let status = verb::ClaimStatus::subject(&Namespace::default());
        site.persist::<Value>(&status, &json!({"volume": "none"})).await;
        site
    }

    pub async fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &Value,
    ) -> Result<T, Problem> {
        ask(&self.bus, subject, body).await
    }

    /// Asks until the answer is no error.
    pub async fn persist<T: DeserializeOwned>(&self, subject: &str, body: &Value) -> T {
        wait::until(subject, PATIENCE, async || {
            self.ask(subject, body).await.map_err(|problem| problem.to_string())
        })
        .await
    }

    async fn plant<T: Serialize>(&self, spec: &BucketSpec, key: &str, body: T) {
        plant(&self.bus, spec, key, record::write(body, None).unwrap()).await;
    }

    /// The node is there, and its agent has reported this key.
    pub async fn node(&self, node: &str, sealing_key: Option<&str>) {
        let record = json!({"state": NodeState::Ready, "since": clock::now(),
            "sealing_key": sealing_key});
        let record: Node = serde_json::from_value(record).unwrap();
        self.plant(&bucket::NODES, &key::node(&node_id(node)), record).await;
    }

    /// The node has this half of the plugin.
    pub async fn instance(&self, plugin: &PluginId, node: &str, half: Half, attaches: bool) {
        let abilities = NodeAbilities {
            external_node: format!("external-{node}"),
            controller_service: attaches,
            ..NodeAbilities::default()
        };
        let controller =
            ControllerAbilities { publish_unpublish_volume: true, ..Default::default() };
        let instance = Instance {
            healthy: true,
            description: "as the test says".to_owned(),
            provider: "test".to_owned(),
            version: "1".to_owned(),
            since: clock::now(),
            controller: (half == Half::Controller).then_some(controller),
            node: (half == Half::Node).then_some(abilities),
            id_since: None,
            process: None,
        };
        let key = key::instance(plugin, &node_id(node), half);
        self.plant(&bucket::PLUGINS, &key, instance).await;
    }

    /// Registers a volume with a secret, and an alloc of the same name on the node.
    pub async fn volume(&self, id: &str, plugin: &PluginId, node: &str, password: &str) {
        let access = json!([{"access": "single-node-writer"}]);
        let volume = json!({"id": id, "plugin": plugin, "capability": access,
            "secrets": {"password": password}});
        self.persist::<Value>(&verb::VolumeRegister::subject(&Namespace::default()), &volume).await;
        let alloc = json!({"id": id, "node": node, "volumes": [{"source": id}]});
        self.persist::<Value>(&verb::AllocRegister::subject(&Namespace::default()), &alloc).await;
    }

    /// Takes the volume for the alloc of the same name.
    pub async fn take(&self, id: &str, node: &str) -> Grant {
        let take = json!({"alloc": id, "volume": id, "node": node, "mode": "write"});
        self.persist(&verb::ClaimTake::subject(&Namespace::default()), &take).await
    }
}

pub fn node_id(node: &str) -> NodeId {
    NodeId::new(node).unwrap()
}

/// Asks once.
pub async fn ask<T: DeserializeOwned>(
    bus: &Bus,
    subject: &str,
    body: &Value,
) -> Result<T, Problem> {
    let call = Call::within(clock::begin_trace(), Duration::from_secs(10));
    bus.request(subject, body, &call).await.map_err(|error| error.into_problem("test"))
}

/// Asks for a volume's secrets, as the node's agent does.
pub async fn open(
    bus: &Bus,
    node: &str,
    volume: &str,
    secrets: &str,
    to: &str,
) -> Result<Sealed, Problem> {
    let body = json!({"namespace": "default", "volume": volume, "secrets": secrets, "to": to});
    ask(bus, &verb::SecretOpen::subject(&node_id(node)), &body).await
}
