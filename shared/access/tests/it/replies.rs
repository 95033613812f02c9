//! The subject of a reply is chosen by whoever asks. A stolen identity must gain nothing by that.

use std::path::Path;

use berth_access::{LocalFleet, Role};
use berth_domain::NodeId;
use berth_harness::nats::{NatsOptions, NatsServers};
use serde_json::json;

use crate::client::{Client, Dial};

/// A fleet with one server.
struct Bus {
    servers: NatsServers,
    fleet: LocalFleet,
}

impl Bus {
    async fn start(dir: &Path) -> Self {
        let fleet = LocalFleet::create(&dir.join("access"), &["berth"]).unwrap();
        let extra = &fleet.server_config("berth").unwrap();
        let options = NatsOptions { extra, ..NatsOptions::default() };
        Self { servers: NatsServers::start_with(1, options).await, fleet }
    }

    fn connect(&self, role: &Role) -> Client {
        let (ca, creds) = (self.fleet.ca(), self.fleet.creds(role).unwrap());
        let port = self.servers.first().port();
        let dial = Dial { port, name: "127.0.0.1", ca: &ca, creds: Some(&creds), token: None };
        Client::connect(dial).unwrap()
    }
}

fn services_and_hosts() -> Vec<Role> {
    let node = NodeId::new("n1").unwrap();
    let agent = Role::Node { node: node.clone(), controllers: Vec::new() };
    let mut roles = berth_access::role::SERVICES.to_vec();
    roles.extend([agent, Role::Docker { node }]);
    roles
}

/// A responder may publish once to the reply subject of a request that it receives. If it could send
/// the request itself, it could publish anywhere.
#[tokio::test]
async fn a_responder_cannot_give_itself_a_right_to_publish() {
    let dir = tempfile::tempdir().unwrap();
    let bus = Bus::start(dir.path()).await;
    for role in services_and_hosts() {
        let mut client = bus.connect(&role);
        let inbox = client.inbox().to_owned();
        let target = "berth.v1.node.gone.user.root";
        let said = client.exchange(&format!(
            "SUB {inbox}.> 1\r\nPUB {inbox}.x {target} 0\r\n\r\nPUB {inbox} {target} 0\r\n\r\n"
        ));
        let refused = format!("Permissions Violation for Publish to \"{inbox}.x\"");
        assert!(said.iter().any(|line| line.contains(&refused)), "{}: {said:?}", role.kind());
        let said = client.exchange(&format!("PUB {target} 0\r\n\r\n"));
        let refused = format!("Permissions Violation for Publish to \"{target}\"");
        assert!(said.iter().any(|line| line.contains(&refused)), "{}: {said:?}", role.kind());
    }
}

#[tokio::test]
async fn probe_deputies() {
    let dir = tempfile::tempdir().unwrap();
    let bus = Bus::start(dir.path()).await;
    let mut admin = bus.connect(&Role::Admin { name: "root".to_owned() });
    for bucket in ["berth-leases", "berth-volumes"] {
        let config = json!({
            "name": format!("KV_{bucket}"), "subjects": [format!("$KV.{bucket}.>")],
            "storage": "memory", "max_msgs_per_subject": 1, "allow_direct": true,
            "allow_rollup_hdrs": true, "deny_delete": true, "discard": "new",
            "allow_atomic": true, "allow_msg_ttl": true,
        });
        println!("{}", admin.request(&format!("$JS.API.STREAM.CREATE.KV_{bucket}"), &config));
        println!("{}", admin.request(&format!("$KV.{bucket}.node.n2"), &json!({"real": bucket})));
    }
    let node = NodeId::new("n1").unwrap();
    let agent = Role::Node { node, controllers: Vec::new() };
    let mut client = bus.connect(&agent);
    println!("own {}", client.request("$KV.berth-leases.node.n1", &json!({"forged": 1})));
    let mut show = |what: &str| {
        for bucket in ["berth-leases", "berth-volumes"] {
            let ask = json!({"last_by_subj": format!("$KV.{bucket}.node.n2")});
            let got = admin.request(&format!("$JS.API.STREAM.MSG.GET.KV_{bucket}"), &ask);
            println!("{what}: {bucket} {got}");
        }
    };
    show("before");
    for target in ["$KV.berth-leases.node.n2", "$KV.berth-volumes.node.n2"] {
        let direct = "$JS.API.DIRECT.GET.KV_berth-leases.$KV.berth-leases.node.n1";
        println!("{:?}", client.exchange(&format!("PUB {direct} {target} 0\r\n\r\n")));
        show("direct get");
        let info = "$JS.API.STREAM.INFO.KV_berth-leases";
        println!("{:?}", client.exchange(&format!("PUB {info} {target} 0\r\n\r\n")));
        show("info");
        println!(
            "{:?}",
            client.exchange(&format!("PUB $KV.berth-leases.node.n1 {target} 2\r\n{{}}\r\n"))
        );
        show("ack");
    }
    println!(
        "{:?}",
        client.exchange(
            "HPUB $KV.berth-leases.node.n1 30 32\r\nNATS/1.0\r\nNats-Rollup: all\r\n\r\n{}\r\n"
        )
    );
    std::thread::sleep(std::time::Duration::from_millis(300));
    show("rollup");
}
