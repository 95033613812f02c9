//! The client chooses the subject of its reply. A stolen identity must gain nothing by that.

use std::path::Path;

use berth_access::{LocalFleet, Role};
use berth_domain::NodeId;
use berth_harness::nats::{NatsOptions, NatsServers};

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

/// A responder may publish once to the reply subject of a request that it gets. If it could send
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
