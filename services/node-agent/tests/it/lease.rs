//! The agent's lease, which the registry writes for it. One of two replicas of the registry hangs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_bus::{Bus, Config, Listen, ServiceSpec, VerbRequest};
use berth_contract::actor::Actor;
use berth_contract::lease::Holder;
use berth_contract::message::node::LeaseAnswer;
use berth_contract::verb;
use berth_domain::Timestamp;
use berth_harness::nats::NatsServers;
use berth_node_agent::fleet::gate::Gate;
use berth_node_agent::fleet::lease::{LeaseTtl, NodeLease};
use berth_service::shutdown::Shutdown;

use crate::world::node;
use tokio::sync::watch;

const TTL: Duration = Duration::from_secs(6);

/// Each request goes to the replica that hangs first. The next copy finds the other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_of_the_registry_that_hangs_costs_no_lease() {
    let nats = NatsServers::start(1).await;
    let config = Config { actor: Actor::Node(node()), ..Config::new([nats.url()], "agent") };
    let bus = Bus::connect(config.insecure()).await.unwrap();
    let (name, version) = ("registry".to_owned(), "0.0.1".to_owned());
    let spec = ServiceSpec { name, version, ..ServiceSpec::default() };
    let service = bus.service(spec).await.unwrap();
    let (seen, revision) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(Mutex::new(0)));
    let numbers = Arc::clone(&seen);
    let hold = move |request: VerbRequest<verb::NodeHold>| {
        let (seen, revision) = (Arc::clone(&numbers), Arc::clone(&revision));
        async move {
            let asked = request.message()?;
            if seen.lock().unwrap().insert(asked.renewal) {
                std::future::pending::<()>().await;
            }
            let mut revision = revision.lock().unwrap();
            *revision += 1;
            Ok(LeaseAnswer { revision: Some(*revision), found: None, volumes: None })
        }
    };
    service.on(Listen::All, 64, hold).await.unwrap();
    let holder = Holder {
        node: node(),
        agent: "a".to_owned(),
        hostname: String::new(),
        boot_id: "b".to_owned(),
        pid: 1,
        since: Timestamp::from_unix_ms(1),
    };
    let (_trigger, shutdown) = Shutdown::new();
    let (ttl, volumes) = (LeaseTtl::new(TTL), watch::Sender::new(0));
    let tenure = NodeLease { bus, holder, ttl, gate: Gate::default(), volumes };
    let lease = tenure.acquire(&shutdown).await.unwrap();
    let fence = lease.fence();
    tokio::time::sleep(2 * TTL).await;
    assert!(lease.is_held() && lease.fence() == fence, "{lease:?}");
    let numbers = seen.lock().unwrap().clone();
    assert!(numbers.len() > 4 && !numbers.contains(&None), "each is numbered: {numbers:?}");
}
