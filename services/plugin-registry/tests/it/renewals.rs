//! The renewals of a fleet: those that come together are stored together.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_bus::{Bus, Call, Config};
use berth_contract::actor::Actor;
use berth_contract::lease::Holder;
use berth_contract::message::node::{Hold, LeaseAnswer};
use berth_contract::{bucket, key, verb};
use berth_domain::{NodeId, Timestamp};
use berth_harness::nats::Spy;

use crate::site::{PATIENCE, Site, node_id, trace};

/// The agents, each with a connection of its own: more than writes that are sent alone.
const AGENTS: usize = 60;
/// A busy machine may pause between two rounds for so long that the renewals of the second count
/// as the first ones.
const ROUNDS: u64 = 40;

struct Agent {
    node: NodeId,
    bus: Bus,
}

impl Agent {
    async fn start(site: &Site, number: usize) -> Self {
        let node = node_id(&format!("n{number}"));
        let config = Config {
            actor: Actor::Node(node.clone()),
            ..Config::new([site.nats.url()], "agent").insecure()
        };
        Self { node, bus: Bus::connect(config).await.unwrap() }
    }

    async fn hold(&self, over: Option<u64>, number: u64) -> u64 {
        let holder = Holder {
            node: self.node.clone(),
            agent: "a".to_owned(),
            hostname: String::new(),
            boot_id: "b".to_owned(),
            pid: 1,
            since: Timestamp::from_unix_ms(1),
        };
        let request = Hold { holder, ttl_s: 60, over, renewal: Some(number) };
        let call = Call::within(trace(), PATIENCE);
        let answer = self.bus.ask_service::<verb::NodeHold>(&(), &request, &call).await.unwrap();
        let LeaseAnswer { revision: Some(revision), .. } = answer else { panic!("{answer:?}") };
        revision
    }
}

/// All agents ask at once. Returns the revisions of their leases.
async fn hold_all(agents: &[Arc<Agent>], held: &[Option<u64>], number: u64) -> Vec<Option<u64>> {
    let asked: Vec<_> = agents
        .iter()
        .zip(held)
        .map(|(agent, over)| {
            let (agent, over) = (Arc::clone(agent), *over);
            tokio::spawn(async move { agent.hold(over, number).await })
        })
        .collect();
    let mut revisions = Vec::new();
    for answer in asked {
        revisions.push(Some(answer.await.unwrap()));
    }
    revisions
}

#[tokio::test]
async fn renewals_that_come_together_are_one_write() {
    let site = Site::start(1).await;
    let mut agents = Vec::new();
    for number in 0..AGENTS {
        agents.push(Arc::new(Agent::start(&site, number).await));
    }
    let mut held = hold_all(&agents, &[None; AGENTS], 1).await;
    let spy = Spy::listen(site.nats.first()).await;
    let mut fewest = usize::MAX;
    for number in 2..ROUNDS {
        spy.take();
        held = hold_all(&agents, &held, number).await;
        fewest = fewest.min(count_writes(&spy));
        if fewest == 1 {
            break;
        }
    }
    assert_eq!(fewest, 1, "{AGENTS} renewals at once are so many writes");
    let leases = site.bucket(&bucket::LEASES).await;
    for (agent, revision) in agents.iter().zip(held) {
        let entry = leases.get(&key::node_lease(&agent.node)).await.unwrap().unwrap();
        assert_eq!((Some(entry.revision), entry.has_ttl), (revision, true), "{}", agent.node);
    }
}

/// The number of writes that the server acknowledges: a batch is one.
fn count_writes(spy: &Spy) -> usize {
    let heard = spy.take();
    let keys = heard.iter().filter(|heard| heard.subject.starts_with("$KV.berth-leases.node."));
    let acknowledged: BTreeSet<&str> = keys.filter_map(|heard| heard.reply.as_deref()).collect();
    acknowledged.len()
}
