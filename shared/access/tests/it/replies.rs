//! The client chooses the subject of its reply. A stolen identity must gain nothing by that.

use std::path::Path;

use berth_access::{LocalFleet, Role};
use berth_domain::{Namespace, NodeId};
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

/// A service replies to inboxes only, whatever a request names for the reply.
#[tokio::test]
async fn a_service_cannot_give_itself_a_right_to_publish() {
    let dir = tempfile::tempdir().unwrap();
    let bus = Bus::start(dir.path()).await;
    for role in berth_contract::role::SERVICES {
        let mut client = bus.connect(&role);
        let inbox = client.inbox().to_owned();
        let heard =
            client.exchange(&format!("SUB {inbox}.> 1\r\nPUB {inbox}.x {FORGED} 0\r\n\r\n"));
        assert!(heard.iter().any(|line| line.contains(FORGED)), "{}: {heard:?}", role.kind());
        assert_forgery_is_refused(&mut client);
    }
}

/// A stolen host has two identities. One sends a request that names a forged subject for its reply,
/// and the other one receives it.
#[tokio::test]
async fn an_accomplice_gives_an_agent_no_right_to_publish() {
    let dir = tempfile::tempdir().unwrap();
    let bus = Bus::start(dir.path()).await;
    let team_a = Namespace::new("team-a").unwrap();
    let node = NodeId::new("n1").unwrap();
    let mut agent = bus.connect(&Role::Node { node: node.clone(), controllers: Vec::new() });
    let mut docker = bus.connect(&Role::Docker { node, namespaces: [team_a].into() });
    let heard = agent.exchange("SUB berth.v1.agent.n1.mount.*.*.* q 1\r\n");
    assert_eq!(heard, [""; 0]);
    let record = "$KV.berth-volumes.team-a.data.spec";
    let mut inbox = docker.inbox().to_owned() + ".x";
    for target in [FORGED, record, &inbox] {
        let request = format!("PUB berth.v1.agent.n1.mount.team-a.docker.n1 {target} 0\r\n\r\n");
        assert_eq!(docker.exchange(&request), [""; 0]);
        let heard = agent.exchange("");
        assert!(heard.iter().any(|line| line.contains(target)), "{heard:?}");
    }
    assert_forgery_is_refused(&mut agent);
    let answers = agent.exchange(&format!("PUB {record} 0\r\n\r\n"));
    assert!(answers.iter().any(|line| line.contains("Permissions Violation")), "{answers:?}");
    // A reply to an inbox is allowed.
    inbox = format!("PUB {inbox} 0\r\n\r\n");
    assert_eq!(agent.exchange(&inbox), [""; 0]);
}

/// Would declare a node gone in the name of an operator.
const FORGED: &str = "berth.v1.node.gone.user.root";

fn assert_forgery_is_refused(client: &mut Client) {
    let answers = client.exchange(&format!("PUB {FORGED} 0\r\n\r\n"));
    let refused = format!("Permissions Violation for Publish to \"{FORGED}\"");
    assert!(answers.iter().any(|line| line.contains(&refused)), "{answers:?}");
}
